//! What becomes of pieces when queue pairs are lost and come back.

use super::{End, Piece, Repeat, Sender};

impl Sender {
    /// A queue pair is no more: what went over it and was not consumed goes again, over others, after the peer
    /// was told on each of them to throw that one away. `false` if there is no other.
    pub(crate) fn lost(&mut self, queue_pair: usize) -> bool {
        self.pacer.lost(queue_pair);
        if self.first_living() == Some(queue_pair) {
            // The peer hears of it before anything that is sent from here on.
            self.repeats.clear();
        }
        let lost = &mut self.queue_pairs[queue_pair];
        (lost.pending, lost.lost) = (0, true);
        let on_it = |piece: &&mut Piece| piece.queue_pair == Some(queue_pair);
        for piece in self.pieces.iter_mut().filter(on_it) {
            // Pieces arrive whole: one that was consumed in part is there, and need not go again.
            if piece.start < self.credited {
                (piece.announced, piece.held) = (true, false);
            } else {
                piece.queue_pair = None;
                piece.announced = false;
                if !self.settings.is_fetched {
                    piece.posted = piece.start;
                    piece.again = piece.told;
                    piece.held = piece.told || self.sources.any_within(piece.start, piece.end);
                }
            }
        }
        self.held = self.pieces.iter().filter(|piece| piece.held).count();
        self.announced = 0;
        self.count_announced();
        self.retire();
        if self.end == (End::Told { queue_pair }) {
            self.end = End::Wanted;
        }
        self.abandoned.retain(|&(on, _)| on != queue_pair);
        let living = (0..self.queue_pairs.len()).filter(|&other| !self.queue_pairs[other].lost);
        self.abandoned.extend(living.map(|on| (on, queue_pair)));
        self.queue_pairs.iter().any(|queue_pair| !queue_pair.lost)
    }

    /// A queue pair that was lost lives again, and nothing of the lost one will be delivered at either end.
    pub(crate) fn restored(&mut self, queue_pair: usize) {
        let restored = &mut self.queue_pairs[queue_pair];
        (restored.pending, restored.lost) = (0, false);
        restored.life = restored.life.saturating_add(1);
        self.abandoned.retain(|&(_, lost)| lost != queue_pair);
        // Nobody has said on this one which others are lost.
        let lost = (0..self.queue_pairs.len()).filter(|&other| self.queue_pairs[other].lost);
        self.abandoned.extend(lost.map(|lost| (queue_pair, lost)));
    }

    /// How often a queue pair was restored; `None` if there is none of this number.
    pub(crate) fn life(&self, queue_pair: usize) -> Option<u32> {
        Some(self.queue_pairs.get(queue_pair)?.life)
    }

    /// The memory of nothing before this place of the stream is needed any more. What is written for the second time
    /// is, though the peer has it: later bytes in its place would reach the peer instead.
    pub(crate) fn needed_from(&self) -> u64 {
        if self.held == 0 {
            return self.credited;
        }
        let in_use = |piece: &&Piece| piece.held && piece.start < self.credited;
        let first = self.pieces.iter().find(in_use);
        first.map_or(self.credited, |piece| piece.start)
    }

    /// The only queue pair that a piece may go over, if there is such.
    pub(super) fn bound_to(&self, piece: Piece) -> Option<usize> {
        if !self.settings.completes_early {
            return None;
        }
        let (from, to) = self.settings.ring.range(piece.start, piece.end);
        let meets = |repeat: &Repeat| repeat.from < to && from < repeat.to;
        let is_bound = piece.again || self.repeats.iter().any(meets);
        is_bound.then(|| self.first_living()).flatten()
    }

    /// The peer has consumed a piece, and so has all that was sent before over the same queue pair.
    pub(super) fn forget_repeats(&mut self, piece: Piece) {
        if !piece.again && !self.repeats.is_empty() && piece.queue_pair == self.first_living() {
            self.repeats.retain(|repeat| piece.start < repeat.before);
        }
    }

    pub(super) fn first_living(&self) -> Option<usize> {
        self.queue_pairs
            .iter()
            .position(|queue_pair| !queue_pair.lost)
    }
}
