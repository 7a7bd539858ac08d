//! The lengths of a channel's two rings.

use std::num::NonZeroU64;

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

    /// Shortened to this many bytes together. The longer one is cut first, and both where half is not
    /// enough for the shorter one.
    pub(crate) fn together(self, most: u64) -> Self {
        let left = most - self.shorter().get().min(most / 2);
        self.up_to(NonZeroU64::new(left).unwrap_or(NonZeroU64::MIN))
    }

    /// The memory of both in whole pages of `page` bytes.
    pub(super) fn bytes(self, page: u64) -> u64 {
        [self.outgoing, self.incoming]
            .map(|length| length.get().next_multiple_of(page))
            .iter()
            .sum()
    }
}
