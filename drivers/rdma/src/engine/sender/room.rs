//! The free part of the sender's ring.

use super::Sender;
use crate::memory::Span;

/// Free memory of the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Room {
    pub(crate) span: Span,
    /// It reaches to the end of the ring, so no more will be contiguous with it.
    pub(crate) is_whole: bool,
}

impl Sender {
    /// Where the next bytes of the stream go in our ring; empty while the ring is full.
    pub(crate) fn room(&self) -> Span {
        self.room_from(self.filled).span
    }

    /// Where the bytes go that follow those that are being filled.
    pub(crate) fn further_room(&self) -> Room {
        self.room_from(self.filled + self.promised)
    }

    fn room_from(&self, start: u64) -> Room {
        let needed_from = self.needed_from();
        let (ring, theirs) = (self.own.latest(), self.theirs.latest());
        let limit = ring.limit(needed_from).min(theirs.limit(needed_from));
        let free = limit.saturating_sub(start);
        let contiguous = ring.contiguous(start);
        Room {
            span: ring.place(start, free.min(contiguous)),
            is_whole: free >= contiguous,
        }
    }

    /// The next `count` positions of the stream, at most the room, hold no bytes.
    pub(crate) fn pad(&mut self, count: usize) {
        let start = self.filled;
        self.filled += count as u64;
        if count > 0 {
            self.padding.push_back((start, self.filled));
        }
    }

    /// The first `count` bytes of [`Sender::further_room`] are being filled; nothing else is put there.
    pub(crate) fn promise(&mut self, count: u64) {
        self.promised += count;
    }
}
