//! The way of log lines to the process that writes them.
//!
//! A process that has a log file open can cut and rewrite it: `O_APPEND` can be cleared, and `ftruncate` and `fallocate` ignore
//! it. So the processes that talk to clients have no log file. They send each line as one message to the log process.
//!
//! A sender waits for a slow log process for a bounded time, and only once: from then on lines are lost, and counted, until
//! the log process reads again.

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use gridhaul_accounts::socket::{Received, readable, receive, send};
use rustix::io::retry_on_intr;
use rustix::net::sockopt::{Timeout, set_socket_send_buffer_size, set_socket_timeout};
use rustix::net::{SendAncillaryBuffer, SendFlags};

/// The longest message. Longer lines are cut.
pub(super) const LONGEST: usize = 128 * 1024;

/// The end of a line that was cut.
const CUT: &[u8] = b" (cut)\n";

/// The time that a sender waits for the log process.
const WAIT: Duration = Duration::from_secs(2);

/// The time that a sender waits until its lines are in the files.
const WRITTEN: Duration = Duration::from_secs(5);

/// A log file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogFile {
    Log,
    Audit,
    Transfers,
}

impl LogFile {
    pub(crate) const ALL: [Self; 3] = [Self::Log, Self::Audit, Self::Transfers];
}

/// The content of a message, by its first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    /// A line for a file.
    Line(LogFile),
    /// The descriptor with which to continue a file after a rotation.
    Replacement(LogFile),
    /// A request for an answer when all messages before it were processed.
    Flush,
}

impl Content {
    const REPLACEMENT: u8 = 16;
    const FLUSH: u8 = 32;

    fn byte(self) -> u8 {
        match self {
            Self::Line(file) => file as u8,
            Self::Replacement(file) => Self::REPLACEMENT + file as u8,
            Self::Flush => Self::FLUSH,
        }
    }

    pub(super) fn of(byte: u8) -> Option<Self> {
        let files = LogFile::ALL.into_iter();
        let contents = files.flat_map(|file| [Self::Line(file), Self::Replacement(file)]);
        let mut contents = contents.chain([Self::Flush]);
        contents.find(|content| content.byte() == byte)
    }
}

/// The connection of this process to the log process.
#[derive(Debug)]
pub(crate) struct LogWriter {
    socket: RwLock<Arc<OwnedFd>>,
    /// The log process did not read in time.
    is_late: AtomicBool,
}

impl LogWriter {
    /// # Errors
    ///
    /// When the time limit cannot be set.
    pub(crate) fn new(socket: OwnedFd) -> io::Result<Self> {
        limit_wait(&socket)?;
        Ok(Self {
            socket: RwLock::new(Arc::new(socket)),
            is_late: AtomicBool::new(false),
        })
    }

    /// Continues with the socket of this process, after a fork.
    ///
    /// # Errors
    ///
    /// As for [`LogWriter::new`].
    pub(crate) fn use_socket(&self, socket: OwnedFd) -> io::Result<()> {
        limit_wait(&socket)?;
        *self.socket.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(socket);
        Ok(())
    }

    /// Sends a line. A client must not be able to have a record lost by a long name.
    ///
    /// # Errors
    ///
    /// When the log process has ended or does not read: the line is lost.
    pub(super) fn append(&self, file: LogFile, line: &[u8]) -> io::Result<()> {
        let (line, cut) = match line.len() < LONGEST {
            true => (line, &b""[..]),
            false => (&line[..LONGEST - 1 - CUT.len()], CUT),
        };
        let waits = match self.is_late.load(Ordering::Relaxed) {
            true => SendFlags::DONTWAIT,
            false => SendFlags::empty(),
        };
        let socket = self.socket();
        let kind = [Content::Line(file).byte()];
        let message = [kind.as_slice(), line, cut].map(IoSlice::new);
        let flags = SendFlags::NOSIGNAL | waits;
        let sent = retry_on_intr(|| {
            let mut no_descriptors = SendAncillaryBuffer::default();
            rustix::net::sendmsg(&*socket, &message, &mut no_descriptors, flags)
        });
        self.is_late.store(sent.is_err(), Ordering::Relaxed);
        Ok(sent.map(drop)?)
    }

    /// Makes the log process continue a file in this one, and waits until it does. Only the login process's socket may.
    ///
    /// # Errors
    ///
    /// When the log process has ended or does not answer in time.
    pub(super) fn replace(&self, file: LogFile, opened: &File) -> io::Result<()> {
        self.send(Content::Replacement(file), &[opened.as_fd()])?;
        self.flush()
    }

    /// Waits, for a bounded time, until all lines that this process has sent are in the files. One thread at a time.
    ///
    /// # Errors
    ///
    /// When the log process has ended or does not answer in time.
    pub(crate) fn flush(&self) -> io::Result<()> {
        self.send(Content::Flush, &[])?;
        let socket = self.socket();
        if !readable(&socket, WRITTEN)? {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match receive(&*socket, &mut [0], &mut Vec::new())? {
            Received::Message(_) => Ok(()),
            Received::End => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    fn send(&self, content: Content, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        Ok(send(&*self.socket(), &[content.byte()], descriptors)?)
    }

    fn socket(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.socket.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Also makes room for the longest message, as far as the limits of the machine allow.
fn limit_wait(socket: &OwnedFd) -> io::Result<()> {
    let _ = set_socket_send_buffer_size(socket, 2 * LONGEST);
    Ok(set_socket_timeout(socket, Timeout::Send, Some(WAIT))?)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use gridhaul_accounts::socket::pair;

    use super::*;

    #[test]
    fn a_log_process_that_does_not_read_is_waited_for_once() {
        /// More than any queue of a socket holds.
        const MANY: usize = 5000;

        let (here, _there) = pair().expect("sockets");
        let writer = LogWriter::new(here).expect("a writer");
        let begun = Instant::now();
        let line = [b'x'; 200];
        let lost = (0..MANY).filter(|_| writer.append(LogFile::Audit, &line).is_err());
        assert!(lost.count() > 0);
        assert!(begun.elapsed() < 3 * WAIT, "{:?}", begun.elapsed());
    }

    #[test]
    fn a_long_line_is_cut_and_not_lost() {
        let (here, there) = pair().expect("sockets");
        let writer = LogWriter::new(here).expect("a writer");
        let mut buffer = vec![0; LONGEST];
        for length in [LONGEST - 1, LONGEST, 3 * LONGEST] {
            let line = vec![b'x'; length];
            writer.append(LogFile::Audit, &line).expect("sent");
            let received = receive(&there, &mut buffer, &mut Vec::new()).expect("received");
            assert!(
                matches!(received, Received::Message(LONGEST)),
                "{received:?}"
            );
            assert_eq!(buffer.ends_with(CUT), length >= LONGEST);
        }
    }

    #[test]
    fn a_line_is_lost_when_the_log_process_has_ended() {
        let (here, there) = pair().expect("sockets");
        let writer = LogWriter::new(here).expect("a writer");
        drop(there);
        writer
            .append(LogFile::Log, b"x\n")
            .expect_err("nothing reads");
        writer.flush().expect_err("nothing answers");
    }

    #[test]
    fn each_content_has_a_byte_of_its_own() {
        for byte in 0..=u8::MAX {
            assert!(Content::of(byte).is_none_or(|content| content.byte() == byte));
        }
        assert_eq!(Content::of(Content::FLUSH), Some(Content::Flush));
    }
}
