//! Channels: ordered byte streams that can also move ranges of files.

use std::borrow::Cow;
use std::fmt;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use crate::static_name::static_name;
use crate::{ChannelError, Detail, FileRange, Operation};

/// An established data connection.
///
/// A receiver can distinguish three kinds of ends:
///
/// - After [`Channel::finish`] of one end, the other end receives all bytes and then [`Received::EndOfStream`], and may still
///   send.
/// - After an orderly close (drop, finished or not), a peer that still sends gets [`ChannelError::PeerClosed`] or
///   [`ChannelError::Aborted`].
/// - After [`Channel::abort`], the other end gets [`ChannelError::Aborted`], even if bytes were still in flight.
///
/// A blocked call ends within 100 ms of [`crate::Cancel::cancel`]. After an error, call only [`Channel::abort`] or drop the
/// channel.
pub trait Channel: Send + fmt::Debug {
    /// Whether [`Channel::establish`] may have to wait for the peer.
    fn has_handshake(&self) -> bool {
        false
    }

    /// Makes the driver's own handshake, if it has one. Call it once, before any other call.
    ///
    /// # Errors
    ///
    /// When the peer does not speak the driver's protocol, closes the connection, or does not answer before the deadline.
    fn establish(&mut self, operation: &Operation<'_>) -> Result<(), ChannelError> {
        let _ = operation;
        Ok(())
    }

    /// Sends all of `head`, then all of `body`.
    ///
    /// # Errors
    ///
    /// When the driver did not accept all bytes. The number that it accepted is unknown.
    fn send(
        &mut self,
        head: &[u8],
        body: Body<'_>,
        operation: &Operation<'_>,
    ) -> Result<(), ChannelError>;

    /// Whether `bytes` bytes could be sent now without waiting for the peer. False if the driver cannot tell.
    fn takes_at_once(&self, _bytes: usize) -> bool {
        false
    }

    /// Whether bytes of the peer wait, so that the next receive call does not. `false` if that cannot be seen cheaply.
    fn has_input(&self) -> bool {
        false
    }

    /// Receives at least one byte into `buffer`, or the end of the stream.
    ///
    /// `buffer` must not be empty: an empty one returns [`Received::EndOfStream`].
    ///
    /// # Errors
    ///
    /// When the channel failed before a byte arrived.
    fn receive(
        &mut self,
        buffer: &mut [u8],
        operation: &Operation<'_>,
    ) -> Result<Received, ChannelError>;

    /// Receives up to `range.length` bytes into a file, and returns their number: less than `range.length` only if the stream
    /// ended.
    ///
    /// # Errors
    ///
    /// When the channel or the file failed. The bytes written before stay in the file, and `range.moved` counts them.
    fn receive_into(
        &mut self,
        range: FileRange<'_>,
        operation: &Operation<'_>,
    ) -> Result<u64, ChannelError> {
        receive_through_memory(self, range, operation)
    }

    /// Ends the sending direction: the peer receives the end of the stream.
    ///
    /// # Errors
    ///
    /// When bytes that were sent before could not be passed on.
    fn finish(&mut self, operation: &Operation<'_>) -> Result<(), ChannelError>;

    /// Whether the peer's host has acknowledged every byte that was sent, even if the channel has failed since. False if the
    /// driver cannot tell.
    fn is_delivered(&self) -> bool {
        false
    }

    /// Resets the channel, so that the peer notices that the stream is incomplete.
    fn abort(&mut self);

    /// The TCP socket of the channel, if the channel's bytes are exactly those of the socket. A transform may then have the
    /// kernel do its work on the socket, and send plaintext through the channel.
    fn tcp_socket(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// The address of the peer.
    fn peer(&self) -> SocketAddr;

    /// Values that the driver chose for this channel, for the log.
    fn info(&self) -> ChannelInfo;

    /// Shows the channel's state to other threads while it is used. `None` if no detail of the driver changes.
    fn watch(&self) -> Option<Arc<dyn Watch>> {
        None
    }
}

/// The state of a channel that another thread uses.
///
/// The channel's own thread must not pay for it: counters are atomic, or the kernel keeps them.
pub trait Watch: Send + Sync + fmt::Debug {
    /// The details of [`Channel::info`] that change while the channel is used, and amounts that are of interest only then. Empty
    /// once the channel is closed. Does not wait for the channel's thread.
    fn details(&self) -> Vec<Detail>;
}

/// The bytes after the head in [`Channel::send`].
#[derive(Debug)]
pub enum Body<'a> {
    /// Bytes in memory, possibly none.
    Memory(&'a [u8]),
    /// A range of an open file, which the driver moves in its most efficient way.
    File(FileRange<'a>),
}

/// The result of [`Channel::receive`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    /// The number of bytes at the start of the buffer.
    Bytes(NonZeroUsize),
    /// The peer has finished sending.
    EndOfStream,
}

/// Values that a driver chose for a channel, for the transfer log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChannelInfo {
    /// The kernel's send or receive buffer in bytes, 0 if the driver has none.
    pub buffer_bytes: usize,
    /// How the driver moves bytes, if it has several methods. Valid once the channel has moved some.
    pub movement: Option<Movement>,
    /// Further values, in the order in which they are shown.
    pub details: Vec<Detail>,
}

/// The method that a driver chose for moving bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Movement {
    /// The method, by the name of its system call: `read`, `sendfile`, `splice`.
    pub way: &'static str,
    /// The reason for the choice, in words for an administrator.
    pub reason: Cow<'static, str>,
}

impl Movement {
    /// The method that a driver on another machine chose. `None` if it has no valid name, or if the process has seen too many
    /// names.
    pub fn received(way: &str, reason: String) -> Option<Self> {
        Some(Self {
            way: static_name(way)?,
            reason: reason.into(),
        })
    }
}

/// The default of [`Channel::receive_into`]. Each piece is written when it arrives, so that the bytes of a slow peer are visible
/// and safe at once.
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
