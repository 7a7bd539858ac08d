//! The lengths of a channel's two rings.

use std::num::NonZeroU64;

use super::budget::size_class_below;

/// The smallest ring of a channel that wants a larger one, in bytes.
pub(super) const LEAST_RING_BYTES: NonZeroU64 =
    NonZeroU64::new(64 << 10).expect("a constant that is not zero");

/// The lengths of the rings of one end of a channel, in bytes. They differ where data flows one
/// way: the other ring carries little.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lengths {
    /// The ring that this end sends from.
    pub(crate) outgoing: NonZeroU64,
    /// The ring that this end receives into.
    pub(crate) incoming: NonZeroU64,
}

impl Lengths {
    /// Two rings of this length.
    pub(crate) fn both(ring_bytes: NonZeroU64) -> Self {
        Self {
            outgoing: ring_bytes,
            incoming: ring_bytes,
        }
    }

    /// The same rings, seen from the other end.
    pub(crate) fn reversed(self) -> Self {
        Self {
            outgoing: self.incoming,
            incoming: self.outgoing,
        }
    }

    pub(crate) fn longer(self) -> NonZeroU64 {
        self.outgoing.max(self.incoming)
    }

    pub(super) fn shorter(self) -> NonZeroU64 {
        self.outgoing.min(self.incoming)
    }

    /// The smaller of each length.
    pub(crate) fn within(self, other: Self) -> Self {
        Self {
            outgoing: self.outgoing.min(other.outgoing),
            incoming: self.incoming.min(other.incoming),
        }
    }

    /// Neither longer than this.
    pub(crate) fn up_to(self, most: NonZeroU64) -> Self {
        self.within(Self::both(most))
    }

    /// Shortened to multiples of `unit` bytes, as far as they are not shorter than one.
    pub(crate) fn in_units(self, unit: u64) -> Self {
        let whole = |length: NonZeroU64| {
            let rest = length.get() % unit;
            NonZeroU64::new(length.get() - rest).unwrap_or(length)
        };
        Self {
            outgoing: whole(self.outgoing),
            incoming: whole(self.incoming),
        }
    }

    /// Shortened to this many bytes together. The longer one is cut first, and both where half is not
    /// enough for the shorter one.
    pub(crate) fn together(self, most: u64) -> Self {
        let left = most - self.shorter().get().min(most / 2);
        self.up_to(NonZeroU64::new(left).unwrap_or(NonZeroU64::MIN))
    }

    /// Shortened by at least this many bytes, as far as the least length allows. Few lengths are in use.
    pub(super) fn cut(self, bytes: u64, page: u64) -> Self {
        let left = self.longer().get().saturating_sub(bytes);
        let left = NonZeroU64::new(size_class_below(left / page) * page);
        self.up_to(left.map_or(LEAST_RING_BYTES, |left| left.max(LEAST_RING_BYTES)))
    }

    /// The memory of both in whole pages of `page` bytes.
    pub(super) fn bytes(self, page: u64) -> u64 {
        [self.outgoing, self.incoming]
            .map(|length| length.get().next_multiple_of(page))
            .iter()
            .sum()
    }
}
