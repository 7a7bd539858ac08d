//! Sends pieces again when queue pairs are lost and restored.

use super::{End, Notice, Piece, Repeat, Sender};

impl Sender {
    /// Handles the loss of a queue pair: pieces that were sent over it and not consumed are sent again
    /// over others. On each of these the loss is reported first, so that the peer discards the lost
    /// queue pair. Returns `false` if no other queue pair is left.
    pub(crate) fn lost(&mut self, queue_pair: usize) -> bool {
        self.pacers.lost(queue_pair);
        if self.first_connected() == Some(queue_pair) {
            // The report of the loss arrives before all later requests.
            self.repeats.clear();
        }
        let lost = &mut self.queue_pairs[queue_pair];
        lost.load.clear();
        lost.lost = true;
        let on_it = |piece: &&mut Piece| piece.queue_pair == Some(queue_pair);
        for piece in self.pieces.iter_mut().filter(on_it) {
            // Pieces are delivered whole: a partly consumed one has arrived and need not be sent again.
            if piece.start < self.credited {
                (piece.announced, piece.held) = (true, false);
            } else {
                piece.queue_pair = None;
                piece.announced = false;
                if !self.settings.is_fetched {
                    piece.posted = piece.start;
                    piece.again = piece.announced_once;
                    piece.held =
                        piece.announced_once || self.sources.any_within(piece.start, piece.end);
                }
            }
        }
        self.held = self.pieces.iter().filter(|piece| piece.held).count();
        self.announced = 0;
        self.retire();
        if self.end == (End::Announced { queue_pair }) {
            self.end = End::Wanted;
        }
        self.notices.retain(|&(on, _)| on != queue_pair);
        let connected = (0..self.queue_pairs.len()).filter(|&other| !self.queue_pairs[other].lost);
        let report = Notice::Abandoned(queue_pair);
        self.notices.extend(connected.map(|on| (on, report)));
        self.lost_notice_of_leaving(queue_pair);
        self.queue_pairs.iter().any(|queue_pair| !queue_pair.lost)
    }

    /// A lost queue pair was restored. Requests that were posted before the loss will not be delivered at
    /// either end.
    pub(crate) fn restored(&mut self, queue_pair: usize) {
        let restored = &mut self.queue_pairs[queue_pair];
        restored.load.clear();
        restored.lost = false;
        restored.generation = restored.generation.saturating_add(1);
        let report = Notice::Abandoned(queue_pair);
        self.notices.retain(|&(_, notice)| notice != report);
        // On this queue pair the losses of others, and moves to another ring, were not reported yet.
        let lost = (0..self.queue_pairs.len()).filter(|&other| self.queue_pairs[other].lost);
        let reports = lost.map(|lost| (queue_pair, Notice::Abandoned(lost)));
        self.notices.extend(reports);
        self.repeat_moves(queue_pair);
    }

    /// How many times a queue pair was restored; `None` if its number is invalid.
    pub(crate) fn generation(&self, queue_pair: usize) -> Option<u32> {
        Some(self.queue_pairs.get(queue_pair)?.generation)
    }

    /// Memory before this position of the stream is no longer needed. A piece that is being sent a
    /// second time is needed even though the peer has it: its place must not hold later bytes,
    /// which would be sent instead.
    pub(crate) fn needed_from(&self) -> u64 {
        if self.held == 0 {
            return self.credited;
        }
        let in_use = |piece: &&Piece| piece.held && piece.start < self.credited;
        let first = self.pieces.iter().find(in_use);
        first.map_or(self.credited, |piece| piece.start)
    }

    /// The only queue pair over which a piece may be sent, if it is bound to one.
    pub(super) fn bound_to(&self, piece: Piece) -> Option<usize> {
        if !self.settings.completes_early {
            return None;
        }
        let (ring, _) = self.theirs.at(piece.start);
        let from = ring.offset(piece.start);
        let to = from + (piece.end - piece.start);
        let meets =
            |repeat: &Repeat| repeat.base == ring.base() && repeat.from < to && from < repeat.to;
        let is_bound = piece.again || self.repeats.iter().any(meets);
        is_bound.then(|| self.first_connected()).flatten()
    }

    /// The peer has consumed a piece, and so everything that was sent earlier over the same queue pair
    /// has arrived.
    pub(super) fn forget_repeats(&mut self, piece: Piece) {
        if !piece.again && !self.repeats.is_empty() && piece.queue_pair == self.first_connected() {
            self.repeats.retain(|repeat| piece.start < repeat.before);
        }
    }

    pub(super) fn first_connected(&self) -> Option<usize> {
        self.queue_pairs
            .iter()
            .position(|queue_pair| !queue_pair.lost)
    }
}
