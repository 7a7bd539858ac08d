//! The data nodes of a server (`nodes`): the cluster that they are, and what their names stand for.

mod look_up;
mod names;

use std::net::SocketAddr;
use std::sync::Arc;

use gridhaul_nodes::cluster::{Cluster, ClusterConfig};
use gridhaul_security::host_name::HostName;
use tokio::sync::Notify;

use crate::config::{Config, NodeAddress};

pub(crate) use look_up::{Found, Refused, look_up};
pub(crate) use names::Names;

/// The data nodes of a server.
#[derive(Debug)]
pub(crate) struct DataNodes {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) names: Names,
    /// The configuration may name other nodes.
    pub(crate) reloaded: Arc<Notify>,
}

/// A data node, and how it is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    /// For administrators: the host and the port.
    pub(crate) name: String,
    /// The host that its certificate must name.
    pub(crate) host: HostName,
    /// The addresses of the host, or why there are none.
    pub(crate) addresses: Result<Vec<SocketAddr>, String>,
}

impl DataNodes {
    /// The nodes that the configuration names; `None` if it names none.
    pub(crate) fn of(config: &Config) -> Option<Self> {
        if config.nodes.is_empty() {
            return None;
        }
        let spread_stripes = !config.handling.ordered;
        Some(Self {
            cluster: Arc::new(Cluster::new(ClusterConfig { spread_stripes })),
            names: Names::new(&config.nodes_resolver),
            reloaded: Arc::default(),
        })
    }
}

impl Target {
    fn new(node: &NodeAddress, addresses: Result<Vec<SocketAddr>, String>) -> Self {
        Self {
            name: node.to_string(),
            host: node.host.clone(),
            addresses,
        }
    }
}
