//! Sees to it that what was sent has left the kernel's TLS.
//!
//! A socket that does not block may take plaintext, make a record of it, and find no room for all of the record. The
//! rest goes when there is room, or never: it is thrown away when the sending half is shut down or the socket closed. So a
//! call that sends ends when TCP has as many bytes as the records are long.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use gridhaul_security::tls::{Direction, RecordCipher, RecordKeys, RecordVersion};
use gridhaul_stack::{ChannelError, Operation};

use super::socket;

/// How long the kernel may need from when there is room to when it has used it.
const PAUSE: Duration = Duration::from_micros(200);

/// What the kernel was given to send on a connection whose records it makes.
#[derive(Debug)]
pub(crate) struct KernelSender {
    cipher: RecordCipher,
    /// What protection adds to a record.
    overhead: u64,
    /// Where TCP was at the beginning.
    start: u64,
    /// The content of all records since then.
    content: u64,
    /// The number of the first record with the keys of now.
    first: u64,
    /// How many records had earlier keys.
    earlier: u64,
}

impl KernelSender {
    /// Gives the kernel the keys, when everything before was handed to TCP.
    pub(crate) fn begin(socket: BorrowedFd<'_>, keys: &RecordKeys<'_>) -> io::Result<Self> {
        socket::attach(socket)?;
        let start = socket::taken_by_tcp(socket)?.bytes;
        socket::set_keys(socket, Direction::Sending, keys)?;
        Ok(Self {
            cipher: keys.cipher,
            overhead: match keys.version {
                // RFC 5288 3: header, explicit nonce, tag.
                RecordVersion::Tls12 => 5 + 8 + 16,
                // RFC 8446 5.2: header, type, tag.
                RecordVersion::Tls13 => 5 + 1 + 16,
            },
            start,
            content: 0,
            first: keys.sequence,
            earlier: 0,
        })
    }

    /// Gives the kernel other keys.
    pub(crate) fn change(
        &mut self,
        socket: BorrowedFd<'_>,
        keys: &RecordKeys<'_>,
    ) -> io::Result<()> {
        self.earlier += self.records(socket)?;
        socket::set_keys(socket, Direction::Sending, keys)?;
        self.first = keys.sequence;
        Ok(())
    }

    /// Says that the kernel has taken so much content.
    pub(crate) fn note(&mut self, content: u64) {
        self.content += content;
    }

    /// Waits until TCP has everything. No record may be open (`MSG_MORE`).
    pub(crate) fn flush(
        &self,
        socket: BorrowedFd<'_>,
        operation: &Operation<'_>,
    ) -> Result<(), ChannelError> {
        loop {
            if self.is_flushed(socket)? {
                return Ok(());
            }
            operation.wait_writable(socket)?;
            if self.is_flushed(socket)? {
                return Ok(());
            }
            operation.sleep(PAUSE)?;
        }
    }

    fn is_flushed(&self, socket: BorrowedFd<'_>) -> Result<bool, ChannelError> {
        let taken = socket::taken_by_tcp(socket).map_err(ChannelError::Network)?;
        if taken.is_closed {
            return Err(ChannelError::Aborted);
        }
        let records = self.records(socket).map_err(ChannelError::Network)?;
        let length = self.content + (self.earlier + records) * self.overhead;
        Ok(taken.bytes - self.start >= length)
    }

    /// How many records the kernel has made with the keys of now.
    fn records(&self, socket: BorrowedFd<'_>) -> io::Result<u64> {
        Ok(socket::next_record(socket, self.cipher)? - self.first)
    }
}
