//! A control server and data nodes with the same files, on this machine.

use std::env;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use super::account::chown_to_nobody;
use super::client::{Client, Finished};
use super::failure::Failure;
use super::launch::{Launch, LaunchError};
use super::node::{Node, NodeLaunch};
use super::pki::{Pki, UserKind};
use super::program::Kind;
use super::scratch::Scratch;
use super::server::Server;

/// Data nodes with one root, and their control server. Users log in with GSI.
#[derive(Debug)]
pub struct NodeSite {
    place: Scratch,
    pki: &'static Pki,
    /// The nodes; a test may remove some.
    pub nodes: Vec<Node>,
    /// The control server.
    pub server: Server,
}

impl NodeSite {
    /// Starts so many nodes and a control server that uses them.
    ///
    /// # Errors
    ///
    /// When a program does not start, or the nodes cannot be used in time.
    pub fn start(nodes: usize) -> Result<Self, Failure> {
        Self::start_with(nodes, |_, launch| launch)
    }

    /// The same, with files in memory: a disk does not limit their rate.
    ///
    /// # Errors
    ///
    /// As [`NodeSite::start`].
    pub fn start_in_memory(nodes: usize) -> Result<Self, Failure> {
        Self::start_in(Path::new("/dev/shm"), nodes, |_, launch| launch)
    }

    /// The same; `adapt` changes the settings of each node, of which it gets the number.
    ///
    /// # Errors
    ///
    /// As [`NodeSite::start`].
    pub fn start_with(
        nodes: usize,
        adapt: impl Fn(usize, NodeLaunch) -> NodeLaunch,
    ) -> Result<Self, Failure> {
        Self::start_in(&env::temp_dir(), nodes, adapt)
    }

    fn start_in(
        parent: &Path,
        nodes: usize,
        adapt: impl Fn(usize, NodeLaunch) -> NodeLaunch,
    ) -> Result<Self, Failure> {
        let pki = Pki::shared().map_err(|error| Failure::wrong(error.to_string()))?;
        let place = shared_place(parent)?;
        let root = place.path().join("served");
        let nodes = (0..nodes)
            .map(|number| adapt(number, NodeLaunch::new(pki, &root)).start())
            .collect::<Result<Vec<_>, LaunchError>>()?;
        let addresses: Vec<_> = nodes.iter().map(Node::address).collect();
        let server = control_server(pki, &root, &addresses).start()?;
        let site = Self {
            place,
            pki,
            nodes,
            server,
        };
        site.wait_for("a data node can be used", site.nodes.len())?;
        Ok(site)
    }

    /// Certificates and users.
    pub fn pki(&self) -> &'static Pki {
        self.pki
    }

    /// Waits until the log of the control server has so many lines with these words.
    ///
    /// # Errors
    ///
    /// When it has not within a minute: its log.
    pub fn wait_for(&self, words: &str, count: usize) -> Result<(), Failure> {
        wait_for(&self.server, words, count)
    }

    /// A path of this machine that is not served.
    pub fn local(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    /// The URL of such a path.
    pub fn file(&self, name: &str) -> String {
        format!("file://{}", self.local(name).display())
    }

    /// Copies with globus-url-copy.
    ///
    /// # Errors
    ///
    /// When the client does not run to its end.
    pub fn copy(&self, options: &[&str], from: &str, to: &str) -> Result<Finished, Failure> {
        self.copy_as(UserKind::Plain, options, from, to)
    }

    /// The same as another user.
    ///
    /// # Errors
    ///
    /// As [`NodeSite::copy`].
    pub fn copy_as(
        &self,
        user: UserKind,
        options: &[&str],
        from: &str,
        to: &str,
    ) -> Result<Finished, Failure> {
        let client = Client::new("globus-url-copy")
            .args(options.iter().copied())
            .args([from, to]);
        let environment = self.pki.environment(user);
        Ok(client.envs(environment).run()?)
    }

    /// Copies with globus-url-copy, which has to succeed.
    ///
    /// # Errors
    ///
    /// When it does not: its output, and the log of the control server.
    pub fn must_copy(&self, options: &[&str], from: &str, to: &str) -> Result<(), Failure> {
        let finished = self.copy(options, from, to)?;
        if finished.status.success() {
            return Ok(());
        }
        let log = self.server.log();
        Err(Failure::wrong(format!("{options:?}: {finished}\n{log}")))
    }
}

/// A directory with an empty directory `served`, which all accounts may use.
pub(crate) fn shared_place(parent: &Path) -> Result<Scratch, Failure> {
    let place = Scratch::beneath(parent)?;
    let root = place.path().join("served");
    fs::create_dir(&root)?;
    for path in [place.path(), &root] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o777))?;
    }
    chown_to_nobody(&root)?;
    Ok(place)
}

/// A control server of these nodes.
pub(crate) fn control_server(pki: &'static Pki, root: &Path, nodes: &[SocketAddr]) -> Launch {
    let names: Vec<_> = nodes.iter().map(ToString::to_string).collect();
    let launch = Launch::new(Kind::Gridhaul, root).gsi(pki);
    launch.arg("--nodes").arg(names.join(","))
}

/// Waits until the log of a server has so many lines with these words.
pub(crate) fn wait_for(server: &Server, words: &str, count: usize) -> Result<(), Failure> {
    let deadline = Instant::now() + Duration::from_secs(60);
    while server.log().matches(words).count() < count {
        if Instant::now() > deadline {
            let log = server.log();
            let reason = format!("no {count} times {words:?}: {log}");
            return Err(Failure::wrong(reason));
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
