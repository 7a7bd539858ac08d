//! A socket to the log process, and how long a sender waits for it.

use std::io::{self, IoSlice};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use gridhaul_accounts::socket::{Received, readable, receive, send};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::sockopt::{Timeout, set_socket_send_buffer_size, set_socket_timeout};
use rustix::net::{SendAncillaryBuffer, SendFlags};

use super::log_message::{Content, LONGEST, Number, number};
use crate::locks::lock;

/// The time that a sender waits until its lines are in the files.
const WRITTEN: Duration = Duration::from_secs(5);

/// A socket to the log process.
#[derive(Debug)]
pub(super) struct Way {
    socket: RwLock<Arc<OwnedFd>>,
    /// How long a line waits for room in the queue.
    patience: Duration,
    /// The log process did not read in time.
    is_late: AtomicBool,
    /// The number of the last flush. One thread waits for its answer at a time.
    flushed: Mutex<u64>,
}

impl Way {
    pub(super) fn new(socket: OwnedFd, patience: Duration) -> io::Result<Self> {
        limit_wait(&socket, patience)?;
        Ok(Self {
            socket: RwLock::new(Arc::new(socket)),
            patience,
            is_late: AtomicBool::new(false),
            flushed: Mutex::default(),
        })
    }

    pub(super) fn use_socket(&self, socket: OwnedFd) -> io::Result<()> {
        limit_wait(&socket, self.patience)?;
        *self.socket.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(socket);
        Ok(())
    }

    /// Sends a message from these parts, and waits for the log process unless it is late already.
    pub(super) fn line(&self, parts: &[&[u8]]) -> io::Result<()> {
        let waits = match self.is_late.load(Ordering::Relaxed) {
            true => SendFlags::DONTWAIT,
            false => SendFlags::empty(),
        };
        let socket = self.socket();
        let message: Vec<_> = parts.iter().map(|part| IoSlice::new(part)).collect();
        let flags = SendFlags::NOSIGNAL | waits;
        let sent = retry_on_intr(|| {
            let mut no_descriptors = SendAncillaryBuffer::default();
            rustix::net::sendmsg(&*socket, &message, &mut no_descriptors, flags)
        });
        self.is_late.store(sent.is_err(), Ordering::Relaxed);
        Ok(sent.map(drop)?)
    }

    /// Waits until all messages before were processed. The answer to an earlier flush, which came too late, is not taken for the one to this.
    pub(super) fn flush(&self) -> io::Result<()> {
        let mut flushed = lock(&self.flushed);
        *flushed += 1;
        let question = number(Content::Flush, *flushed);
        let deadline = Instant::now() + WRITTEN;
        self.send_by(deadline, &question, &[])?;
        let socket = self.socket();
        let mut answer = Number::default();
        loop {
            if !readable(&socket, deadline.saturating_duration_since(Instant::now()))? {
                return Err(io::ErrorKind::TimedOut.into());
            }
            match receive(&*socket, &mut answer, &mut Vec::new())? {
                Received::Message(_) if answer == question => return Ok(()),
                Received::Message(_) => {}
                Received::End => return Err(io::ErrorKind::BrokenPipe.into()),
            }
        }
    }

    /// Sends a descriptor with this message, and waits as long as for a flush.
    pub(super) fn pass(&self, message: &[u8], descriptor: BorrowedFd<'_>) -> io::Result<()> {
        self.send_by(Instant::now() + WRITTEN, message, &[descriptor])
    }

    fn send_by(
        &self,
        deadline: Instant,
        message: &[u8],
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        loop {
            match send(&*self.socket(), message, descriptors) {
                // Each attempt waits for a part of the time.
                Err(Errno::AGAIN) if Instant::now() < deadline => {}
                sent => return Ok(sent?),
            }
        }
    }

    fn socket(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.socket.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Also makes room for the longest message, as far as the limits of the machine allow.
fn limit_wait(socket: &OwnedFd, patience: Duration) -> io::Result<()> {
    let _ = set_socket_send_buffer_size(socket, 2 * LONGEST);
    Ok(set_socket_timeout(socket, Timeout::Send, Some(patience))?)
}

#[cfg(test)]
mod tests {
    use gridhaul_accounts::socket::pair;

    use super::*;

    #[test]
    fn a_late_answer_is_not_taken_for_the_next_one() {
        let (here, there) = pair().expect("sockets");
        let way = Way::new(here, Duration::from_secs(1)).expect("a way");
        send(&there, &number(Content::Flush, 0), &[]).expect("sent");
        way.flush().expect_err("only a late answer came");
    }
}
