//! A running server, ours or the real one, and the paths and URLs of its files.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::Duration;

use tempfile::TempDir;

use super::process_group::ProcessGroup;
use super::program::Kind;
use super::url;

/// The time limit for a server to start listening, and for each line that it writes then.
pub(super) const START_LIMIT: Duration = Duration::from_secs(20);

/// A server that runs until it is dropped.
#[derive(Debug)]
pub struct Server {
    pub(super) kind: Kind,
    pub(super) root: PathBuf,
    pub(super) address: SocketAddr,
    pub(super) gsi: bool,
    pub(super) group: ProcessGroup,
    pub(super) logs: TempDir,
    /// What it writes to its standard output after the first line.
    pub(super) lines: Mutex<mpsc::Receiver<String>>,
}

impl Server {
    /// The program.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The address of its control channel.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address of the page of metrics; `None` if the server has none. It can be asked for once.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        let url = self.announced("Metrics at http://")?;
        url.split('/').next()?.parse().ok()
    }

    /// What follows these words on one of the lines that our server prints after the first one.
    fn announced(&self, words: &str) -> Option<String> {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        while let Ok(line) = lines.recv_timeout(START_LIMIT) {
            if let Some(rest) = line.strip_prefix(words) {
                return Some(rest.trim_end().to_owned());
            }
        }
        None
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
    /// Our server's paths begin at its root; the real one serves the paths of the host.
    pub fn path(&self, path: &str) -> String {
        match self.kind {
            Kind::Gridhaul => format!("/{path}"),
            Kind::Globus => self.root.join(path).display().to_string(),
        }
    }

    /// The `ftp://` or `gsiftp://` URL of `path`, relative to the root. Reserved characters are
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

    /// The URL of the administration page of our server, which writes it when it starts.
    ///
    /// # Panics
    ///
    /// When the server was started without `--admin-listen`, or this is called twice.
    pub fn administration(&self) -> String {
        self.announced("Administration at ")
            .expect("the server writes the address of its administration page")
    }

    /// The log until now.
    pub fn log(&self) -> String {
        let read = |name| fs::read(self.logs.path().join(name)).unwrap_or_default();
        let logs = [read("log"), read("session.log")].concat();
        String::from_utf8_lossy(&logs).into_owned()
    }

    /// Sends SIGTERM and waits at most `limit` for the exit; `None` when it still runs then.
    ///
    /// # Errors
    ///
    /// When the process cannot be signalled or waited for.
    pub fn stop(&mut self, limit: Duration) -> io::Result<Option<ExitStatus>> {
        self.group.terminate()?;
        self.group.wait(limit)
    }

    /// Kills the main process only, as a crash does; the others have to notice.
    ///
    /// # Errors
    ///
    /// When the process cannot be signalled.
    pub fn kill(&self) -> io::Result<()> {
        self.group.kill_leader()
    }

    /// The processes of this server that run.
    pub fn processes(&self) -> Vec<u32> {
        self.group.members()
    }

    /// Whether the server process still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.group.wait(Duration::ZERO), Ok(None))
    }
}
