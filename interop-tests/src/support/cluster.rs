//! A server with data nodes, ours or the real one, on this machine.
//!
//! Each node of ours has an address and a certificate of its own, by which the control server knows it. The real server's
//! nodes have those of their front end: it compares the names of hosts, and there is one.

use super::failure::Failure;
use super::launch::{Launch, LaunchError};
use super::node::{Node, NodeLaunch};
use super::node_site::wait_for;
use super::pki::Pki;
use super::program::Kind;
use super::server::Server;

/// A server and its data nodes, which run until it is dropped.
#[derive(Debug)]
pub struct Cluster {
    server: Server,
    nodes: Nodes,
}

/// The data nodes of a cluster.
#[derive(Debug)]
enum Nodes {
    Gridhaul(Vec<Node>),
    /// They are held only until they end.
    Globus {
        _held: Vec<Server>,
    },
}

impl Cluster {
    /// Starts the server of these settings with so many nodes, at most eight, and returns when they can be used.
    ///
    /// # Errors
    ///
    /// When a program does not start, or the nodes cannot be used in time.
    pub fn start(launch: &Launch, nodes: u8) -> Result<Self, Failure> {
        Self::start_with(launch, nodes, |node| node)
    }

    /// The same; `adapt` changes the settings of each node of our server.
    ///
    /// # Errors
    ///
    /// As [`Cluster::start`].
    pub fn start_with(
        launch: &Launch,
        nodes: u8,
        adapt: impl Fn(NodeLaunch) -> NodeLaunch,
    ) -> Result<Self, Failure> {
        match launch.kind() {
            Kind::Gridhaul => Self::gridhaul(launch, nodes, adapt),
            Kind::Globus => Self::globus(launch, nodes),
        }
    }

    fn gridhaul(
        launch: &Launch,
        nodes: u8,
        adapt: impl Fn(NodeLaunch) -> NodeLaunch,
    ) -> Result<Self, Failure> {
        let pki = Pki::shared().map_err(|error| Failure::wrong(error.to_string()))?;
        let nodes = (0..nodes)
            .map(|number| adapt(NodeLaunch::numbered(pki, launch.root(), number)).start())
            .collect::<Result<Vec<_>, LaunchError>>()?;
        let names = list(nodes.iter().map(Node::address));
        let control = launch.clone().with_certificates(pki);
        let server = control.arg("--nodes").arg(names).start()?;
        wait_for(&server, "a data node can be used", nodes.len())?;
        let nodes = Nodes::Gridhaul(nodes);
        Ok(Self { server, nodes })
    }

    fn globus(launch: &Launch, nodes: u8) -> Result<Self, Failure> {
        let node = launch.clone().arg("-data-node");
        let node = node.arg("-ipc-interface").arg("127.0.0.1");
        let held = (0..nodes)
            .map(|_| node.start())
            .collect::<Result<Vec<_>, LaunchError>>()?;
        let ports = held.iter().map(|node| node.address().port());
        let names = list(ports.map(|port| format!("localhost:{port}")));
        let server = launch.clone().arg("-remote-nodes").arg(names).start()?;
        let nodes = Nodes::Globus { _held: held };
        Ok(Self { server, nodes })
    }

    /// The server to which clients connect.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// The nodes of our server.
    pub fn nodes(&self) -> &[Node] {
        match &self.nodes {
            Nodes::Gridhaul(nodes) => nodes,
            Nodes::Globus { .. } => &[],
        }
    }
}

fn list(names: impl Iterator<Item = impl ToString>) -> String {
    names
        .map(|name| name.to_string())
        .collect::<Vec<_>>()
        .join(",")
}
