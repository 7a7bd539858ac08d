//! How each client is told to copy.

use std::net::SocketAddr;
use std::time::Duration;

use crate::bench::files::Files;
use crate::bench::testbed::{Place, RunError, pki};
use crate::support::{Client, UserKind, gridhaul_client};

/// The time limit for one run.
const LIMIT: Duration = Duration::from_secs(120);

/// A client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Program {
    Gridhaul,
    GlobusUrlCopy,
    Curl,
    Rclone,
}

/// A copy.
#[derive(Debug)]
pub(super) struct Task {
    /// URLs: `ftp`, `gsiftp` or `file`; with a slash at the end for directories.
    pub(super) from: String,
    pub(super) to: String,
    pub(super) server: SocketAddr,
    pub(super) files: Files,
    pub(super) count: usize,
    pub(super) channels: u8,
    pub(super) place: Place,
    /// Only what differs by its size.
    pub(super) is_sync: bool,
}

impl Program {
    /// All, in the order of the columns.
    pub(super) const ALL: [Self; 4] = [
        Self::Gridhaul,
        Self::GlobusUrlCopy,
        Self::Curl,
        Self::Rclone,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Gridhaul => "gridhaul",
            Self::GlobusUrlCopy => "globus-url-copy",
            Self::Curl => "curl",
            Self::Rclone => "rclone",
        }
    }

    /// Whether it speaks GridFTP.
    pub(super) fn is_grid(self) -> bool {
        matches!(self, Self::Gridhaul | Self::GlobusUrlCopy)
    }

    /// Runs the program until it has copied.
    pub(super) fn run(self, task: &Task) -> Result<Duration, RunError> {
        let client = match self {
            Self::Gridhaul => gridhaul(task)?,
            Self::GlobusUrlCopy => globus_url_copy(task),
            Self::Curl => curl(task),
            Self::Rclone => rclone(task)?,
        };
        let client = match task.place {
            Place::Certified => client.envs(pki()?.environment(UserKind::Spaces)),
            _ => client,
        };
        let finished = client.time_limit(LIMIT).run()?;
        match finished.status.success() {
            true => Ok(finished.elapsed),
            false => Err(RunError::Failed(finished.to_string())),
        }
    }
}

impl Task {
    fn is_large(&self) -> bool {
        self.files == Files::Large && !self.is_sync
    }
}

fn gridhaul(task: &Task) -> Result<Client, RunError> {
    let program = gridhaul_client().map_err(|error| RunError::Failed(error.to_string()))?;
    let mut client = Client::new(program).args(["copy", "--quiet"]);
    if !task.is_large() {
        client = client.arg("--recursive");
    }
    if task.is_sync {
        client = client.arg("--sync=size");
    }
    if task.channels > 1 {
        client = client.arg("--parallel").arg(task.channels.to_string());
    }
    if task.place == Place::Certified {
        client = client.arg("--protect");
    }
    Ok(client.arg(&task.from).arg(&task.to))
}

fn globus_url_copy(task: &Task) -> Client {
    let mut client = Client::new("globus-url-copy");
    if task.channels > 1 {
        client = client.arg("-p").arg(task.channels.to_string());
    }
    if task.place == Place::Certified {
        client = client.arg("-dcpriv");
    }
    if task.is_sync {
        client = client.args(["-sync", "-sync-level", "1"]);
    }
    if !task.is_large() {
        client = client.args(["-r", "-cd", "-fast", "-pp", "-cc", "4"]);
    }
    client.arg(&task.from).arg(&task.to)
}

fn curl(task: &Task) -> Client {
    let client = Client::new("curl").arg("-sS");
    let local = |url: &str| url.trim_start_matches("file://").to_owned();
    let last = task.count.saturating_sub(1);
    let (from, to) = match task.is_large() {
        true => (task.from.clone(), task.to.clone()),
        false => (format!("{}f[00000-{last:05}]", task.from), task.to.clone()),
    };
    if from.starts_with("file:") {
        return client.arg("-T").arg(local(&from)).arg(to);
    }
    match task.is_large() {
        true => client.arg("-o").arg(local(&to)).arg(from),
        false => client.arg("-o").arg(local(&to) + "f#1").arg(from),
    }
}

fn rclone(task: &Task) -> Result<Client, RunError> {
    let password = Client::new("rclone").args(["obscure", "x"]).run()?;
    let password = String::from_utf8_lossy(&password.stdout).trim().to_owned();
    let place = |url: &str| match url.strip_prefix("file://") {
        Some(path) => path.to_owned(),
        None => {
            let path = url.splitn(4, '/').nth(3).unwrap_or_default();
            format!(":ftp:{path}")
        }
    };
    let verb = match task.is_large() {
        true => "copyto",
        false => "copy",
    };
    let port = task.server.port().to_string();
    Ok(Client::new("rclone")
        .args([
            "--config",
            "/dev/null",
            verb,
            // rclone 1.60 takes the 426 after a part of a file that it wanted for an error.
            "--multi-thread-streams",
            "0",
            "--retries",
            "1",
            "--ftp-host",
            "127.0.0.1",
            "--ftp-port",
        ])
        .args([&port, "--ftp-user", "anonymous", "--ftp-pass", &password])
        .arg(place(&task.from))
        .arg(place(&task.to)))
}
