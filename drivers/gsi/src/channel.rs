//! A channel whose bytes go in TLS records.
//!
//! Files are read into the caller's scratch memory and sealed from there into one buffer of records,
//! which is sent with one call; records are received into the scratch memory, opened where they are, and
//! written to the file from there. So a byte is touched by the cipher and by the kernel only, and a
//! channel needs little memory of its own.

use std::fmt;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::atomic::Ordering;

use gridhaul_security::tls::{Direction, MAX_RECORD, RecordKeys, wrapped_length};
use gridhaul_stack::{Body, Channel, ChannelError, ChannelInfo, FileRange, Operation, Received};

use crate::incoming::{Incoming, MAX_SEALED, whole_record};
use crate::kernel::Offload;
use crate::outgoing::Outgoing;
use crate::pieces::Pieces;
use crate::record::protocol;

/// One end of a TLS connection, without its I/O.
pub(crate) trait Engine: Send {
    /// Goes on with the handshake, after a whole record from the peer or, to begin, none. Appends what
    /// must be sent, also when it fails.
    fn advance(&mut self, record: &[u8], output: &mut Vec<u8>) -> Result<(), String>;

    /// Whether the handshake goes on.
    fn is_handshaking(&self) -> bool;

    /// Opens a whole record where it is, after the handshake: the place of its content. Appends what
    /// must be sent.
    fn open(&mut self, record: &mut [u8], output: &mut Vec<u8>) -> Result<Range<usize>, String>;

    /// Puts `plaintext` into `records`, which has room for [`wrapped_length`], as records: how long
    /// they are.
    fn seal(&mut self, plaintext: &[u8], records: &mut [u8]) -> Result<usize, String>;

    /// Whether the peer said that it will send no more.
    fn is_closed_by_peer(&self) -> bool;

    /// Appends the words that say that we will send no more.
    fn close(&mut self, output: &mut Vec<u8>);

    /// The keys of a direction, if the kernel may have them and has them not. Once [`Engine::release_keys`] was said,
    /// records of that direction are bare here.
    fn keys(&self, _direction: Direction) -> Option<RecordKeys<'_>> {
        None
    }

    /// Says that the kernel has the keys of a direction.
    fn release_keys(&mut self, _direction: Direction) {}

    /// Counts records that the kernel has made. Appends what must be sent.
    fn note_sealed(&mut self, _records: u64, _output: &mut Vec<u8>) -> Result<(), String> {
        Ok(())
    }
}

/// How a direction ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// With the connection below.
    Bare,
    /// With a close_notify (RFC 8446 6.1), and with the connection below.
    Notified,
}

/// A protected channel.
pub(crate) struct TlsChannel<E> {
    pub(crate) inner: Box<dyn Channel>,
    pub(crate) engine: E,
    driver: &'static str,
    end: End,
    pub(crate) incoming: Incoming,
    /// What the engine has to say besides the data.
    pub(crate) answers: Vec<u8>,
    outgoing: Outgoing,
    /// What the kernel does.
    pub(crate) offload: Offload,
    /// The engine cannot go on; the channel was in order before.
    pub(crate) has_failed: bool,
    /// All data had been acknowledged when we said that no more would come.
    was_delivered: bool,
}

/// How much is sealed before it is sent: few system calls, and all of it still in the processor's cache.
const BATCH_BYTES: usize = 8 * FULL_RECORD;

/// How much is received for a file with one call.
const MAX_BATCH: usize = 64 * FULL_RECORD;

/// The content of a record of bulk data.
pub(crate) const FULL_RECORD: usize = 1 << 14;

/// What protection adds to a record, at most.
const RECORD_OVERHEAD: usize = 32;

pub(crate) const CUT: &str = "the connection ended in the middle of a TLS record";

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
        let room = self.outgoing.room(wrapped_length(plaintext.len()));
        match self.engine.seal(plaintext, room) {
            Ok(count) => {
                self.outgoing.fill(count);
                Ok(())
            }
            Err(reason) => Err(self.fail(reason)),
        }
    }

    /// Sends what is ready.
    pub(crate) fn flush(&mut self, operation: &Operation<'_>) -> Result<(), ChannelError> {
        if self.offload.sending.is_some() {
            return self.answer_by_kernel(operation);
        }
        let records = self.outgoing.records();
        let sent = if self.answers.is_empty() && records.is_empty() {
            Ok(())
        } else {
            // The engine answers while we receive, when no records wait.
            self.inner
                .send(&self.answers, Body::Memory(records), operation)
        };
        self.answers.clear();
        self.outgoing.clear();
        sent
    }

    /// Opens the next record, if it is whole.
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
        // A change of keys may ask for an answer (RFC 8446 4.6.3).
        self.flush(operation)?;
        Ok(true)
    }

    /// A record that cannot be opened: the peer is told, if it listens.
    pub(crate) fn refuse(&mut self, reason: String, operation: &Operation<'_>) -> ChannelError {
        let _ = self.flush(operation);
        self.fail(reason)
    }

    /// Receives more records, or a part of one; `false` at the end of the stream.
    fn fill(&mut self, operation: &Operation<'_>) -> Result<bool, ChannelError> {
        match self.inner.receive(self.incoming.space(), operation)? {
            Received::Bytes(count) => {
                self.incoming.received(count.get());
                Ok(true)
            }
            Received::EndOfStream if self.incoming.is_between_records() => Ok(false),
            Received::EndOfStream => Err(self.fail(CUT)),
        }
    }

    /// Makes sure that something is opened; `false` at the end of the stream. Where RFC 8446 6.1 wants
    /// a close_notify, programs of this field and FTP clients leave it out: a peer that is cut off is
    /// told from one that is done by what was announced, as without TLS.
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

    /// Receives records into the scratch memory of a file range and writes what is in them to the file,
    /// from `done` bytes after its start on: how many bytes, or `None` at the end of the stream.
    fn receive_batch(
        &mut self,
        range: &mut FileRange<'_>,
        done: u64,
        operation: &Operation<'_>,
    ) -> Result<Option<u64>, ChannelError> {
        if self.offload.is_receiving {
            return self.receive_batch_by_kernel(range, done, operation);
        }
        let wanted = range.length - done;
        let Some(filled) = self.fill_scratch(range.scratch, wanted, operation)? else {
            return Ok(None);
        };
        let mut batch = Batch {
            next: 0,
            left: wanted,
            unused: 0..0,
        };
        let writer = range.writer();
        let mut written = done;
        let mut pieces = Pieces::new();
        loop {
            let records = &mut range.scratch[..filled];
            let opened = self.open_batch(records, &mut batch, &mut pieces);
            // What was opened before a record that is wrong is right.
            written += pieces.write(range.scratch, &writer, written)?;
            match opened {
                Ok(true) => {}
                Ok(false) => break,
                Err(reason) => return Err(self.refuse(reason, operation)),
            }
        }
        let sealed = &range.scratch[batch.next..filled];
        self.incoming.keep(&range.scratch[batch.unused], sealed);
        self.flush(operation)?;
        Ok(Some(wanted - batch.left))
    }

    /// Puts what is there into the scratch memory, and receives more unless a record is whole: how many
    /// bytes there are, or `None` at the end of the stream.
    fn fill_scratch(
        &mut self,
        scratch: &mut [u8],
        wanted: u64,
        operation: &Operation<'_>,
    ) -> Result<Option<usize>, ChannelError> {
        let filled = self.incoming.move_sealed(scratch);
        let first = whole_record(&scratch[..filled]).map_err(|reason| self.fail(reason))?;
        if first.is_some() {
            return Ok(Some(filled));
        }
        // As much as is needed, so that little is left over.
        let wanted = usize::try_from(wanted).map_or(MAX_BATCH, |wanted| wanted.min(MAX_BATCH));
        let records = wanted + (wanted / FULL_RECORD + 1) * RECORD_OVERHEAD;
        let end = records.clamp(MAX_RECORD, scratch.len());
        match self.inner.receive(&mut scratch[filled..end], operation)? {
            Received::Bytes(count) => Ok(Some(filled + count.get())),
            Received::EndOfStream if filled == 0 => Ok(None),
            Received::EndOfStream => Err(self.fail(CUT)),
        }
    }

    /// Opens whole records until there is no other, enough is opened, or the pieces are full: whether
    /// there may be more to open.
    fn open_batch(
        &mut self,
        records: &mut [u8],
        batch: &mut Batch,
        pieces: &mut Pieces,
    ) -> Result<bool, String> {
        while batch.left > 0 && !self.engine.is_closed_by_peer() {
            if pieces.is_full() {
                return Ok(true);
            }
            let Some(length) = whole_record(&records[batch.next..])? else {
                break;
            };
            let record = &mut records[batch.next..batch.next + length];
            let content = self.engine.open(record, &mut self.answers)?;
            let (start, end) = (batch.next + content.start, batch.next + content.end);
            let used = at_most(content.len(), batch.left);
            pieces.add(start..start + used);
            batch.next += length;
            batch.left -= used as u64;
            batch.unused = start + used..end;
        }
        Ok(false)
    }
}

/// Records in scratch memory.
struct Batch {
    /// Where the next record begins.
    next: usize,
    /// How many bytes of content are still wanted.
    left: u64,
    /// What was opened beyond that.
    unused: Range<usize>,
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
        if self.end == End::Notified {
            // A peer that has closed resets the connection when close_notify comes, and acknowledges no byte of that.
            self.was_delivered = self.inner.is_delivered();
            self.engine.close(&mut self.answers);
            self.flush(operation)?;
        }
        self.inner.finish(operation)
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
}

fn at_most(length: usize, limit: u64) -> usize {
    usize::try_from(limit).map_or(length, |limit| length.min(limit))
}

/// Without keys and bytes.
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
