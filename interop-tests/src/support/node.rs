//! A data node of our server, as a process.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use super::launch::{DISABLED_LOGIN, LaunchError, lines};
use super::pki::Pki;
use super::process_group::ProcessGroup;
use super::program::gridhaul_program;
use super::server::START_LIMIT;

/// The settings of a data node.
#[derive(Debug, Clone)]
pub struct NodeLaunch {
    pki: &'static Pki,
    certificate: [PathBuf; 2],
    root: PathBuf,
    listen: SocketAddr,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
}

/// A data node that runs until it is dropped.
#[derive(Debug)]
pub struct Node {
    group: ProcessGroup,
    address: SocketAddr,
    logs: TempDir,
}

impl NodeLaunch {
    /// A node with the files beneath `root`, and the host certificate of the servers. It listens on a free port of loopback.
    pub fn new(pki: &'static Pki, root: impl Into<PathBuf>) -> Self {
        Self {
            pki,
            certificate: [pki.host_certificate(), pki.host_key()],
            root: root.into(),
            listen: (Ipv4Addr::LOCALHOST, 0).into(),
            arguments: Vec::new(),
            environment: Vec::new(),
        }
    }

    /// One of the eight nodes that have an address and a certificate of their own. It obeys control servers with the host
    /// certificate of the servers.
    pub fn numbered(pki: &'static Pki, root: impl Into<PathBuf>, number: u8) -> Self {
        let node = Self {
            certificate: [pki.node_certificate(number), pki.node_key()],
            listen: (pki.node_address(number), 0).into(),
            ..Self::new(pki, root)
        };
        node.arg("--control-servers").arg("localhost")
    }

    /// Listens at this address instead.
    #[must_use]
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.listen = address;
        self
    }

    /// Adds an argument of the program.
    #[must_use]
    pub fn arg(mut self, argument: impl Into<OsString>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Sets a variable of the node's environment, which has only `PATH`, `LC_ALL` and `TZ` by default.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Starts the node and returns when it listens.
    ///
    /// # Errors
    ///
    /// When the program is missing, ends, or does not listen in time.
    pub fn start(&self) -> Result<Node, LaunchError> {
        let logs = tempfile::Builder::new()
            .prefix("gridhaul-node-")
            .tempdir()?;
        let log = logs.path().join("log");
        let [certificate, key] = self.certificate.clone();
        let files = [
            ("--root", self.root.clone()),
            ("--cert", certificate),
            ("--key", key),
            ("--trust", self.pki.trust()),
        ];
        let mut command = Command::new(gridhaul_program()?);
        command
            .args(["node", "--listen", &self.listen.to_string()])
            // The accounts that exist on every machine are those of system services.
            .args(["--least-uid", "1", &format!("--{DISABLED_LOGIN}")])
            .args(
                files
                    .iter()
                    .flat_map(|(flag, path)| [flag.as_ref(), path.as_os_str()]),
            )
            .args(&self.arguments)
            .env_clear()
            .env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin")
            .env("LC_ALL", "C.UTF-8")
            .env("TZ", "UTC")
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(&log)?);
        let mut group = ProcessGroup::start(command)?;
        let line = lines(group.leader().stdout.take())
            .recv_timeout(START_LIMIT)
            .map_err(|_| LaunchError::silent(&log))?;
        let address = line.strip_prefix("Node listening at ");
        match address.and_then(|address| address.trim_end().parse().ok()) {
            Some(address) => Ok(Node {
                group,
                address,
                logs,
            }),
            None => Err(LaunchError::FirstLine { line }),
        }
    }
}

impl Node {
    /// The address at which control servers reach it.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The process id, which is also the id of the group of its helpers.
    pub fn pid(&self) -> u32 {
        self.group.id()
    }

    /// The log until now.
    pub fn log(&self) -> String {
        let log = fs::read(self.logs.path().join("log")).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }

    /// Kills the main process only, as a crash does; the others have to notice.
    ///
    /// # Errors
    ///
    /// When the process cannot be signalled.
    pub fn kill(&self) -> io::Result<()> {
        self.group.kill_leader()
    }

    /// The processes of this node that run.
    pub fn processes(&self) -> Vec<u32> {
        self.group.members()
    }
}
