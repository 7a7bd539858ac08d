//! What the two ends of a channel do, without I/O and without a clock.
//!
//! A stream of bytes crosses a *ring*: memory of the receiver that the sender writes to, byte `n` of the
//! stream at byte `n` modulo the ring's length, and a ring of the same length at the sender, filled in the
//! same places. The ring is registered and told once, when the channel opens. The sender cuts the stream into
//! *pieces*, each on one queue pair: WRITEs no larger than the path takes, then a SEND that says which piece is
//! there, or one WRITE that says so itself, where devices can do that. A piece of few bytes travels in the SEND. Pieces of
//! different queue pairs arrive in any order and are delivered in the order of the stream.
//! The receiver returns *credit*, the end of what it has consumed, and the sender writes no further than one ring
//! beyond it; so what is not consumed stays at the sender, and a piece that was lost with its queue pair is
//! written again, to the same place.
//!
//! A receiver may fetch instead (`mode=get`): pieces are announced when they are in the sender's ring, and READ from it,
//! unless they are so small that they come with the announcement.
//! What is not in the sender's ring, because it is sent from where it is, has the same place in the receiver's.
//!
//! What a peer says is checked against what it may say; the errors name the lie.

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

/// Where the bytes of a stream lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ring {
    bytes: NonZeroU64,
}

impl Ring {
    pub(crate) fn new(bytes: NonZeroU64) -> Self {
        Self { bytes }
    }

    /// Whether 32 bits name a place of the stream: those that can be meant lie within one ring before and one behind what
    /// was consumed.
    pub(crate) fn fits_immediates(self) -> bool {
        self.bytes() <= 1 << 31
    }

    /// How long it is.
    pub(crate) fn bytes(self) -> u64 {
        self.bytes.get()
    }

    /// The place of `length` bytes of the stream from `start`, which must not cross the end of the ring.
    pub(crate) fn place(self, start: u64, length: u64) -> Span {
        let offset = start % self.bytes;
        debug_assert!(offset + length <= self.bytes(), "a piece lies in one part");
        let fits = "a ring is memory of this process";
        Span::new(
            usize::try_from(offset).expect(fits),
            usize::try_from(length).expect(fits),
        )
    }

    /// Where bytes of the stream, which must not cross the end of the ring, begin and end in it.
    pub(crate) fn range(self, start: u64, end: u64) -> (u64, u64) {
        let offset = start % self.bytes;
        (offset, offset + (end - start))
    }

    /// How many bytes of the stream from `start` lie behind each other.
    pub(crate) fn contiguous(self, start: u64) -> u64 {
        self.bytes() - start % self.bytes
    }
}

/// The number that announces a piece: the last 32 bits of its place in the stream.
pub(crate) fn immediate(start: u64) -> u32 {
    let [.., a, b, c, d] = start.to_be_bytes();
    u32::from_be_bytes([a, b, c, d])
}

/// The first place of the stream, from `least` on, that such a number can mean.
fn place_of_immediate(number: u32, least: u64) -> u64 {
    least + u64::from(number.wrapping_sub(immediate(least)))
}

#[cfg(test)]
mod tests;
