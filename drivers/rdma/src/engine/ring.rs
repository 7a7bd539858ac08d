//! The layout of a stream in a ring, and in two rings while it moves from one to the next.
//!
//! Byte `n` of the stream is at byte `n` modulo its length in every ring. So what is aligned in one ring is aligned in the next one,
//! wherever the stream moves.

use std::num::NonZeroU64;

use crate::memory::Span;

/// The layout of a stream in a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ring {
    /// The position of the stream from which on it is in this ring.
    base: u64,
    bytes: NonZeroU64,
}

/// The longest ring in which 32 bits identify a position.
pub(super) const MOST_FOR_IMMEDIATES: u64 = 1 << 31;

impl Ring {
    pub(crate) fn new(bytes: NonZeroU64) -> Self {
        Self { base: 0, bytes }
    }

    /// A ring that the stream moves to at this position.
    pub(super) fn from(base: u64, bytes: NonZeroU64) -> Self {
        Self { base, bytes }
    }

    /// Whether 32 bits identify a position. Valid positions lie within one ring before and one ring
    /// after the consumed position.
    pub(crate) fn fits_immediates(self) -> bool {
        self.bytes() <= MOST_FOR_IMMEDIATES
    }

    /// The length of the ring in bytes.
    pub(crate) fn bytes(self) -> u64 {
        self.bytes.get()
    }

    /// The same.
    pub(super) fn length(self) -> NonZeroU64 {
        self.bytes
    }

    /// The position of the stream from which on it is in this ring.
    pub(super) fn base(self) -> u64 {
        self.base
    }

    /// The end of what the ring can hold, if the stream before `free_to` is no longer needed.
    pub(super) fn limit(self, free_to: u64) -> u64 {
        free_to.max(self.base).saturating_add(self.bytes())
    }

    /// The place of `length` bytes of the stream from `start`. They must not cross the end of the
    /// ring.
    pub(crate) fn place(self, start: u64, length: u64) -> Span {
        let offset = self.offset(start);
        debug_assert!(offset + length <= self.bytes(), "a piece lies in one part");
        let fits = "a ring is memory of this process";
        Span::new(
            usize::try_from(offset).expect(fits),
            usize::try_from(length).expect(fits),
        )
    }

    /// The offset of a position in the ring.
    pub(super) fn offset(self, position: u64) -> u64 {
        position % self.bytes
    }

    /// How many bytes from `start` on are contiguous in the ring.
    pub(crate) fn contiguous(self, start: u64) -> u64 {
        self.bytes() - self.offset(start)
    }
}

/// The ring of each part of a stream: one, or two while the stream moves from one to the next. `T` is
/// what a ring is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rings<T> {
    first: (Ring, T),
    /// The ring of everything from its base on.
    next: Option<(Ring, T)>,
}

impl<T: Copy> Rings<T> {
    pub(super) fn new(ring: Ring, of: T) -> Self {
        Self {
            first: (ring, of),
            next: None,
        }
    }

    /// The stream moves to a ring of this length at this position; it has moved to the present one.
    pub(super) fn move_to(&mut self, base: u64, bytes: NonZeroU64, of: T) {
        debug_assert!(self.next.is_none(), "it moves to one ring at a time");
        self.next = Some((Ring::from(base, bytes), of));
    }

    /// The stream has left the earlier of two rings.
    pub(super) fn leave(&mut self) -> Option<T> {
        let next = self.next.take()?;
        let (_, left) = std::mem::replace(&mut self.first, next);
        Some(left)
    }

    /// The position from which on the stream is in the next ring, while it is in two.
    pub(super) fn moves_at(&self) -> Option<u64> {
        self.next.map(|(ring, _)| ring.base)
    }

    /// The ring that the newest part of the stream is in.
    pub(super) fn latest(&self) -> Ring {
        self.next.map_or(self.first.0, |(ring, _)| ring)
    }

    /// The ring of a position, and what it is made of.
    pub(super) fn at(&self, position: u64) -> (Ring, T) {
        match self.next {
            Some((ring, of)) if position >= ring.base => (ring, of),
            _ => self.first,
        }
    }

    /// How many bytes from `start` on are contiguous in one ring. The rings that the stream has left
    /// count as one.
    pub(super) fn contiguous(&self, start: u64) -> u64 {
        let (ring, _) = self.at(start);
        if start < ring.base {
            return ring.base - start;
        }
        match self.moves_at() {
            Some(at) if start < at => ring.contiguous(start).min(at - start),
            _ => ring.contiguous(start),
        }
    }

    /// The same within the ring of `start`, where a peer may say that the stream has left the one before too early.
    pub(super) fn contiguous_in_one(&self, start: u64) -> u64 {
        let (ring, _) = self.at(start);
        self.contiguous(start).min(ring.contiguous(start))
    }

    /// The place of `length` contiguous bytes of the stream from `start`, and what its ring is made of.
    pub(super) fn place(&self, start: u64, length: u64) -> (T, Span) {
        let (ring, of) = self.at(start);
        (of, ring.place(start, length))
    }

    /// The places of a part of the stream, in order. It is no longer than the rings together, so there
    /// are few.
    pub(super) fn places(&self, start: u64, end: u64) -> impl Iterator<Item = (T, Span)> {
        let mut from = start;
        std::iter::from_fn(move || {
            let length = self.contiguous(from).min(end.saturating_sub(from));
            if length == 0 {
                return None;
            }
            let place = self.place(from, length);
            from += length;
            Some(place)
        })
    }
}

/// The immediate data that announces a piece: the low 32 bits of its position in the stream.
pub(crate) fn immediate(start: u64) -> u32 {
    let [.., a, b, c, d] = start.to_be_bytes();
    u32::from_be_bytes([a, b, c, d])
}

/// The first position from `least` on whose low 32 bits are this number.
pub(super) fn place_of_immediate(number: u32, least: u64) -> u64 {
    least + u64::from(number.wrapping_sub(immediate(least)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(count: u64) -> NonZeroU64 {
        NonZeroU64::new(count).unwrap()
    }

    #[test]
    fn a_stream_moves_from_one_ring_to_the_next() {
        let mut rings = Rings::new(Ring::new(bytes(10)), 'a');
        assert_eq!(rings.place(23, 7), ('a', Span::new(3, 7)));
        rings.move_to(27, bytes(100), 'b');
        assert_eq!(rings.contiguous(23), 4, "up to where it moves");
        assert_eq!(rings.contiguous(27), 73);
        assert_eq!(rings.place(30, 5), ('b', Span::new(30, 5)));
        let places: Vec<_> = rings.places(18, 30).collect();
        let expected = [
            ('a', Span::new(8, 2)),
            ('a', Span::new(0, 7)),
            ('b', Span::new(27, 3)),
        ];
        assert_eq!(places, expected);
        assert_eq!((rings.moves_at(), rings.latest().bytes()), (Some(27), 100));
        assert_eq!(rings.latest().limit(20), 127, "all of it is free");
        assert_eq!(rings.leave(), Some('a'));
        assert_eq!(rings.leave(), None);
        assert_eq!(rings.place(126, 1), ('b', Span::new(26, 1)));
    }
}
