//! The stream moves from one ring to the next.

use std::num::NonZeroU64;

use super::{Receiver, ReceiverError};
use crate::memory::Span;

impl Receiver {
    /// From `at` on, the stream is in another ring of this length and region. The sender has at most
    /// `window` bytes in flight there.
    ///
    /// # Errors
    ///
    /// When that contradicts what has arrived, or the stream is in two rings already.
    pub(crate) fn switch(
        &mut self,
        at: u64,
        (bytes, region): (NonZeroU64, usize),
        window: u64,
    ) -> Result<(), ReceiverError> {
        let is_late = at < self.last_arrived() || self.rings.moves_at().is_some();
        if is_late || at > self.limit() || window == 0 {
            return Err(ReceiverError::Switch { at });
        }
        self.rings.move_to(at, bytes, region);
        self.window = bytes.get().min(window);
        Ok(())
    }

    /// Nothing more arrives in the earlier of two rings. Returns its region.
    ///
    /// # Errors
    ///
    /// When the sender cannot know that.
    pub(crate) fn leave(&mut self) -> Result<usize, ReceiverError> {
        let is_credited = self.rings.moves_at().is_some_and(|at| self.credited >= at);
        let left = is_credited.then(|| self.rings.leave()).flatten();
        left.ok_or(ReceiverError::Left)
    }

    /// Whether the stream is in two rings.
    #[cfg(test)]
    pub(crate) fn is_moving(&self) -> bool {
        self.rings.moves_at().is_some()
    }

    /// How many bytes from a position on are contiguous in its ring.
    pub(crate) fn contiguous(&self, start: u64) -> u64 {
        self.rings.contiguous_in_one(start)
    }

    /// The region and the place of so many contiguous bytes.
    pub(crate) fn place(&self, start: u64, length: u64) -> (usize, Span) {
        self.rings.place(start, length)
    }

    /// Whether everything before the present ring was taken out.
    pub(crate) fn has_moved(&self) -> bool {
        self.rings.moves_at().is_none_or(|at| self.consumed >= at)
    }

    /// The region that [`Receiver::ready`] is in.
    pub(crate) fn region(&self) -> usize {
        self.rings.at(self.consumed).1
    }

    /// The length in bytes of the ring that [`Receiver::ready`] is in.
    pub(crate) fn bytes_of_ring_in_use(&self) -> u64 {
        self.rings.at(self.consumed).0.bytes()
    }

    /// The length of the present ring in bytes.
    pub(crate) fn ring_bytes(&self) -> u64 {
        self.rings.latest().bytes()
    }

    /// How much the sender may have in flight, in bytes.
    pub(crate) fn window_bytes(&self) -> u64 {
        self.window
    }
}
