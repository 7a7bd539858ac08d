//! The helper process that starts the callout or connects to it.

use std::os::fd::OwnedFd;
use std::thread;
use std::time::Duration;

use gridhaul_accounts::process::{close_on_exec, fork, ignore_signals, set_name};
use gridhaul_accounts::socket::pair;
use rustix::io::Errno;
use rustix::process::Pid;

use super::{AT_A_TIME, CalloutClient, exchange};
use crate::config::{Callout, Config};
use crate::privileges;
use crate::sandbox;
use crate::service::Launcher;
use crate::wire::{NotReady, receive_message, send_message, tell_ready, wait_until_ready};

/// Starts the helper process.
#[derive(Debug)]
pub(crate) struct CalloutProcess {
    /// For the login process.
    pub(crate) client: CalloutClient,
    pub(crate) pid: Pid,
}

/// An error that keeps the helper process from starting.
#[derive(Debug, thiserror::Error)]
pub enum CalloutProcessError {
    /// The OS refuses a socket or a process.
    #[error("cannot start the process that asks authz-callout: {0}")]
    Start(#[from] std::io::Error),
    /// The process cannot give up its rights.
    #[error("authz-callout: {0}")]
    Configuration(String),
}

impl From<NotReady> for CalloutProcessError {
    fn from(error: NotReady) -> Self {
        match error {
            NotReady::Ended(error) => Self::Start(error),
            NotReady::Reason(reason) => Self::Configuration(reason),
        }
    }
}

impl CalloutProcess {
    /// Starts the process, if a callout is configured. Must be called while this process has one thread, and before it opens
    /// anything: programs that the helper starts get no descriptors, but the helper itself must not have any either.
    ///
    /// # Errors
    ///
    /// When there is a second thread already, or no process can be started.
    pub(crate) fn start(
        config: &Config,
        launcher: &Launcher,
    ) -> Result<Option<Self>, CalloutProcessError> {
        let Some(callout) = &config.authz_callout else {
            return Ok(None);
        };
        let within = config.authz_callout_timeout;
        let (tell, told) = pair().map_err(std::io::Error::from)?;
        let mut ours = Vec::new();
        let mut theirs = Vec::new();
        for _ in 0..AT_A_TIME {
            let (here, there) = pair().map_err(std::io::Error::from)?;
            ours.push(here);
            theirs.push(there);
        }
        let mut kept = Some((ours, told));
        let pid = fork(|| {
            drop(kept.take());
            launcher.disconnect();
            run(&config.user, callout, within, theirs, &tell);
        })?;
        drop(tell);
        // The closure ran in the child only, so here all values are still there.
        let Some((ours, told)) = kept else {
            return Err(std::io::Error::from(Errno::PIPE).into());
        };
        wait_until_ready(&told)?;
        Ok(Some(Self {
            client: CalloutClient::new(ours, within),
            pid,
        }))
    }
}

/// The main function of the process: a thread for each socket. It ends when the login process has closed all of them.
fn run(user: &str, callout: &Callout, within: Duration, sockets: Vec<OwnedFd>, tell: &OwnedFd) {
    ignore_signals();
    set_name("gh-callout", "callout process");
    let confined = privileges::drop_root(user)
        .map_err(|error| error.to_string())
        .and_then(|_| close_on_exec().map_err(|error| error.to_string()))
        .and_then(|()| sandbox::confine_callout().map_err(|error| error.to_string()));
    if let Err(reason) = confined {
        tell_ready(tell, Some(&reason));
        return;
    }
    thread::scope(|scope| {
        for socket in sockets {
            let answer = move || answer(&socket, callout, within);
            let thread = thread::Builder::new().name("gh-callout".to_owned());
            if let Err(error) = thread.spawn_scoped(scope, answer) {
                tell_ready(tell, Some(&error.to_string()));
                return;
            }
        }
        tell_ready(tell, None);
    });
}

fn answer(socket: &OwnedFd, callout: &Callout, within: Duration) {
    while let Ok(Some(question)) = receive_message(socket, &mut Vec::new()) {
        let answer = exchange::ask(callout, &question, within);
        let Ok(answer) = postcard::to_stdvec(&answer) else {
            return;
        };
        if send_message(socket, &answer, &[]).is_err() {
            return;
        }
    }
}
