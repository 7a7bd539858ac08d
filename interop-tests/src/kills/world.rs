//! Three nodes and two control servers. The first control server reaches the nodes over links that can be cut.

use std::env;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::cut::Link;
use crate::support::node_site::{control_server, shared_place, wait_for};
use crate::support::raw::Identity;
use crate::support::scratch::Scratch;
use crate::support::{Failure, Launch, Node, NodeLaunch, Pki, Server, UserKind, content};

/// The number of nodes.
pub(super) const NODES: usize = 3;

/// The size of the file that clients copy. With [`STACK`] it takes between one and four seconds.
pub(super) const BYTES: u64 = 16_000_123;

/// The size of the file of steady sessions.
pub(super) const STEADY_BYTES: u64 = 100_000;

/// Each data channel sends 8 Mb/s.
const STACK: &str = "tcp:rate=8m";

/// How long the other processes of a program may outlive the main one.
const HELPERS_END: Duration = Duration::from_secs(15);

/// All programs of a campaign.
pub(super) struct World {
    place: Scratch,
    pub(super) pki: &'static Pki,
    pub(super) identity: Identity,
    pub(super) nodes: Vec<Machine>,
    pub(super) links: Vec<Link>,
    /// Over the links.
    pub(super) server: Server,
    /// Reaches the nodes directly.
    pub(super) other: Server,
}

/// A node, and what starts it again.
pub(super) struct Machine {
    pub(super) node: Node,
    launch: NodeLaunch,
    reported: Arc<Mutex<Option<Reported>>>,
}

/// Connections of control servers and sessions, as a node reports them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reported {
    pub(super) connections: usize,
    pub(super) sessions: usize,
}

impl World {
    /// Starts all programs.
    pub(super) fn start() -> Result<Self, Failure> {
        let pki = Pki::shared().map_err(|error| Failure::wrong(error.to_string()))?;
        let place = shared_place(&env::temp_dir())?;
        let root = place.path().join("served");
        content::write(&place.path().join("source"), BYTES)?;
        for (name, bytes) in [("big", BYTES), ("steady", STEADY_BYTES)] {
            content::write(&root.join(name), bytes)?;
        }
        let nodes = (0..NODES)
            .map(|number| Machine::start(pki, place.path(), number))
            .collect::<Result<Vec<_>, _>>()?;
        let direct: Vec<_> = nodes.iter().map(|machine| machine.node.address()).collect();
        let links = direct.iter().map(|&node| Link::to(node));
        let links = links.collect::<Result<Vec<_>, _>>()?;
        let cut: Vec<_> = links.iter().map(Link::address).collect();
        let server = launch(pki, &root, &cut).start()?;
        let other = launch(pki, &root, &direct).start()?;
        for server in [&server, &other] {
            wait_for(server, "a data node can be used", NODES)?;
        }
        Ok(Self {
            identity: Identity::user(pki, UserKind::Plain)?,
            place,
            pki,
            nodes,
            links,
            server,
            other,
        })
    }

    /// The directory that nodes serve.
    pub(super) fn root(&self) -> PathBuf {
        self.place.path().join("served")
    }

    /// A path beside it.
    pub(super) fn local(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    /// The node with this data address.
    pub(super) fn node_at(address: SocketAddr) -> Option<usize> {
        (0..NODES).find(|&number| IpAddr::V4(data_address(number)) == address.ip())
    }

    /// Kills the control server; its helpers must end by themselves.
    pub(super) fn kill_server(&mut self) -> Result<(), Failure> {
        self.server.kill()?;
        all_end("the control server", || self.server.processes())
    }

    /// Starts the control server again, at the same address.
    pub(super) fn restart_server(&mut self) -> Result<(), Failure> {
        let port = self.server.address().port();
        let cut: Vec<_> = self.links.iter().map(Link::address).collect();
        self.server = launch(self.pki, &self.root(), &cut).port(port).start()?;
        wait_for(&self.server, "a data node can be used", NODES)
    }

    /// Waits until the control servers use a node again, which has come back.
    pub(super) fn wait_for_nodes(&self) -> Result<(), Failure> {
        for server in [&self.server, &self.other] {
            let deadline = Instant::now() + Duration::from_secs(60);
            while !all_usable(&server.log()) {
                if Instant::now() > deadline {
                    let log = server.log();
                    return Err(Failure::wrong(format!("a node does not come back:\n{log}")));
                }
                thread::sleep(Duration::from_millis(50));
            }
        }
        Ok(())
    }
}

/// Whether the last line about each node says that it can be used.
fn all_usable(log: &str) -> bool {
    let mut usable = std::collections::HashMap::new();
    for line in log.lines() {
        let can = line.contains("a data node can be used");
        if can || line.contains("a data node cannot be used") {
            let name = line
                .split_whitespace()
                .find(|word| word.starts_with("node="));
            usable.insert(name, can);
        }
    }
    usable.len() == NODES && usable.into_values().all(|can| can)
}

impl Machine {
    fn start(pki: &'static Pki, place: &Path, number: usize) -> Result<Self, Failure> {
        let socket = place.join(format!("status-{number}"));
        let status = UnixDatagram::bind(&socket)?;
        let reported = Arc::default();
        let known = Arc::clone(&reported);
        thread::spawn(move || read_status(&status, &known));
        let launch = NodeLaunch::new(pki, place.join("served"))
            .arg("--data-address")
            .arg(data_address(number).to_string())
            .env("NOTIFY_SOCKET", socket)
            // The status is sent twice in this time.
            .env("WATCHDOG_USEC", "1000000");
        let node = launch.start()?;
        // A node that is started again has the same address.
        let launch = launch.listen(node.address());
        Ok(Self {
            node,
            launch,
            reported,
        })
    }

    /// Kills the node; its helpers must end by themselves.
    pub(super) fn kill(&mut self) -> Result<(), Failure> {
        self.node.kill()?;
        all_end("a node", || self.node.processes())
    }

    pub(super) fn restart(&mut self) -> Result<(), Failure> {
        self.node = self.launch.start()?;
        Ok(())
    }

    /// The last status that the node has sent.
    pub(super) fn reported(&self) -> Option<Reported> {
        *lock(&self.reported)
    }
}

/// Reads the status of a node until the test ends; a node sends none while earlier ones have not been read.
fn read_status(socket: &UnixDatagram, known: &Mutex<Option<Reported>>) {
    let mut buffer = [0; 4096];
    while let Ok(length) = socket.recv(&mut buffer) {
        let text = String::from_utf8_lossy(&buffer[..length]);
        if let Some(reported) = text.lines().find_map(parsed) {
            *lock(known) = Some(reported);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn parsed(line: &str) -> Option<Reported> {
    let rest = line.strip_prefix("STATUS=connections of control servers: ")?;
    let (connections, sessions) = rest.split_once(", sessions: ")?;
    Some(Reported {
        connections: connections.parse().ok()?,
        sessions: sessions.parse().ok()?,
    })
}

/// Each node has an address of its own for data channels.
fn data_address(number: usize) -> Ipv4Addr {
    let last = u8::try_from(number).unwrap_or_default();
    Ipv4Addr::new(127, 0, 1, 10 + last)
}

fn launch(pki: &'static Pki, root: &Path, nodes: &[SocketAddr]) -> Launch {
    control_server(pki, root, nodes).arg("--stack").arg(STACK)
}

fn all_end(what: &str, processes: impl Fn() -> Vec<u32>) -> Result<(), Failure> {
    let deadline = Instant::now() + HELPERS_END;
    loop {
        let left = processes();
        if left.is_empty() {
            return Ok(());
        }
        if Instant::now() > deadline {
            let reason = format!("{what} was killed, and its processes {left:?} go on");
            return Err(Failure::wrong(reason));
        }
        thread::sleep(Duration::from_millis(20));
    }
}
