//! A channel: an ordered byte stream with extents.

use std::borrow::Cow;
use std::fmt;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::os::fd::BorrowedFd;

use crate::{ChannelError, Detail, FileRange, Operation};

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
