//! The other processes of the server, and how their end is noticed.
//!
//! Without the login process there are no logins, without the monitor no brokers and no renewed keys, and without the log
//! process no records. None of them can be started again, because all were forked before the server gave up root. So the server
//! ends as well, and the service manager starts all processes again.

use std::fmt;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::process::{WaitId, WaitIdOptions, waitid};
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

/// How a process has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Exit {
    Status(i32),
    Signal(i32),
    /// The kernel does not say (before Linux 5.4).
    Unknown,
}

impl Exit {
    fn of(process: &OwnedFd) -> Self {
        // The process stays as it is, for others that wait for it.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        match waitid(WaitId::PidFd(process.as_fd()), options) {
            Ok(Some(ended)) => match (ended.exit_status(), ended.terminating_signal()) {
                (Some(status), _) => Self::Status(status),
                (None, Some(signal)) => Self::Signal(signal),
                (None, None) => Self::Unknown,
            },
            Ok(None) | Err(_) => Self::Unknown,
        }
    }

    /// Whether the process may have ended because another one had: then it returns from its main function.
    fn is_consequence(self) -> bool {
        matches!(self, Self::Status(0) | Self::Unknown)
    }
}

/// Processes that have ended: the ones that failed, or, if none did, all that ended within a moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lost(Vec<(Helper, Exit)>);

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (helper, exit)) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            write!(f, "{separator}{helper} has ended")?;
            match exit {
                Exit::Status(status) => write!(f, " (exit status {status})")?,
                Exit::Signal(signal) => write!(f, " (killed by signal {signal})")?,
                Exit::Unknown => {}
            }
        }
        Ok(())
    }
}

/// Waits for the end of one of these processes, in a thread. Each descriptor is readable when its process has ended.
/// Must be called after the process was confined, since it starts a thread.
///
/// # Errors
///
/// When there is no thread.
pub(crate) fn watch(processes: Vec<(Helper, OwnedFd)>) -> io::Result<Receiver<Lost>> {
    let (tell, told) = oneshot::channel();
    let wait = move || {
        if let Ok(lost) = first_to_end(&processes) {
            // A server that has ended does not receive the message.
            let _ = tell.send(lost);
        }
    };
    thread::Builder::new()
        .name("gridhaul-helpers".to_owned())
        .spawn(wait)?;
    Ok(told)
}

/// Waits for the end of a process; never completes where processes cannot be watched.
pub(crate) async fn gone(told: Receiver<Lost>) -> Lost {
    match told.await {
        Ok(lost) => lost,
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

/// Waits for the process that ended first. The kernel closes the sockets of a process before it reports its end, so another
/// one that ends in consequence may be seen earlier.
fn first_to_end(processes: &[(Helper, OwnedFd)]) -> Result<Lost, Errno> {
    /// The time in which the cause is seen after its consequences.
    const MOMENT: Duration = Duration::from_millis(100);

    let mut left: Vec<_> = processes.iter().collect();
    let mut ended = Vec::new();
    let mut deadline = None;
    while !left.is_empty() {
        let mut polled: Vec<_> = left
            .iter()
            .map(|(_, process)| PollFd::new(process, PollFlags::IN))
            .collect();
        let patience = deadline.map(|deadline: Instant| {
            let left = deadline.saturating_duration_since(Instant::now());
            Timespec {
                tv_sec: 0,
                tv_nsec: left.subsec_nanos().into(),
            }
        });
        if retry_on_intr(|| poll(&mut polled, patience.as_ref()))? == 0 {
            break;
        }
        let are_ended: Vec<_> = polled.iter().map(|one| !one.revents().is_empty()).collect();
        let mut seen = are_ended.into_iter();
        left.retain(|(helper, process)| {
            let is_ended = seen.next().unwrap_or(false);
            if is_ended {
                ended.push((*helper, Exit::of(process)));
            }
            !is_ended
        });
        if ended.iter().any(|(_, exit)| !exit.is_consequence()) {
            ended.retain(|(_, exit)| !exit.is_consequence());
            break;
        }
        deadline.get_or_insert_with(|| Instant::now() + MOMENT);
    }
    Ok(Lost(ended))
}
