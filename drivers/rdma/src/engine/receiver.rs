//! The receiving end of a stream.

use std::collections::BTreeMap;

use super::{Message, Ring, place_of_immediate};
use crate::memory::Span;

/// The receiving end of a stream.
#[derive(Debug, Clone)]
pub(crate) struct Receiver {
    ring: Ring,
    /// Pieces that the sender may have announced beyond what it knows to be consumed.
    max_pieces: usize,
    /// Pieces beyond `ready`, by start: their end.
    early: BTreeMap<u64, u64>,
    /// All before this place has arrived.
    ready: u64,
    /// All before this place was taken out of the ring.
    consumed: u64,
    /// What the sender was told of that.
    credited: u64,
    /// What it was told may have been lost with a queue pair.
    repeats: bool,
    /// Pieces that became ready since the sender was told.
    pieces: usize,
    end: Option<u64>,
    /// The sender keeps what it has until it hears that the last of it was taken out.
    acknowledges_end: bool,
    /// The sender may announce pieces by numbers in WRITEs.
    takes_immediates: bool,
    /// The longest piece that may come in a message.
    inline_bytes: u64,
}

/// How the peer lied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ReceiverError {
    #[error("the peer wrote with immediate data, which was not agreed")]
    Immediate,
    #[error(
        "the peer sent {length} bytes of the stream in a message, and at most {most} were agreed"
    )]
    Inline { length: u64, most: u64 },
    #[error("the peer announced an empty piece")]
    Empty,
    #[error("the peer wrote up to byte {end}, and had credit up to {limit}")]
    BeyondCredit { end: u64, limit: u64 },
    #[error(
        "the peer announced bytes {start} to {end} of the stream, and has not written all of them since it was last given \
         their place"
    )]
    NotWritten { start: u64, end: u64 },
    #[error("the peer announced bytes twice, from {start} to {end}")]
    Overlap { start: u64, end: u64 },
    #[error("the peer announced bytes across the end of the ring")]
    AcrossTheEnd,
    #[error("the peer announced more than {0} pieces at a time")]
    TooManyPieces(usize),
    #[error("the peer ended the stream at byte {at}, and said other things before")]
    End { at: u64 },
}

impl Receiver {
    pub(crate) fn new(ring: Ring, max_pieces: usize) -> Self {
        Self {
            ring,
            max_pieces,
            early: BTreeMap::new(),
            ready: 0,
            consumed: 0,
            credited: 0,
            repeats: false,
            pieces: 0,
            end: None,
            acknowledges_end: false,
            takes_immediates: false,
            inline_bytes: 0,
        }
    }

    /// The sender is told when all of its stream was taken out.
    pub(crate) fn acknowledge_end(&mut self) {
        self.acknowledges_end = true;
    }

    /// The sender may announce pieces by numbers in WRITEs.
    pub(crate) fn take_immediates(&mut self) {
        self.takes_immediates = true;
    }

    /// Pieces of up to so many bytes may come in messages.
    pub(crate) fn take_inline(&mut self, most: u64) {
        self.inline_bytes = most;
    }

    /// A piece came in a message; returns where its bytes go, or `None` if they were there before.
    ///
    /// # Errors
    ///
    /// When it may not, or cannot be.
    pub(crate) fn carried(
        &mut self,
        start: u64,
        length: u64,
    ) -> Result<Option<Span>, ReceiverError> {
        let most = self.inline_bytes;
        if length > most {
            return Err(ReceiverError::Inline { length, most });
        }
        let is_news = self.is_news(start);
        self.arrived(start, length)?;
        Ok(is_news.then(|| self.ring.place(start, length)))
    }

    /// A WRITE has announced itself.
    ///
    /// # Errors
    ///
    /// When it may not, or cannot be there.
    pub(crate) fn written(&mut self, immediate: u32, length: u64) -> Result<(), ReceiverError> {
        if !self.takes_immediates {
            return Err(ReceiverError::Immediate);
        }
        // What comes again is no further back than the credit that the sender has not heard of: a ring at most.
        let least = self.credited.saturating_sub(self.ring.bytes());
        self.arrived(place_of_immediate(immediate, least), length)
    }

    /// Where the sender may write: from what is ready on to the end of its credit, around the end of the ring.
    pub(crate) fn window(&self) -> [Span; 2] {
        self.places(self.ready, self.credited + self.ring.bytes())
    }

    /// Where the sender may write anew once it has the credit that is returned next.
    pub(crate) fn freed(&self) -> [Span; 2] {
        self.places(self.credited, self.consumed)
    }

    /// Whether a piece that the peer announced is still to be fetched, where `fetching` are, too.
    ///
    /// # Errors
    ///
    /// When it cannot be there.
    pub(crate) fn wants(
        &self,
        start: u64,
        length: u64,
        fetching: usize,
    ) -> Result<bool, ReceiverError> {
        self.check(start, length)?;
        if fetching + self.early.len() > self.max_pieces {
            return Err(ReceiverError::TooManyPieces(self.max_pieces));
        }
        Ok(self.is_news(start))
    }

    /// The peer says that it has written a piece to the ring; `is_written` says whether it has written to all of a place.
    ///
    /// # Errors
    ///
    /// When the piece cannot be there, or is not.
    pub(crate) fn announced(
        &mut self,
        start: u64,
        length: u64,
        is_written: impl FnOnce(Span) -> bool,
    ) -> Result<(), ReceiverError> {
        self.check(start, length)?;
        // What had arrived and comes again is not looked at.
        if self.is_news(start) && !is_written(self.ring.place(start, length)) {
            let end = start + length;
            return Err(ReceiverError::NotWritten { start, end });
        }
        self.arrived(start, length)
    }

    /// A piece is in the ring.
    ///
    /// # Errors
    ///
    /// When it cannot be there.
    pub(crate) fn arrived(&mut self, start: u64, length: u64) -> Result<(), ReceiverError> {
        self.check(start, length)?;
        let end = start + length;
        if end <= self.ready {
            // It was written again after its queue pair was lost, and had arrived.
            return Ok(());
        }
        let overlap = ReceiverError::Overlap { start, end };
        if start < self.ready {
            return Err(overlap);
        }
        let before = self.early.range(..end).next_back();
        match before {
            Some((&other_start, &other_end)) if other_end > start => {
                // Pieces are cut once: what comes again comes in the same form.
                let is_same = (other_start, other_end) == (start, end);
                return if is_same { Ok(()) } else { Err(overlap) };
            }
            _ => {}
        }
        self.early.insert(start, end);
        if self.early.len() > self.max_pieces {
            return Err(ReceiverError::TooManyPieces(self.max_pieces));
        }
        while let Some(end) = self.early.remove(&self.ready) {
            self.ready = end;
            self.pieces += 1;
        }
        self.check_end()
    }

    /// The stream ends at `at`.
    ///
    /// # Errors
    ///
    /// When it cannot.
    pub(crate) fn ended(&mut self, at: u64) -> Result<(), ReceiverError> {
        if self.end.is_some_and(|end| end != at) {
            return Err(ReceiverError::End { at });
        }
        self.end = Some(at);
        self.check_end()
    }

    /// What can be taken out of the ring next.
    pub(crate) fn ready(&self) -> Span {
        let length = (self.ready - self.consumed).min(self.ring.contiguous(self.consumed));
        self.ring.place(self.consumed, length)
    }

    /// The first `count` bytes of [`Receiver::ready`] were taken out.
    pub(crate) fn consume(&mut self, count: usize) {
        self.consumed += count as u64;
        debug_assert!(self.consumed <= self.ready, "only what is there is taken");
    }

    /// How much of the stream was taken out.
    pub(crate) fn consumed(&self) -> u64 {
        self.consumed
    }

    /// Whether all of the stream was taken out.
    pub(crate) fn is_finished(&self) -> bool {
        self.end == Some(self.consumed)
    }

    /// Whether credit is to be returned. That is done in batches, and long before the sender needs it: when a quarter
    /// of the ring, or of the pieces that may be under way, was taken out. Who has ended its stream needs none,
    /// unless it waits for the last.
    pub(crate) fn owes_credit(&self) -> bool {
        let uncredited = self.consumed - self.credited;
        let is_due = uncredited >= self.ring.bytes().div_ceil(4)
            || self.pieces >= self.max_pieces.div_ceil(4) && self.consumed == self.ready;
        match self.end {
            None => self.repeats || is_due && uncredited > 0,
            Some(end) => {
                let is_last = self.acknowledges_end && self.consumed == end;
                is_last && (self.repeats || uncredited > 0)
            }
        }
    }

    /// The credit that is returned now.
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

    /// A queue pair was lost, and maybe the last credit on it.
    pub(crate) fn lost(&mut self) {
        self.repeats = self.credited > 0;
    }

    /// Whether no piece from here on has arrived.
    fn is_news(&self, start: u64) -> bool {
        start >= self.ready && !self.early.contains_key(&start)
    }

    /// The places of a part of the stream that is no longer than the ring, around its end.
    fn places(&self, start: u64, end: u64) -> [Span; 2] {
        let split = end.min(start + self.ring.contiguous(start));
        [
            self.ring.place(start, split - start),
            self.ring.place(split, end - split),
        ]
    }

    fn check(&self, start: u64, length: u64) -> Result<(), ReceiverError> {
        if length == 0 {
            return Err(ReceiverError::Empty);
        }
        let limit = self.credited + self.ring.bytes();
        let end = start.saturating_add(length);
        if end > limit {
            return Err(ReceiverError::BeyondCredit { end, limit });
        }
        if length > self.ring.contiguous(start) {
            return Err(ReceiverError::AcrossTheEnd);
        }
        Ok(())
    }

    fn check_end(&self) -> Result<(), ReceiverError> {
        let last = self
            .early
            .last_key_value()
            .map_or(self.ready, |(_, &end)| end);
        match self.end {
            Some(at) if at < last => Err(ReceiverError::End { at }),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
