//! What the peer has consumed, and the pieces that are not needed any more after it.

use super::{Piece, Sender, SenderError};

impl Sender {
    /// The peer returned credit.
    ///
    /// # Errors
    ///
    /// When it claims to have consumed more than it can have.
    pub(crate) fn credited(&mut self, consumed: u64) -> Result<(), SenderError> {
        let last_announced_once = self
            .announced_once
            .checked_sub(1)
            .map(|last| self.pieces[last]);
        let sent = last_announced_once.map_or(self.credited, |piece| piece.end);
        if consumed < self.credited {
            // Credit may take any queue pair, and a slower one delivers an older value later.
            return Ok(());
        }
        if consumed > sent {
            return Err(SenderError::Credit {
                claimed: consumed,
                sent,
            });
        }
        self.credited = consumed;
        if self.held > 0 {
            let consumed = |piece: &&mut Piece| piece.start < consumed;
            for piece in self.pieces.iter_mut().take_while(consumed) {
                if piece.held && piece.posted == piece.start {
                    // It had arrived before its queue pair was lost and need not be sent again.
                    (piece.announced, piece.held) = (true, false);
                    self.held -= 1;
                }
            }
        }
        self.retire();
        Ok(())
    }

    /// Removes pieces that are no longer needed.
    pub(super) fn retire(&mut self) {
        let credited = self.credited;
        let is_done = |piece: &Piece| piece.end <= credited && !piece.held;
        while let Some(piece) = self.pieces.pop_front_if(|piece| is_done(piece)) {
            self.forget_repeats(piece);
            self.announced = self.announced.saturating_sub(1);
            self.announced_once = self.announced_once.saturating_sub(1);
        }
        // After a loss the peer may have consumed a piece that was to be announced again.
        self.count_announced();
    }

    /// Updates the counts of leading pieces.
    pub(super) fn count_announced(&mut self) {
        let count = |from: usize, is: fn(&Piece) -> bool| {
            let further = self.pieces.iter().skip(from);
            from + further.take_while(|piece| is(piece)).count()
        };
        self.announced = count(self.announced, |piece| piece.announced);
        self.announced_once = count(self.announced_once, |piece| piece.announced_once);
    }
}
