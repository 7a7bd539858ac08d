//! Sending with kernel TLS, and waiting until records have reached TCP.
//!
//! A non-blocking socket may accept plaintext, make a record of it, and have no space for the whole record. The rest of the
//! record is sent when there is space, but dropped if the socket is shut down or closed before. So a send ends only when TCP
//! has queued the full length of all records.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use gridhaul_security::tls::{Direction, RecordCipher, RecordKeys, RecordVersion};
use gridhaul_stack::{ChannelError, Operation};

use super::socket;

/// The pause while the kernel moves the rest of a record into free space.
const PAUSE: Duration = Duration::from_micros(200);

/// The sending direction of a connection whose records the kernel seals.
#[derive(Debug)]
pub(crate) struct KernelSender {
    cipher: RecordCipher,
    /// The bytes that protection adds to a record.
    overhead: u64,
    /// The bytes that TCP had queued before kernel TLS began.
    start: u64,
    /// The content of all records since then, in bytes.
    content: u64,
    /// The sequence number of the first record with the present keys.
    first: u64,
    /// The number of records with earlier keys.
    earlier: u64,
}

impl KernelSender {
    /// Gives the kernel the keys. TCP must have queued all earlier bytes.
    pub(crate) fn begin(socket: BorrowedFd<'_>, keys: &RecordKeys<'_>) -> io::Result<Self> {
        socket::attach(socket)?;
        let start = socket::tcp_progress(socket)?.bytes;
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

    /// Counts content that the kernel has accepted.
    pub(crate) fn note(&mut self, content: u64) {
        self.content += content;
    }

    /// Waits until TCP has all records. No record may be open (`MSG_MORE`).
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
        let progress = socket::tcp_progress(socket).map_err(ChannelError::Network)?;
        if progress.is_closed {
            return Err(ChannelError::Aborted);
        }
        let records = self.records(socket).map_err(ChannelError::Network)?;
        let length = self.content + (self.earlier + records) * self.overhead;
        Ok(progress.bytes - self.start >= length)
    }

    /// The number of records that the kernel has made with the present keys.
    fn records(&self, socket: BorrowedFd<'_>) -> io::Result<u64> {
        Ok(socket::next_record(socket, self.cipher)? - self.first)
    }
}
