//! The login process: how it starts and ends.
//!
//! It is forked before the server listens or starts a thread. Started as root, it reads the files that only root may read,
//! gives root up, and keeps the only connection to the monitor. It has a thread for each socket of the front process and the
//! serving process, and ends when all of them have closed their ends: also if a thread still waits for a file then.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use gridhaul_accounts::process::{end, fork, ignore_signals, set_name};
use gridhaul_accounts::socket::pair;
use gridhaul_accounts::{BrokerSource, Monitor};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{Shutdown, shutdown};
use rustix::process::Pid;

use crate::callout::{CalloutClient, MOST_QUESTIONS};
use crate::config::{Config, ServeArguments};
use crate::log_process::{LogSockets, OpenedLogs};
use crate::privileges;
use crate::sandbox;
use crate::security::Opener;
use crate::service::Launcher;
use crate::wire::{NotReady, tell_ready, wait_until_ready};

use super::authenticator::Authenticator;
use super::client::{LoginClient, SIGNING_SOCKETS};
use super::messages::Asker;
use super::readable::tell_unreadable;
use super::service::{LoginService, Sources, most_exchanges};

/// Threads for questions that wait for files, beside those for handshakes and passwords.
const THREADS_FOR_FILES: usize = 8;

/// Threads for the serving process. Most of its questions are quick; a broker whose account comes from a directory service
/// takes long.
const THREADS_FOR_SERVING: usize = 16;

/// The thread that answers the watch of the serving process.
const WATCHING: usize = 1;

/// The most threads that hash passwords at a time (`crate::passwords`).
const THREADS_FOR_PASSWORDS: usize = 8;

/// Starts the login process.
#[derive(Debug)]
pub(crate) struct LoginProcess;

/// A running login process.
#[derive(Debug)]
pub(crate) struct Started {
    /// The client side of the serving process.
    pub(crate) serving: Arc<LoginClient>,
    /// For [`LoginClient::new`] in the front process.
    pub(crate) front: Vec<OwnedFd>,
    pub(crate) pid: Pid,
}

/// An error that keeps the login process from starting.
#[derive(Debug, thiserror::Error)]
pub enum LoginProcessError {
    /// The OS refuses a socket or a process.
    #[error("cannot start the process that decides logins: {0}")]
    Start(#[from] std::io::Error),
    /// The login process cannot use the configuration.
    #[error("{0}")]
    Configuration(String),
}

impl LoginProcess {
    /// Starts the process. Must be called while this process has one thread and all its rights, and before it opens anything
    /// that the login process must not have. The monitor and the callout's client move to the login process, and its end of
    /// `log_sockets`.
    ///
    /// # Errors
    ///
    /// When there is a second thread already, no process can be started, or a file that is configured cannot be used.
    pub(crate) fn start(
        config: &Config,
        arguments: &ServeArguments,
        logs: OpenedLogs<'_>,
        log_sockets: &mut LogSockets,
        (monitor, callout): (Option<Monitor>, Option<CalloutClient>),
        launcher: &Launcher,
    ) -> Result<Started, LoginProcessError> {
        let starts_brokers = monitor.is_some() && config.security.gsi.is_some();
        let (tell, told) = pair().map_err(std::io::Error::from)?;
        let mut theirs = Vec::new();
        let mut sockets = |asker: Asker, threads: usize| {
            let mut ours = Vec::new();
            for _ in 0..threads + SIGNING_SOCKETS {
                let (here, there) = pair().map_err(std::io::Error::from)?;
                ours.push(here);
                theirs.push((there, asker));
            }
            Ok::<_, std::io::Error>(ours)
        };
        // All of them may wait for the callout, and other questions must not.
        let waiting = callout.as_ref().map_or(0, |_| MOST_QUESTIONS);
        let front = sockets(Asker::Front, threads() + waiting)?;
        let serving = sockets(Asker::Serving, THREADS_FOR_SERVING + WATCHING + waiting)?;
        let mut kept = Some((front, serving, told));
        let pid = fork(|| {
            // The descriptors of the parent.
            drop(kept.take());
            launcher.disconnect();
            if let Err(error) = log_sockets.become_login() {
                tell_ready(&tell, Some(&error.to_string()));
                return;
            }
            run(config, arguments, logs, (monitor, callout), theirs, tell);
        })?;
        log_sockets.has_login();
        // The closure ran in the child only, so here all values are still there.
        let Some((front, mut serving, told)) = kept else {
            return Err(std::io::Error::from(Errno::PIPE).into());
        };
        wait_until_ready(&told)?;
        let watched = serving.pop();
        let serving = LoginClient::new(serving, starts_brokers).watching(watched);
        Ok(Started {
            serving: Arc::new(serving),
            front,
            pid,
        })
    }
}

impl From<NotReady> for LoginProcessError {
    fn from(error: NotReady) -> Self {
        match error {
            NotReady::Ended(error) => Self::Start(error),
            NotReady::Reason(reason) => Self::Configuration(reason),
        }
    }
}

fn threads() -> usize {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    processors + processors.min(THREADS_FOR_PASSWORDS) + THREADS_FOR_FILES
}

/// The main function of the process. It sends an empty message when it is ready, or the reason why it is not.
fn run(
    config: &Config,
    arguments: &ServeArguments,
    logs: OpenedLogs<'_>,
    (monitor, callout): (Option<Monitor>, Option<CalloutClient>),
    sockets: Vec<(OwnedFd, Asker)>,
    tell: OwnedFd,
) {
    set_name("gh-login", "login process");
    let monitor = monitor.map(Arc::new);
    let opener = Opener::new(monitor.clone());
    let authenticator =
        Authenticator::load(config, &opener, None).map_err(|error| error.to_string());
    let authenticator = authenticator.map(|loaded| loaded.with_callout(callout));
    // Until here, because the passphrase of the key may have been asked for: an interrupt must end that.
    ignore_signals();
    let prepared = authenticator.and_then(|authenticator| {
        // While the process still has root's rights: its account may not be allowed to search the directories above.
        let files = sandbox::files_of_logins(config, arguments.config.as_deref());
        privileges::drop_root(&config.user).map_err(|error| error.to_string())?;
        let confinement = sandbox::confine_logins(files).map_err(|error| error.to_string())?;
        authenticator.start().map_err(|error| error.to_string())?;
        Ok((authenticator, confinement))
    });
    let (authenticator, confinement) = match prepared {
        Ok(prepared) => prepared,
        Err(reason) => {
            tell_ready(&tell, Some(&reason));
            return;
        }
    };
    tell_unreadable(config, arguments, &opener);
    let most = most_exchanges(config);
    let brokers = monitor.map(|monitor| monitor as Arc<dyn BrokerSource>);
    let service =
        LoginService::new(config.clone(), authenticator, brokers, most).reading(Sources {
            arguments,
            confinement,
            logs,
            opener,
        });
    let service = &service;
    let sockets = &sockets;
    thread::scope(|scope| {
        let (works, all_ended) = channel::<()>();
        for (socket, asker) in sockets {
            let works = works.clone();
            let answer = move || {
                service.answer(socket, *asker);
                // So that the other process does not wait for an answer. An error means that its end is closed.
                let _ = shutdown(socket, Shutdown::Both);
                drop(works);
            };
            let thread = thread::Builder::new().name("gh-login".to_owned());
            if let Err(error) = thread.spawn_scoped(scope, answer) {
                tell_ready(&tell, Some(&error.to_string()));
                return;
            }
        }
        drop(works);
        tell_ready(&tell, None);
        let sockets: Vec<&OwnedFd> = sockets.iter().map(|(socket, _)| socket).collect();
        if wait_until_closed(&sockets).is_ok() && !all_end(&all_ended, LAST_WORK) {
            end(0);
        }
    });
}

/// The time that threads have for what they do when no process needs the result any more.
const LAST_WORK: Duration = Duration::from_secs(2);

/// Waits until the other ends of all sockets are closed.
fn wait_until_closed(sockets: &[&OwnedFd]) -> Result<(), Errno> {
    for socket in sockets {
        // No event but the end, which cannot be left out.
        let mut polled = [PollFd::new(socket, PollFlags::empty())];
        retry_on_intr(|| poll(&mut polled, None))?;
    }
    Ok(())
}

/// Whether all threads that hold the other end of this channel end within this time.
fn all_end(ended: &Receiver<()>, within: Duration) -> bool {
    ended.recv_timeout(within) == Err(RecvTimeoutError::Disconnected)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_waits_for_a_file_does_not_keep_the_process() {
        let (here, there) = pair().expect("a pair");
        let (works, all_ended) = channel::<()>();
        let (release, held) = channel::<()>();
        thread::scope(|scope| {
            scope.spawn(move || {
                let _ = held.recv();
                drop(works);
            });
            drop(there);
            wait_until_closed(&[&here]).expect("closed");
            assert!(!all_end(&all_ended, Duration::from_millis(1)));
            drop(release);
            assert!(all_end(&all_ended, Duration::from_secs(60)));
        });
    }
}
