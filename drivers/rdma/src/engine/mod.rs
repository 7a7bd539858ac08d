//! The protocol engine of a channel, without I/O and without a clock.
//!
//! A stream of bytes crosses a *ring*: memory of the receiver to which the sender writes. Byte `n`
//! of the stream is at byte `n` modulo the ring's length. The sender has a ring of the same length
//! with the same layout. The ring is registered and its address exchanged once, when the channel
//! opens.
//!
//! The sender cuts the stream into *pieces* and sends each over one queue pair: WRITEs no larger
//! than the path takes, then a SEND that announces the piece, or one WRITE with immediate data
//! where devices support that. A small piece travels inside the SEND. Pieces on different queue
//! pairs arrive in any order and are delivered in the order of the stream.
//!
//! The receiver returns *credit*: the position up to which it has consumed the stream. The sender
//! writes at most one ring beyond that, so it still has everything that is not consumed. A piece
//! that was lost with its queue pair is written again to the same place.
//!
//! In `mode=get` the receiver fetches: the sender announces pieces in its own ring and the receiver
//! READs them, unless they are so small that they travel inside the announcement. Data that is sent
//! from memory outside the sender's ring still has its place in the receiver's ring.
//!
//! Every message of the peer is validated; the errors name the violation.

mod crawl;
mod exchange;
mod message;
mod pacing;
mod reader;
mod receiver;
mod sender;
mod sources;

pub(crate) use exchange::Exchange;
#[cfg(any(test, fuzzing, feature = "sim"))]
pub(crate) use exchange::Fault;
pub(crate) use message::Message;
#[cfg(any(test, feature = "sim"))]
pub(crate) use pacing::time_of;
pub(crate) use pacing::{Pacer, Path, Rate};
pub(crate) use reader::{Reader, ReaderSettings};
pub(crate) use receiver::Receiver;
pub(crate) use sender::{Sender, SenderSettings};
pub(crate) use sources::Source;

use std::num::NonZeroU64;

use crate::memory::Span;

/// The layout of a stream in a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ring {
    bytes: NonZeroU64,
}

impl Ring {
    pub(crate) fn new(bytes: NonZeroU64) -> Self {
        Self { bytes }
    }

    /// Whether 32 bits identify a position. Valid positions lie within one ring before and one ring
    /// after the consumed position.
    pub(crate) fn fits_immediates(self) -> bool {
        self.bytes() <= 1 << 31
    }

    /// The length of the ring in bytes.
    pub(crate) fn bytes(self) -> u64 {
        self.bytes.get()
    }

    /// The place of `length` bytes of the stream from `start`. They must not cross the end of the
    /// ring.
    pub(crate) fn place(self, start: u64, length: u64) -> Span {
        let offset = start % self.bytes;
        debug_assert!(offset + length <= self.bytes(), "a piece lies in one part");
        let fits = "a ring is memory of this process";
        Span::new(
            usize::try_from(offset).expect(fits),
            usize::try_from(length).expect(fits),
        )
    }

    /// The offsets in the ring of bytes of the stream, which must not cross the end of the ring.
    pub(crate) fn range(self, start: u64, end: u64) -> (u64, u64) {
        let offset = start % self.bytes;
        (offset, offset + (end - start))
    }

    /// How many bytes from `start` on are contiguous in the ring.
    pub(crate) fn contiguous(self, start: u64) -> u64 {
        self.bytes() - start % self.bytes
    }
}

/// The immediate data that announces a piece: the low 32 bits of its position in the stream.
pub(crate) fn immediate(start: u64) -> u32 {
    let [.., a, b, c, d] = start.to_be_bytes();
    u32::from_be_bytes([a, b, c, d])
}

/// The first position from `least` on whose low 32 bits are this number.
fn place_of_immediate(number: u32, least: u64) -> u64 {
    least + u64::from(number.wrapping_sub(immediate(least)))
}

#[cfg(test)]
mod tests;
