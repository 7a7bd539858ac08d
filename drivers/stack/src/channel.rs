//! A channel: an ordered byte stream with extents.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;

use crate::{ChannelError, Detail, Operation, Sparse, Turn};

/// One established data connection.
///
/// The three ways in which a stream ends are different things, and a receiver can tell them apart:
/// after [`Channel::finish`] of one end the other receives all bytes and then
/// [`Received::EndOfStream`], and may still send; after an orderly drop of a finished channel a peer
/// that still sends gets [`ChannelError::PeerClosed`] or [`ChannelError::Aborted`]; after
/// [`Channel::abort`] the other end gets [`ChannelError::Aborted`], whatever was still under way.
/// Dropping a channel that was not finished is an orderly close.
///
/// A channel blocked in any call ends within 100 ms of [`crate::Cancel::cancel`]. After an error the
/// only sensible calls are [`Channel::abort`] and drop.
pub trait Channel: Send + fmt::Debug {
    /// Whether [`Channel::establish`] may have to wait for the peer.
    fn has_handshake(&self) -> bool {
        false
    }

    /// Does the driver's own handshake, where it has one, once and before anything else.
    ///
    /// # Errors
    ///
    /// When the peer does not speak the driver's protocol, goes away, or is silent until the deadline.
    fn establish(&mut self, operation: &Operation<'_>) -> Result<(), ChannelError> {
        let _ = operation;
        Ok(())
    }

    /// Sends all of `head`, then all of `body`.
    ///
    /// # Errors
    ///
    /// When not everything was taken by the driver; how much was is unknown.
    fn send(
        &mut self,
        head: &[u8],
        body: Body<'_>,
        operation: &Operation<'_>,
    ) -> Result<(), ChannelError>;

    /// Whether so many bytes could be sent now without waiting for the peer. A driver that does not know
    /// says no.
    fn takes_at_once(&self, _bytes: usize) -> bool {
        false
    }

    /// Receives at least one byte into `buffer`, or the end of the stream.
    ///
    /// An empty `buffer` is the caller's mistake and yields [`Received::EndOfStream`].
    ///
    /// # Errors
    ///
    /// When the channel failed before a byte arrived.
    fn receive(
        &mut self,
        buffer: &mut [u8],
        operation: &Operation<'_>,
    ) -> Result<Received, ChannelError>;

    /// Receives up to `range.length` bytes straight into a file, and returns how many came: fewer
    /// only if the stream ended before.
    ///
    /// # Errors
    ///
    /// When the channel or the file failed. What was written before stays in the file, and
    /// `range.moved` tells how much that is.
    fn receive_into(
        &mut self,
        range: FileRange<'_>,
        operation: &Operation<'_>,
    ) -> Result<u64, ChannelError> {
        receive_through_memory(self, range, operation)
    }

    /// Ends the sending direction: the peer will see the end of the stream.
    ///
    /// # Errors
    ///
    /// When bytes sent before could not be handed over.
    fn finish(&mut self, operation: &Operation<'_>) -> Result<(), ChannelError>;

    /// Whether the peer's host has acknowledged every byte that was sent, also when the channel has failed since. A
    /// driver that does not know says no.
    fn is_delivered(&self) -> bool {
        false
    }

    /// Throws the channel away, so that the peer notices that the stream is not whole.
    fn abort(&mut self);

    /// The TCP socket whose bytes are those of the channel, and nothing else. A transform may tell the kernel to do its
    /// work there, and has the channel move what is then to be sent.
    fn tcp_socket(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Who is at the other end.
    fn peer(&self) -> SocketAddr;

    /// What the driver chose for this channel, for the log.
    fn info(&self) -> ChannelInfo;
}

/// What follows the head in [`Channel::send`].
#[derive(Debug)]
pub enum Body<'a> {
    /// Bytes in memory; may be empty.
    Memory(&'a [u8]),
    /// A range of an open file; the driver moves it in the best way it has.
    File(FileRange<'a>),
}

/// A range of an open file.
#[derive(Debug)]
pub struct FileRange<'a> {
    /// The file, open for reading or writing as the call needs it.
    pub file: BorrowedFd<'a>,
    /// The same file opened with `O_DIRECT`, for drivers that asked for it by
    /// [`crate::Transport::wants_direct`] and storage that can.
    pub direct: Option<BorrowedFd<'a>>,
    /// Where the range starts, in bytes.
    pub offset: u64,
    /// How long the range is, in bytes.
    pub length: u64,
    /// Memory for a driver that moves the range by reading and writing; not empty. Its content is
    /// meaningless before and after the call. A longer one means fewer system calls.
    pub scratch: &'a mut [u8],
    /// Grows by the bytes that were moved, while they are moved, also when the call fails later:
    /// received bytes once the file has them, sent bytes once the network has them.
    pub moved: &'a AtomicU64,
    /// Wants to see what is received.
    pub tap: Option<&'a dyn Tap>,
    /// Received zeros stay holes.
    pub sparse: Option<Sparse>,
}

/// Sees received bytes on their way to a file, while they are in the processor's cache.
pub trait Tap: Sync + fmt::Debug {
    /// The file has `bytes` at `offset` now. Called by the writing thread, once for each byte.
    fn written(&self, offset: u64, bytes: &[u8]);
}

impl<'a> FileRange<'a> {
    /// A range without a tap, of a file that is open without `O_DIRECT`.
    pub fn new(
        file: BorrowedFd<'a>,
        offset: u64,
        length: u64,
        scratch: &'a mut [u8],
        moved: &'a AtomicU64,
    ) -> Self {
        Self {
            file,
            direct: None,
            offset,
            length,
            scratch,
            moved,
            tap: None,
            sparse: None,
        }
    }

    /// Whether received bytes must be looked at. A driver that moves bytes past memory does not do so
    /// then.
    pub fn goes_through_memory(&self) -> bool {
        self.tap.is_some() || self.sparse.is_some()
    }

    /// Writes to the range, for drivers that receive through memory.
    pub fn writer(&self) -> RangeWriter<'a> {
        RangeWriter {
            file: self.file,
            offset: self.offset,
            moved: self.moved,
            tap: self.tap,
            sparse: self.sparse,
        }
    }

    /// The error for a file that ends before byte `offset` of it could be read.
    pub fn too_short(&self, offset: u64) -> ChannelError {
        // The end may be far before the place where the read failed.
        let size =
            rustix::fs::fstat(self.file).map_or(offset, |facts| facts.st_size.unsigned_abs());
        ChannelError::FileTooShort {
            end: size.min(offset),
        }
    }

    /// Reads the next piece of the range into `scratch`, for drivers that send files through memory:
    /// the bytes after the first `done` ones, at least one, which must be there to read.
    ///
    /// # Errors
    ///
    /// [`ChannelError::FileTooShort`] when the file ends first, [`ChannelError::File`] when it cannot
    /// be read.
    pub fn read_piece(&mut self, done: u64) -> Result<&[u8], ChannelError> {
        let offset = self.offset.saturating_add(done);
        let wanted = usize::try_from(self.length - done)
            .map_or(self.scratch.len(), |left| left.min(self.scratch.len()));
        loop {
            match rustix::io::pread(self.file, &mut self.scratch[..wanted], offset) {
                Ok(0) => return Err(self.too_short(offset)),
                Ok(count) => return Ok(&self.scratch[..count]),
                Err(Errno::INTR) => {}
                Err(error) => return Err(ChannelError::File(error.into())),
            }
        }
    }
}

/// What [`Channel::receive`] got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    /// So many bytes at the start of the buffer.
    Bytes(NonZeroUsize),
    /// The peer finished its direction; nothing more will come.
    EndOfStream,
}

/// What a driver chose for a channel and the transfer log tells.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChannelInfo {
    /// The kernel's send or receive buffer, in bytes, 0 where the driver has none.
    pub buffer_bytes: usize,
    /// How the driver moves bytes, where it had a choice; asked for when the channel has moved some.
    pub movement: Option<Movement>,
    /// What else the driver tells, in the order in which it is shown.
    pub details: Vec<Detail>,
}

/// One of several ways of moving bytes, as a driver chose it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Movement {
    /// The way, by the name of its system call: `read`, `sendfile`, `splice`.
    pub way: &'static str,
    /// Why it was chosen, in words for an administrator.
    pub reason: Cow<'static, str>,
}

/// The way of [`Channel::receive_into`] for drivers that have no better one. Each piece is written as
/// it comes, so that a slow peer's bytes are seen, and are safe, at once.
fn receive_through_memory<C: Channel + ?Sized>(
    channel: &mut C,
    range: FileRange<'_>,
    operation: &Operation<'_>,
) -> Result<u64, ChannelError> {
    let writer = range.writer();
    let mut done = 0;
    while done < range.length {
        let wanted = usize::try_from(range.length - done)
            .map_or(range.scratch.len(), |left| left.min(range.scratch.len()));
        let count = match channel.receive(&mut range.scratch[..wanted], operation)? {
            Received::Bytes(count) => count.get(),
            Received::EndOfStream => break,
        };
        writer.write(&range.scratch[..count], done)?;
        done += count as u64;
    }
    Ok(done)
}

/// Writes received bytes to their range of a file.
#[derive(Debug, Clone, Copy)]
pub struct RangeWriter<'a> {
    file: BorrowedFd<'a>,
    offset: u64,
    moved: &'a AtomicU64,
    tap: Option<&'a dyn Tap>,
    sparse: Option<Sparse>,
}

impl RangeWriter<'_> {
    /// Writes all of `bytes`, from `done` bytes after the start of the range on.
    ///
    /// # Errors
    ///
    /// [`ChannelError::File`] with the operating system's error.
    pub fn write(&self, bytes: &[u8], done: u64) -> Result<(), ChannelError> {
        let offset = self.offset + done;
        match self.sparse {
            Some(sparse) => sparse.write(self.file, bytes, offset, self.moved)?,
            None => write_all_at(self.file, bytes, offset, self.moved)?,
        }
        if let Some(tap) = self.tap {
            tap.written(offset, bytes);
        }
        Ok(())
    }

    /// Writes all of several pieces behind each other, from `done` bytes after the start of the range
    /// on, with one call if the kernel takes them together. Returns how many bytes they are.
    ///
    /// # Errors
    ///
    /// [`ChannelError::File`] with the operating system's error.
    pub fn write_pieces(&self, pieces: &[IoSlice<'_>], done: u64) -> Result<u64, ChannelError> {
        let offset = self.offset + done;
        if self.sparse.is_some() {
            let mut at = done;
            for piece in pieces {
                self.write(piece, at)?;
                at += piece.len() as u64;
            }
            return Ok(at - done);
        }
        let mut written = loop {
            let _turn = Turn::take(self.file);
            match rustix::io::pwritev(self.file, pieces, offset) {
                Ok(written) => break written,
                Err(Errno::INTR) => {}
                Err(error) => return Err(ChannelError::File(error.into())),
            }
        };
        self.moved.fetch_add(written as u64, Ordering::Release);
        // The kernel may take less, at the end of a disk for example.
        let mut at = offset;
        for piece in pieces {
            let gone = written.min(piece.len());
            written -= gone;
            write_all_at(self.file, &piece[gone..], at + gone as u64, self.moved)?;
            if let Some(tap) = self.tap {
                tap.written(at, piece);
            }
            at += piece.len() as u64;
        }
        Ok(at - offset)
    }
}

/// Writes all of `bytes` to a file at `offset`, counting in `moved` what the file has.
///
/// # Errors
///
/// [`ChannelError::File`] with the operating system's error.
pub fn write_all_at(
    file: BorrowedFd<'_>,
    mut bytes: &[u8],
    mut offset: u64,
    moved: &AtomicU64,
) -> Result<(), ChannelError> {
    while !bytes.is_empty() {
        let _turn = Turn::take(file);
        match rustix::io::pwrite(file, bytes, offset) {
            Ok(0) => return Err(ChannelError::File(io::ErrorKind::WriteZero.into())),
            Ok(written) => {
                bytes = &bytes[written..];
                offset += written as u64;
                moved.fetch_add(written as u64, Ordering::Release);
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(ChannelError::File(error.into())),
        }
    }
    Ok(())
}
