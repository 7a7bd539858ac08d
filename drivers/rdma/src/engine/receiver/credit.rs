//! What the sender may write, and the credit for it.

use super::Receiver;
use crate::engine::message::Message;
use crate::memory::Span;

impl Receiver {
    /// Where the sender may write: from the ready position to the end of its credit, around the end
    /// of the ring. Nowhere while the stream is in two rings.
    pub(crate) fn window(&self) -> (usize, [Span; 2]) {
        let (ring, region) = self.rings.at(self.ready);
        if self.rings.moves_at().is_some() {
            return (region, [Span::default(); 2]);
        }
        let limit = self.limit();
        let split = limit.min(self.ready + ring.contiguous(self.ready));
        let parts = [
            ring.place(self.ready, split - self.ready),
            ring.place(split, limit - split),
        ];
        (region, parts)
    }

    /// Where the sender may write as soon as it has the credit that is returned next, by region.
    pub(crate) fn freed(&self) -> impl Iterator<Item = (usize, Span)> {
        self.rings.places(self.credited, self.consumed)
    }

    /// Whether credit must be returned. Credit is batched and comes long before the sender runs
    /// out: when a quarter of the ring, or of the pieces that may be in flight, was taken out, or all of
    /// an earlier ring. A sender that has ended its stream needs none, unless it waits for the end to be
    /// consumed.
    pub(crate) fn owes_credit(&self) -> bool {
        let uncredited = self.consumed - self.credited;
        let moves_at = self.rings.moves_at();
        let is_due = uncredited >= self.window.div_ceil(4)
            || moves_at.is_some_and(|at| self.credited < at && at <= self.consumed)
            || self.is_crowded() && self.consumed == self.ready;
        match self.end {
            None => self.repeats || is_due && uncredited > 0,
            Some(end) => {
                let is_last = self.acknowledges_end && self.consumed == end;
                is_last && (self.repeats || uncredited > 0)
            }
        }
    }

    /// Whether so many pieces have arrived that the sender may wait for credit, which it gets when all of them were taken out.
    pub(crate) fn is_crowded(&self) -> bool {
        self.pieces >= self.max_pieces.div_ceil(4)
    }

    /// The credit message to send now.
    pub(crate) fn credit(&mut self) -> Message {
        self.credited = self.consumed;
        self.repeats = false;
        if self.consumed == self.ready {
            self.pieces = 0;
        }
        Message::Credit {
            consumed: self.consumed,
        }
    }

    /// A queue pair was lost, perhaps with the last credit on it.
    pub(crate) fn lost(&mut self) {
        self.repeats = self.credited > 0;
    }

    /// The end of what the sender may write.
    pub(super) fn limit(&self) -> u64 {
        self.rings.latest().limit(self.credited)
    }
}
