//! The data nodes of a server (`nodes`): their names, and the cluster that they are.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;

use gridhaul_nodes::cluster::{Cluster, ClusterConfig};
use gridhaul_security::host_name::HostName;

use crate::config::{Config, NodeAddress};

/// The data nodes of a server.
#[derive(Debug)]
pub(crate) struct DataNodes {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) targets: Vec<Target>,
}

/// A data node, and the addresses of its name when the server started.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) node: NodeAddress,
    pub(crate) addresses: Result<Vec<SocketAddr>, String>,
}

impl DataNodes {
    /// The nodes that the configuration names; `None` if it names none. Looks their names up, before the process is confined.
    pub(crate) fn of(config: &Config) -> Option<Self> {
        if config.nodes.is_empty() {
            return None;
        }
        let spread_stripes = !config.handling.ordered;
        Some(Self {
            cluster: Arc::new(Cluster::new(ClusterConfig { spread_stripes })),
            targets: config.nodes.iter().map(Target::of).collect(),
        })
    }
}

impl Target {
    fn of(node: &NodeAddress) -> Self {
        Self {
            addresses: addresses(node).map_err(|error| error.to_string()),
            node: node.clone(),
        }
    }
}

fn addresses(node: &NodeAddress) -> io::Result<Vec<SocketAddr>> {
    match &node.host {
        HostName::Address(address) => Ok(vec![SocketAddr::new(*address, node.port)]),
        HostName::Name(name) => Ok((name.as_str(), node.port).to_socket_addrs()?.collect()),
    }
}
