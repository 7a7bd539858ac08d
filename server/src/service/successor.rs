//! The new version, from its start until it serves.
//!
//! It is started with a socket to the launcher of the running version. The messages are few, and stay as they are
//! ([`super::environment::PROTOCOL`]), because the two versions differ:
//!
//! ```text
//! new version                              running version
//!   READY, or FAILED and the reason  ────▶
//!                                    ◀──── GO: it is the main process now
//!   (waits when it ends itself)            (the socket closes when its last transfer has ended)
//! ```

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use gridhaul_accounts::process::fork;
use gridhaul_accounts::socket::{Received, pair, readable, receive, send};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, pidfd_open, pidfd_send_signal, setsid, waitpid,
};

use super::environment::TO_PREDECESSOR;
use super::program::{Named, Program, Purpose, become_program};
use super::wait::until_readable;

/// The time until it serves. It may have large files to read.
const START: Duration = Duration::from_secs(120);

/// The time until the running version answers, which happens at once.
const GO_TIME: Duration = Duration::from_secs(30);

const READY: &[u8] = b"READY";
const FAILED: &[u8] = b"FAILED ";
const GO: &[u8] = b"GO";

/// The longest message.
const MESSAGE_BYTES: usize = 16 * 1024;

/// A new version that was started.
#[derive(Debug)]
pub(super) struct Successor {
    pub(super) pid: Pid,
    process: OwnedFd,
    socket: OwnedFd,
}

impl Successor {
    /// Starts the program with these sockets, and waits until it serves.
    ///
    /// # Errors
    ///
    /// The reason why it does not. It has ended then.
    pub(super) fn start(
        program: &Program,
        sockets: &[Named<'_>],
        serving: BorrowedFd<'_>,
    ) -> Result<Self, String> {
        let started = Self::begin(program, sockets);
        let started =
            started.map_err(|error| format!("the new version cannot be started: {error}"))?;
        match started.wait(serving) {
            Ok(()) => Ok(started),
            Err(reason) => {
                started.kill();
                Err(reason)
            }
        }
    }

    fn begin(program: &Program, sockets: &[Named<'_>]) -> io::Result<Self> {
        let (socket, theirs) = pair()?;
        let (tell, told) = pair()?;
        let mut all = vec![(TO_PREDECESSOR, theirs.as_fd())];
        all.extend(sockets);
        let mut command = Some(program.command(Purpose::Serve));
        // The process between ends at once, so that the service manager becomes the parent of the new version, and notices
        // its end.
        let between = fork(|| {
            let _ = setsid();
            let started = fork(|| {
                if let Some(command) = command.take() {
                    become_program(command, &all);
                }
            });
            if let Ok(pid) = started {
                let number = pid.as_raw_nonzero().get().to_ne_bytes();
                // The launcher waits for it.
                let _ = send(&tell, &number, &[]);
            }
        })?;
        drop((tell, theirs));
        waitpid(Some(between), WaitOptions::empty())?;
        let mut number = [0; 4];
        let received = receive(&told, &mut number, &mut Vec::new())?;
        let pid = Pid::from_raw(i32::from_ne_bytes(number));
        let (Received::Message(4), Some(pid)) = (received, pid) else {
            return Err(Errno::AGAIN.into());
        };
        Ok(Self {
            pid,
            process: pidfd_open(pid, PidfdFlags::empty())?,
            socket,
        })
    }

    fn wait(&self, serving: BorrowedFd<'_>) -> Result<(), String> {
        const DOES_NOT: &str = "the new version does not serve";

        let deadline = Instant::now() + START;
        until_readable(self.socket.as_fd(), serving, deadline)
            .map_err(|error| format!("{DOES_NOT}: {error}"))?;
        let mut buffer = [0; MESSAGE_BYTES];
        let bytes = match receive(&self.socket, &mut buffer, &mut Vec::new()) {
            Ok(Received::Message(bytes)) => &buffer[..bytes],
            Ok(Received::End) => {
                return Err(format!("{DOES_NOT}: it has ended; its log has the reason"));
            }
            Err(errno) => return Err(format!("{DOES_NOT}: {errno}")),
        };
        match bytes.strip_prefix(FAILED) {
            Some(reason) => Err(format!("{DOES_NOT}: {}", String::from_utf8_lossy(reason))),
            None if bytes == READY => Ok(()),
            None => Err(format!("{DOES_NOT}: it says something else")),
        }
    }

    /// It is the main process of the service now.
    pub(super) fn go(&self) {
        // If it has ended, the service manager starts the server again.
        let _ = send(&self.socket, GO, &[]);
    }

    fn kill(&self) {
        // It may have ended.
        let _ = pidfd_send_signal(&self.process, Signal::KILL);
    }
}

/// The running version, as the new one sees it.
#[derive(Debug)]
pub(super) struct Predecessor(OwnedFd);

impl Predecessor {
    pub(super) fn new(socket: OwnedFd) -> Self {
        Self(socket)
    }

    /// Says that this version serves, and waits until the other one has made it the main process.
    pub(super) fn ready(&self) {
        if send(&self.0, READY, &[]).is_ok() && readable(&self.0, GO_TIME) == Ok(true) {
            // Without a message the other version has ended, and this one serves in any case.
            let _ = receive(&self.0, &mut [0; MESSAGE_BYTES], &mut Vec::new());
        }
    }

    /// Says why this version does not serve.
    pub(super) fn fail(&self, reason: &str) {
        let longest = reason.floor_char_boundary(MESSAGE_BYTES - FAILED.len());
        let message = [FAILED, &reason.as_bytes()[..longest]].concat();
        // The other version also notices that this one ends.
        let _ = send(&self.0, &message, &[]);
    }

    /// Waits until its last transfer has ended.
    pub(super) fn gone(&self) {
        let mut buffer = [0; MESSAGE_BYTES];
        while let Ok(Received::Message(_)) = receive(&self.0, &mut buffer, &mut Vec::new()) {}
    }
}
