//! A channel over TLS records.
//!
//! A file is read into the caller's scratch memory and sealed from there into one buffer of records, which is sent with one
//! call. Records are received into the scratch memory, opened in place, and written to the file from there. So only the
//! cipher and the kernel touch a byte, and a channel needs little memory of its own.

mod batch;
mod offloaded;

use std::fmt;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use gridhaul_security::tls::wrapped_length;
use gridhaul_stack::{
    Body, Channel, ChannelError, ChannelInfo, FileRange, Operation, Received, Watch,
};

use crate::engine::Engine;
use crate::incoming::{Incoming, MAX_SEALED};
use crate::kernel::Offload;
use crate::outgoing::Outgoing;
use crate::record::{FULL_RECORD, TRUNCATED, protocol};

/// How a direction ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// By the end of the connection below.
    Bare,
    /// By a close_notify (RFC 8446 6.1) and the end of the connection below.
    Notified,
    /// As `Notified`. The sender then waits for the end of the other direction: if bytes were unread when it closes, its kernel
    /// would reset the connection, and the end of the data could be lost.
    Awaited,
}

/// A protected channel.
pub(crate) struct TlsChannel<E> {
    pub(crate) inner: Box<dyn Channel>,
    pub(crate) engine: E,
    driver: &'static str,
    end: End,
    pub(crate) incoming: Incoming,
    /// Records of the engine that are not data, to be sent.
    pub(crate) answers: Vec<u8>,
    outgoing: Outgoing,
    /// The directions that the kernel protects.
    pub(crate) offload: Offload,
    /// The engine has failed.
    pub(crate) has_failed: bool,
    /// All data had been acknowledged when we sent the close_notify.
    was_delivered: bool,
}

/// The bytes that are sealed before they are sent: enough for few system calls, and small enough for the CPU cache.
const BATCH_BYTES: usize = 8 * FULL_RECORD;

impl<E: Engine> TlsChannel<E> {
    /// A channel after its handshake.
    pub(crate) fn new(inner: Box<dyn Channel>, engine: E, driver: &'static str, end: End) -> Self {
        Self {
            inner,
            engine,
            driver,
            end,
            incoming: Incoming::default(),
            answers: Vec::new(),
            outgoing: Outgoing::default(),
            offload: Offload::default(),
            has_failed: false,
            was_delivered: false,
        }
    }

    pub(crate) fn check(&self, operation: &Operation<'_>) -> Result<(), ChannelError> {
        if self.has_failed {
            return Err(ChannelError::Aborted);
        }
        operation.check()
    }

    pub(crate) fn fail(&mut self, reason: impl Into<String>) -> ChannelError {
        self.has_failed = true;
        protocol(self.driver, reason)
    }

    fn seal(&mut self, plaintext: &[u8]) -> Result<(), ChannelError> {
        let space = self.outgoing.space(wrapped_length(plaintext.len()));
        match self.engine.seal(plaintext, space) {
            Ok(count) => {
                self.outgoing.fill(count);
                Ok(())
            }
            Err(reason) => Err(self.fail(reason)),
        }
    }

    /// Sends the sealed records and the engine's answers.
    pub(crate) fn flush(&mut self, operation: &Operation<'_>) -> Result<(), ChannelError> {
        if self.offload.sending.is_some() {
            return self.answer_by_kernel(operation);
        }
        let records = self.outgoing.records();
        let sent = if self.answers.is_empty() && records.is_empty() {
            Ok(())
        } else {
            // Answers occur while receiving, when no data records are waiting.
            self.inner
                .send(&self.answers, Body::Memory(records), operation)
        };
        self.answers.clear();
        self.outgoing.clear();
        sent
    }

    /// Opens the next record, if it is complete.
    fn open_next(&mut self, operation: &Operation<'_>) -> Result<bool, ChannelError> {
        let record = match self.incoming.record() {
            Ok(Some(record)) => record,
            Ok(None) => return Ok(false),
            Err(reason) => return Err(self.fail(reason)),
        };
        let length = record.len();
        match self.engine.open(record, &mut self.answers) {
            Ok(content) => self.incoming.open(length, &content),
            Err(reason) => return Err(self.refuse(reason, operation)),
        }
        // A key update may request an answer (RFC 8446 4.6.3).
        self.flush(operation)?;
        Ok(true)
    }

    /// Fails because a record cannot be opened, and sends the engine's alert if possible.
    pub(crate) fn refuse(&mut self, reason: String, operation: &Operation<'_>) -> ChannelError {
        let _ = self.flush(operation);
        self.fail(reason)
    }

    /// Receives more bytes; `false` at the end of the stream.
    fn fill(&mut self, operation: &Operation<'_>) -> Result<bool, ChannelError> {
        match self.inner.receive(self.incoming.space(), operation)? {
            Received::Bytes(count) => {
                self.incoming.received(count.get());
                Ok(true)
            }
            Received::EndOfStream if self.incoming.is_between_records() => Ok(false),
            Received::EndOfStream => Err(self.fail(TRUNCATED)),
        }
    }

    /// Receives until the end of the stream, and ignores the bytes. A peer that has reset the connection has ended it, too; the
    /// control channel says whether it has all data.
    fn await_end(&mut self, operation: &Operation<'_>) {
        let mut ignored = [0; 4096];
        while let Ok(Received::Bytes(_)) = self.inner.receive(&mut ignored, operation) {}
    }

    /// Receives until opened bytes are available; `false` at the end of the stream. RFC 8446 6.1 requires a close_notify, but
    /// GridFTP programs and FTP clients do not send it. As without TLS, EOD and ALLO tell an interrupted peer from one
    /// that has finished.
    fn open_some(&mut self, operation: &Operation<'_>) -> Result<bool, ChannelError> {
        if self.offload.is_receiving {
            return self.open_some_by_kernel(operation);
        }
        while self.incoming.opened().is_empty() {
            if self.engine.is_closed_by_peer() {
                return Ok(false);
            }
            if !self.open_next(operation)? && !self.fill(operation)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl<E: Engine> Channel for TlsChannel<E> {
    fn send(
        &mut self,
        head: &[u8],
        body: Body<'_>,
        operation: &Operation<'_>,
    ) -> Result<(), ChannelError> {
        self.check(operation)?;
        if self.offload.sending.is_some() {
            return self.send_by_kernel(head, body, operation);
        }
        self.seal(head)?;
        match body {
            Body::Memory(bytes) => {
                for piece in bytes.chunks(BATCH_BYTES) {
                    self.seal(piece)?;
                    self.flush(operation)?;
                }
            }
            Body::File(mut range) => {
                let (moved, length) = (range.moved, range.length);
                let scratch = range.scratch.len().min(BATCH_BYTES);
                range.scratch = &mut range.scratch[..scratch];
                let mut done = 0;
                while done < length {
                    let piece = range.read_piece(done)?;
                    let count = piece.len() as u64;
                    self.seal(piece)?;
                    self.flush(operation)?;
                    moved.fetch_add(count, Ordering::Release);
                    done += count;
                }
            }
        }
        self.flush(operation)
    }

    fn receive(
        &mut self,
        buffer: &mut [u8],
        operation: &Operation<'_>,
    ) -> Result<Received, ChannelError> {
        self.check(operation)?;
        let is_whole = self.offload.is_receiving && buffer.len() >= FULL_RECORD;
        if is_whole && self.incoming.opened().is_empty() {
            let received = self.receive_by_kernel(buffer, operation)?;
            let count = received.and_then(NonZeroUsize::new);
            return Ok(count.map_or(Received::EndOfStream, Received::Bytes));
        }
        if buffer.is_empty() || !self.open_some(operation)? {
            return Ok(Received::EndOfStream);
        }
        let opened = self.incoming.opened();
        let count = opened.len().min(buffer.len());
        buffer[..count].copy_from_slice(&opened[..count]);
        self.incoming.consume(count);
        Ok(NonZeroUsize::new(count).map_or(Received::EndOfStream, Received::Bytes))
    }

    fn receive_into(
        &mut self,
        mut range: FileRange<'_>,
        operation: &Operation<'_>,
    ) -> Result<u64, ChannelError> {
        self.check(operation)?;
        let writer = range.writer();
        let mut done = 0;
        while done < range.length {
            let left = range.length - done;
            let is_bulk = left >= FULL_RECORD as u64 && range.scratch.len() >= MAX_SEALED;
            if is_bulk && self.incoming.opened().is_empty() && !self.engine.is_closed_by_peer() {
                match self.receive_batch(&mut range, done, operation)? {
                    Some(count) => done += count,
                    None => break,
                }
                continue;
            }
            if !self.open_some(operation)? {
                break;
            }
            let opened = self.incoming.opened();
            let count = at_most(opened.len(), left);
            writer.write(&opened[..count], done)?;
            self.incoming.consume(count);
            done += count as u64;
        }
        Ok(done)
    }

    fn finish(&mut self, operation: &Operation<'_>) -> Result<(), ChannelError> {
        self.check(operation)?;
        if self.end != End::Bare {
            // A peer that has closed its socket answers the close_notify with a reset, and does not acknowledge it.
            self.was_delivered = self.inner.is_delivered();
            self.engine.close(&mut self.answers);
            self.flush(operation)?;
        }
        self.inner.finish(operation)?;
        if self.end == End::Awaited {
            self.await_end(operation);
        }
        Ok(())
    }

    fn abort(&mut self) {
        self.has_failed = true;
        self.inner.abort();
    }

    fn is_delivered(&self) -> bool {
        self.was_delivered || self.inner.is_delivered()
    }

    fn peer(&self) -> SocketAddr {
        self.inner.peer()
    }

    fn info(&self) -> ChannelInfo {
        let mut info = self.inner.info();
        info.details.push(self.offload.detail());
        info
    }

    fn watch(&self) -> Option<Arc<dyn Watch>> {
        self.inner.watch()
    }
}

fn at_most(length: usize, limit: u64) -> usize {
    usize::try_from(limit).map_or(length, |limit| length.min(limit))
}

/// Shows neither keys nor data.
impl<E> fmt::Debug for TlsChannel<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsChannel")
            .field("driver", &self.driver)
            .field("inner", &self.inner)
            .field("end", &self.end)
            .field("has_failed", &self.has_failed)
            .finish_non_exhaustive()
    }
}
