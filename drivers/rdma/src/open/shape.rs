//! How a stream is cut into pieces and messages.

use std::num::NonZeroU64;

use super::ring_length::message_for;
use crate::engine::{Ring, Shape};
use crate::handshake::pieces;

/// What decides about pieces and messages, besides the lengths of the rings.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shaping {
    /// The largest message in bytes, by the options.
    pub(crate) message: u64,
    /// Messages may be longer for long rings.
    pub(crate) fits_message: bool,
    /// The longest one that the device takes.
    pub(crate) most_message: u64,
    pub(crate) queue_pairs: usize,
    /// Requests that may be outstanding on all queue pairs.
    pub(crate) requests: usize,
    /// Pieces that may be in flight.
    pub(crate) pieces: usize,
    /// Both ends and the device allow immediate data.
    pub(crate) immediate: bool,
}

impl Shaping {
    /// The longest message for rings of this length.
    pub(crate) fn longest_message(&self, ring: NonZeroU64) -> u64 {
        let longest = match self.fits_message {
            true => message_for(self.message, ring, self.requests),
            false => self.message,
        };
        longest.min(self.most_message)
    }

    /// The shape of a stream of which `window` bytes may be in flight, in a ring of the peer of `ring` bytes,
    /// which it has moved to. The number of pieces was agreed for another length.
    pub(crate) fn shape(&self, window: NonZeroU64, ring: NonZeroU64) -> Shape {
        let part = Ring::new(window);
        let message_bytes = message_in(part, self.longest_message(window));
        let usual = piece_bytes(part, message_bytes, self.queue_pairs);
        let piece_bytes = if self.pieces < usize::from(pieces(window.get())) {
            // So that half of the pieces fill the window.
            let least = window.get().div_ceil((self.pieces as u64).div_ceil(2));
            let least = least.next_multiple_of(message_bytes);
            usual.max(least).min(MOST_PIECE_BYTES).min(window.get())
        } else {
            usual
        };
        Shape {
            message_bytes,
            piece_bytes,
            immediate: self.immediate && Ring::new(ring).fits_immediates(),
        }
    }
}

/// The length of a piece fits into its announcement.
const MOST_PIECE_BYTES: u64 = 1 << 30;

/// The length of messages in a ring, which may be shorter than wanted: one part is being filled, one
/// is in flight and one is being drained.
pub(crate) fn message_in(ring: Ring, longest: u64) -> u64 {
    longest.min(ring.bytes().div_ceil(3))
}

/// The length of pieces: a sixteenth of the ring for each queue pair keeps all of them busy and the
/// receiver informed, also if one is slower than the others. They are whole messages, and their length
/// fits into the announcement.
pub(crate) fn piece_bytes(ring: Ring, message: u64, queue_pairs: usize) -> u64 {
    const MAX_PIECE_BYTES: u64 = 16 << 20;
    let part = ring.bytes() / (16 * queue_pairs.max(1) as u64);
    let part = part.min(MAX_PIECE_BYTES);
    let whole = part - part % message.max(1);
    whole.max(message).min(ring.bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_whole_messages() {
        let of = |ring, queue_pairs| {
            let ring = Ring::new(NonZeroU64::new(ring).unwrap());
            piece_bytes(ring, 32 << 10, queue_pairs)
        };
        let piece = |ring| of(ring, 1);
        assert_eq!(piece(1 << 30), 16 << 20);
        assert_eq!(piece(762_000), 32 << 10);
        assert_eq!(piece(16 * 100_000), 96 << 10);
        assert_eq!(piece(10_000), 10_000, "no longer than the ring");
        assert_eq!(
            of(16 << 20, 4),
            256 << 10,
            "shorter with several queue pairs"
        );
    }

    /// A ring of 16 MiB has grown to 2.5 GB.
    #[test]
    fn few_pieces_fill_a_long_ring() {
        let shaping = Shaping {
            message: 256 << 10,
            fits_message: true,
            most_message: 1 << 30,
            queue_pairs: 1,
            requests: 1024,
            pieces: 64,
            immediate: true,
        };
        let ring = NonZeroU64::new(2_500_000_000).unwrap();
        let shape = shaping.shape(ring, ring);
        assert_eq!(shape.message_bytes, 4 << 20);
        assert!(shape.piece_bytes >= ring.get() / 32, "{shape:?}");
        assert!(!shape.immediate, "32 bits do not name its places");
        let short = NonZeroU64::new(16 << 20).unwrap();
        let shape = shaping.shape(short, short);
        assert_eq!(
            (shape.message_bytes, shape.piece_bytes),
            (256 << 10, 1 << 20)
        );
        assert!(shape.immediate);
    }
}
