//! The other processes of the server, and how their end is noticed.
//!
//! Without the login process there are no logins, without the monitor no brokers and no renewed keys, and without the log
//! process no records. None of them can be started again, because all were forked before the server gave up root. So the server
//! ends as well, and the service manager starts all processes again.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::thread;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, retry_on_intr};
use tokio::sync::oneshot::{self, Receiver};
use tracing::warn;

/// A process that the server was started with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Helper {
    /// The front process, which listens.
    Front,
    /// The login process, which decides logins.
    Login,
    /// The monitor, which keeps root's rights.
    Monitor,
    /// The process that asks the callout.
    Callout,
    /// The process that writes the log files.
    Logs,
    /// The launcher, which starts a new version. The server goes on without it.
    Launcher,
}

impl Helper {
    /// The name of the process in the status.
    pub(crate) fn role(self) -> &'static str {
        match self {
            Self::Front => "front",
            Self::Login => "login",
            Self::Monitor => "monitor",
            Self::Callout => "callout",
            Self::Logs => "logs",
            Self::Launcher => "launcher",
        }
    }
}

impl fmt::Display for Helper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Front => "the process that listens",
            Self::Login => "the process that decides logins",
            Self::Monitor => "the monitor that keeps root's rights",
            Self::Callout => "the process that asks authz-callout",
            Self::Logs => "the process that writes the logs",
            Self::Launcher => "the launcher, which starts new versions",
        })
    }
}

/// Waits for the end of the first of these processes, in a thread. Each descriptor is readable when its process has ended.
/// Must be called after the process was confined, since it starts a thread.
///
/// # Errors
///
/// When there is no thread.
pub(crate) fn watch(processes: Vec<(Helper, OwnedFd)>) -> io::Result<Receiver<Helper>> {
    let (tell, told) = oneshot::channel();
    let wait = move || {
        if let Ok(helper) = first_to_end(&processes) {
            // A server that has ended does not receive the message.
            let _ = tell.send(helper);
        }
    };
    thread::Builder::new()
        .name("gridhaul-helpers".to_owned())
        .spawn(wait)?;
    Ok(told)
}

/// Waits for the end of a process; never completes where processes cannot be watched.
pub(crate) async fn gone(told: Receiver<Helper>) -> Helper {
    match told.await {
        Ok(helper) => helper,
        Err(_) => std::future::pending().await,
    }
}

/// A descriptor for [`watch`], if the kernel has such descriptors (Linux 5.3).
pub(crate) fn watched(helper: Helper, process: io::Result<OwnedFd>) -> Option<(Helper, OwnedFd)> {
    match process {
        Ok(process) => Some((helper, process)),
        Err(error) => {
            warn!(%error, "the end of {helper} would not be noticed");
            None
        }
    }
}

fn first_to_end(processes: &[(Helper, OwnedFd)]) -> Result<Helper, Errno> {
    let mut polled: Vec<_> = processes
        .iter()
        .map(|(_, process)| PollFd::new(process, PollFlags::IN))
        .collect();
    loop {
        retry_on_intr(|| poll(&mut polled, None))?;
        let mut ended = processes.iter().zip(&polled);
        if let Some(((helper, _), _)) = ended.find(|(_, polled)| !polled.revents().is_empty()) {
            return Ok(*helper);
        }
    }
}
