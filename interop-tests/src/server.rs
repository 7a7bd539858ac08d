//! A server that runs: ours or the real one, and how its files are addressed.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use tempfile::TempDir;

use crate::group::Group;
use crate::{Launch, LaunchError, launch, url};

/// Which program serves.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Kind {
    /// Ours: `gridhaul-server`.
    Gridhaul,
    /// The real one: `globus-gridftp-server`.
    Globus,
}

impl Kind {
    /// The program that is started.
    ///
    /// # Errors
    ///
    /// When it is not built or not installed.
    pub fn program(self) -> Result<PathBuf, LaunchError> {
        launch::program(self)
    }

    /// The name that reports use.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gridhaul => "ours",
            Self::Globus => "theirs",
        }
    }
}

/// A server that listens, until it is dropped.
#[derive(Debug)]
pub struct Server {
    pub(crate) kind: Kind,
    pub(crate) root: PathBuf,
    pub(crate) address: SocketAddr,
    pub(crate) gsi: bool,
    pub(crate) group: Group,
    pub(crate) logs: TempDir,
}

impl Server {
    /// Starts a server of `kind` with the usual settings.
    ///
    /// # Errors
    ///
    /// As [`Launch::start`].
    pub fn start(kind: Kind, root: impl Into<PathBuf>) -> Result<Self, LaunchError> {
        Launch::new(kind, root).start()
    }

    /// Which program serves.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Where its control channel listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The directory that it serves.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The process id, which is also the id of the group that the real server's sessions belong to.
    pub fn pid(&self) -> u32 {
        self.group.id()
    }

    /// The path that names `path`, relative to the root, on the control channel.
    ///
    /// Ours is given a root, so its paths begin there; the real one serves the machine's own paths.
    pub fn path(&self, path: &str) -> String {
        match self.kind {
            Kind::Gridhaul => format!("/{path}"),
            Kind::Globus => self.root.join(path).display().to_string(),
        }
    }

    /// The `ftp://` or `gsiftp://` URL of `path`, relative to the root. Bytes that mean something in a URL are
    /// escaped; a slash at the end stays.
    pub fn url(&self, path: &str) -> String {
        format!("{}{}", self.base(), url::escape(&self.path(path)))
    }

    /// `ftp://ADDRESS:PORT`, or `gsiftp://localhost:PORT`: the name in the host certificate.
    pub fn base(&self) -> String {
        if self.gsi {
            format!("gsiftp://localhost:{}", self.address.port())
        } else {
            format!("ftp://{}", self.address)
        }
    }

    /// What the server has logged so far.
    pub fn log(&self) -> String {
        let read = |name| fs::read(self.logs.path().join(name)).unwrap_or_default();
        let logs = [read("log"), read("session.log")].concat();
        String::from_utf8_lossy(&logs).into_owned()
    }

    /// Sends SIGTERM and waits for the end, for at most `limit`; `None` when it still runs then.
    ///
    /// # Errors
    ///
    /// When the process cannot be signalled or waited for.
    pub fn stop(&mut self, limit: Duration) -> io::Result<Option<ExitStatus>> {
        self.group.terminate()?;
        self.group.wait(limit)
    }

    /// Whether the server process still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.group.wait(Duration::ZERO), Ok(None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::TcpStream;

    fn greets(address: SocketAddr) -> bool {
        let mut code = [0; 3];
        TcpStream::connect(address).is_ok_and(|mut control| control.read_exact(&mut code).is_ok())
            && &code == b"220"
    }

    #[test]
    fn the_real_server_listens_until_it_is_dropped() {
        let root = tempfile::tempdir().unwrap();
        let mut server = Server::start(Kind::Globus, root.path()).unwrap();
        let address = server.address();
        assert!(server.is_running());
        assert!(greets(address));
        assert!(
            server.url("a b").ends_with("/a%20b"),
            "{}",
            server.url("a b")
        );
        drop(server);
        assert!(!greets(address));
    }
}
