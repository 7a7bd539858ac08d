//! The bound of inline payloads: bytes of the stream that travel inside a message.
//!
//! A queue pair has a slot for every message that may arrive, and an adapter pins the slots; a
//! longer payload makes each of them longer. So slots are bounded by a part of the ring, and count
//! as memory for rings.

use super::Offer;
use crate::provider::MAX_MESSAGE_BYTES;
use crate::verbs::DEPTH;

/// The default length of inline payloads in bytes. Measured with `bench-devices --table inline`:
/// over iWARP adapters, and in `mode=get`, inline payloads of up to 4 KiB and more are faster. With
/// immediate data and in user space they make no difference. Longer slots would take a noticeable
/// part of the memory of channels that mostly send long pieces.
pub(crate) const USUAL_INLINE_BYTES: u16 = 1024;

/// The longest inline payload in bytes.
pub(crate) const MAX_INLINE_BYTES: u16 = 16 << 10;

/// Slots that are longer than usual take at most this part of the ring.
const PART_OF_RING: u64 = 4;

/// Messages that may be outstanding on a queue pair with this many pieces: announcements, which may
/// be repeated, credit for each batch of a ring, the end of the stream, and notices of lost queue
/// pairs.
pub(crate) fn messages(pieces: usize) -> usize {
    const OTHERS: usize = 64;
    2 * pieces + OTHERS
}

/// Rings that may grow have pieces for this length from the start, as slots cannot be added. In a longer
/// ring, pieces are longer.
const GROWN_BYTES: u64 = 256 << 20;

/// Pieces that may be in flight in each direction: enough to fill a ring with the blocks of a
/// sender that flushes each, and some for each queue pair. They also bound the memory of the
/// receiver.
pub(crate) fn pieces(ring_bytes: u64) -> u16 {
    const USUAL_BYTES: u64 = 256 << 10;
    const MOST: u64 = 16_384;
    let pieces = (ring_bytes / USUAL_BYTES).clamp(64, MOST);
    u16::try_from(pieces).unwrap_or(u16::MAX)
}

impl Offer {
    /// Reduces inline payloads to what fits into slots of pinned memory.
    pub(crate) fn within_slots(self) -> Self {
        let most = self.rings.longer().get() / PART_OF_RING / self.slots();
        let most = u16::try_from(most).unwrap_or(u16::MAX);
        Self {
            inline_bytes: self.inline_bytes.min(most.max(USUAL_INLINE_BYTES)),
            ..self
        }
    }

    /// Reduces inline payloads to the default.
    pub(crate) fn with_usual_slots(self) -> Self {
        Self {
            inline_bytes: self.inline_bytes.min(USUAL_INLINE_BYTES),
            ..self
        }
    }

    /// The memory that an adapter pins for messages, in bytes: a slot for each that may arrive, and one for
    /// each request of a queue pair.
    pub(crate) fn slot_bytes(&self) -> u64 {
        let incoming = (MAX_MESSAGE_BYTES + usize::from(self.inline_bytes)) as u64 * self.slots();
        let (pieces, queue_pairs) = (u64::from(self.pieces), u64::from(self.queue_pairs));
        // `requests` rounds up for each queue pair.
        let requests = (pieces + 2 * queue_pairs).max(DEPTH as u64 * queue_pairs);
        incoming + requests * MAX_MESSAGE_BYTES as u64
    }

    /// No more rails than queue pairs.
    pub(crate) fn within_rails(self) -> Self {
        let most = u8::try_from(self.queue_pairs).unwrap_or(u8::MAX);
        Self {
            rails: self.rails.min(most),
            ..self
        }
    }

    /// No more pieces than the rings have room for: each takes slots.
    pub(crate) fn within_pieces(self) -> Self {
        let rings = self.rings.longer().get();
        let most = match self.grows && self.inline_bytes <= USUAL_INLINE_BYTES {
            true => pieces(rings.max(GROWN_BYTES)),
            false => pieces(rings),
        };
        Self {
            pieces: self.pieces.min(most),
            ..self
        }
    }

    /// As many pieces as allowed.
    pub(crate) fn with_all_pieces(self) -> Self {
        let pieces = u16::MAX;
        Self { pieces, ..self }.within_pieces()
    }

    /// The rings stay as they are.
    pub(crate) fn without_growth(self) -> Self {
        let grows = false;
        Self { grows, ..self }.within_pieces()
    }

    /// The slots of all queue pairs.
    fn slots(&self) -> u64 {
        (messages(usize::from(self.pieces)) * usize::from(self.queue_pairs)) as u64
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use proptest::prelude::*;

    use super::*;
    use crate::handshake::Mode;
    use crate::memory::Lengths;
    use crate::open::ring_length::requests;

    fn offer(ring_bytes: u64, queue_pairs: u16, pieces: u16, inline_bytes: u16) -> Offer {
        Offer {
            rings: Lengths::both(NonZeroU64::new(ring_bytes).unwrap()),
            queue_pairs,
            pieces,
            mode: Mode::Put,
            immediate: true,
            inline_bytes,
            aligned: false,
            adapters: 1,
            rails: 1,
            grows: false,
        }
    }

    #[test]
    fn a_ring_as_it_is_leaves_room_for_the_longest() {
        let usual = offer(16 << 20, 1, 64, MAX_INLINE_BYTES);
        assert_eq!(usual.within_slots(), usual);
        assert_eq!(usual.slot_bytes(), (16_384 + 48) * 192 + 48 * 1024);
        let small = offer(64 << 10, 3, 64, MAX_INLINE_BYTES);
        assert_eq!(small.within_slots(), small.with_usual_slots());
        let bytes = 3 * ((1024 + 48) * 192 + 48 * 1024);
        assert_eq!(small.with_usual_slots().slot_bytes(), bytes);
    }

    #[test]
    fn a_short_ring_has_few_pieces() {
        let greedy = offer(64 << 10, 8, 16_384, USUAL_INLINE_BYTES);
        assert!(greedy.slot_bytes() > 256 << 20);
        let fitted = greedy.within_pieces();
        assert_eq!(fitted.pieces, 64);
        assert!(fitted.slot_bytes() < 2 << 20);
        let long = offer(4 << 30, 8, 16_384, USUAL_INLINE_BYTES);
        assert_eq!(long.within_pieces(), long);
    }

    proptest! {
        /// What an endpoint pins is what counts.
        #[test]
        fn all_slots_count(queue_pairs in 1..=16_u16, pieces in 1..=16_384_u16, inline_bytes in 0..=MAX_INLINE_BYTES) {
            let offer = offer(1, queue_pairs, pieces, inline_bytes);
            let receives = messages(usize::from(pieces)) * (MAX_MESSAGE_BYTES + usize::from(inline_bytes));
            let sends = requests(usize::from(pieces.div_ceil(queue_pairs))) * MAX_MESSAGE_BYTES;
            let pinned = (receives + sends) * usize::from(queue_pairs);
            prop_assert!(pinned as u64 <= offer.slot_bytes());
        }

        #[test]
        fn slots_take_a_part_of_the_ring(
            ring_bytes in 1..=4_u64 << 30,
            queue_pairs in 1..=16_u16,
            pieces in 1..=16_384_u16,
            inline_bytes in 0..=MAX_INLINE_BYTES,
        ) {
            let offer = offer(ring_bytes, queue_pairs, pieces, inline_bytes);
            let fitted = offer.within_slots();
            let longer = fitted.slot_bytes() - fitted.with_usual_slots().slot_bytes();
            prop_assert!(longer <= ring_bytes / PART_OF_RING);
            prop_assert!(fitted.inline_bytes >= inline_bytes.min(USUAL_INLINE_BYTES));
            prop_assert_eq!(fitted.within_slots(), fitted);
        }
    }
}
