//! The receiving end of a stream.

mod credit;
mod moving;
mod padding;

use std::collections::BTreeMap;

use super::ring::{MOST_FOR_IMMEDIATES, Ring, Rings, place_of_immediate};
use crate::memory::Span;

/// The receiving end of a stream.
#[derive(Debug, Clone)]
pub(crate) struct Receiver {
    /// The rings, by the provider's numbers of their regions.
    rings: Rings<usize>,
    /// The sender has at most so many bytes in flight.
    window: u64,
    /// Pieces that the sender may have announced beyond the credit that it has.
    max_pieces: usize,
    /// Arrived pieces beyond `ready`: start and end.
    early: BTreeMap<u64, u64>,
    /// Positions without bytes that have arrived and were not passed: start and end.
    padding: BTreeMap<u64, u64>,
    /// Everything before this position has arrived.
    ready: u64,
    /// Everything before this position was taken out of the ring.
    consumed: u64,
    /// The credit that was last sent.
    credited: u64,
    /// That credit may have been lost with a queue pair, so it is sent again.
    repeats: bool,
    /// Pieces that became ready since credit was last sent.
    pieces: usize,
    end: Option<u64>,
    /// The sender keeps its data until the whole stream is credited.
    acknowledges_end: bool,
    /// The sender may announce pieces by immediate data.
    takes_immediates: bool,
    /// The longest piece that may arrive inside a message.
    inline_bytes: u64,
}

/// How the peer violated the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ReceiverError {
    #[error("the peer wrote with immediate data, which was not negotiated")]
    Immediate,
    #[error(
        "the peer sent {length} bytes of the stream in a message, and at most {most} were negotiated"
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
    #[error("the peer ended the stream at byte {at}, which contradicts earlier messages")]
    End { at: u64 },
    #[error(
        "the peer moved the stream to another ring at byte {at}, which contradicts earlier messages"
    )]
    Switch { at: u64 },
    #[error("the peer has left a ring whose content was not consumed")]
    Left,
}

impl Receiver {
    pub(crate) fn new(ring: Ring, max_pieces: usize) -> Self {
        Self {
            rings: Rings::new(ring, 0),
            window: ring.bytes(),
            max_pieces,
            early: BTreeMap::new(),
            padding: BTreeMap::new(),
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

    /// The first ring is this region.
    pub(crate) fn in_region(mut self, region: usize) -> Self {
        self.rings = Rings::new(self.rings.latest(), region);
        self
    }

    /// Returns credit for the very end of the stream, too.
    pub(crate) fn acknowledge_end(&mut self) {
        self.acknowledges_end = true;
    }

    /// Accepts announcements by immediate data.
    pub(crate) fn take_immediates(&mut self) {
        self.takes_immediates = true;
    }

    /// Accepts pieces of up to `most` bytes inside messages.
    pub(crate) fn take_inline(&mut self, most: u64) {
        self.inline_bytes = most;
    }

    /// A piece arrived inside a message. Returns the region and the place for its bytes, or `None` if
    /// they had arrived before.
    ///
    /// # Errors
    ///
    /// When the piece is not allowed or its range is invalid.
    pub(crate) fn carried(
        &mut self,
        start: u64,
        length: u64,
    ) -> Result<Option<(usize, Span)>, ReceiverError> {
        let most = self.inline_bytes;
        if length > most {
            return Err(ReceiverError::Inline { length, most });
        }
        let is_new = self.is_new(start);
        self.arrived(start, length)?;
        Ok(is_new.then(|| self.rings.place(start, length)))
    }

    /// A WRITE with immediate data has arrived.
    ///
    /// # Errors
    ///
    /// When it is not allowed or its range is invalid.
    pub(crate) fn written(&mut self, immediate: u32, length: u64) -> Result<(), ReceiverError> {
        if !self.takes_immediates {
            return Err(ReceiverError::Immediate);
        }
        // A repeated piece starts at most one ring before the credit that was last sent.
        let least = self.credited.saturating_sub(MOST_FOR_IMMEDIATES);
        self.arrived(place_of_immediate(immediate, least), length)
    }

    /// Whether an announced piece must still be fetched; `fetching` pieces are being fetched
    /// already.
    ///
    /// # Errors
    ///
    /// When its range is invalid.
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
        self.is_missing(start, start + length)
    }

    /// The peer announces a piece that it has written to the ring. `is_written` returns whether all
    /// bytes of a place in a region were really written.
    ///
    /// # Errors
    ///
    /// When the range is invalid or was not written.
    pub(crate) fn announced(
        &mut self,
        start: u64,
        length: u64,
        is_written: impl FnOnce(usize, Span) -> bool,
    ) -> Result<(), ReceiverError> {
        self.check(start, length)?;
        // A repeated piece that had arrived is not checked again.
        if self.is_new(start) {
            let (region, place) = self.rings.place(start, length);
            if !is_written(region, place) {
                let end = start + length;
                return Err(ReceiverError::NotWritten { start, end });
            }
        }
        self.arrived(start, length)
    }

    /// A piece is in the ring.
    ///
    /// # Errors
    ///
    /// When its range is invalid.
    pub(crate) fn arrived(&mut self, start: u64, length: u64) -> Result<(), ReceiverError> {
        self.check(start, length)?;
        let end = start + length;
        if !self.is_missing(start, end)? {
            // It was written again after its queue pair was lost, although it had arrived.
            return Ok(());
        }
        self.early.insert(start, end);
        if self.early.len() > self.max_pieces {
            return Err(ReceiverError::TooManyPieces(self.max_pieces));
        }
        while let Some(end) = self.early.remove(&self.ready) {
            self.ready = end;
            self.pieces += 1;
        }
        // Bytes before it may have been missing.
        self.pass_padding();
        self.check_end()
    }

    /// Whether a piece has not arrived.
    ///
    /// # Errors
    ///
    /// When another one has that overlaps with it.
    fn is_missing(&self, start: u64, end: u64) -> Result<bool, ReceiverError> {
        if end <= self.ready {
            return Ok(false);
        }
        let overlap = ReceiverError::Overlap { start, end };
        if start < self.ready {
            return Err(overlap);
        }
        match self.early.range(..end).next_back() {
            Some((&other_start, &other_end)) if other_end > start => {
                // A sender cuts pieces once, so a repeated piece has the same bounds.
                let is_same = (other_start, other_end) == (start, end);
                if is_same { Ok(false) } else { Err(overlap) }
            }
            _ => Ok(true),
        }
    }

    /// The stream ends at `at`.
    ///
    /// # Errors
    ///
    /// When that contradicts what has arrived.
    pub(crate) fn ended(&mut self, at: u64) -> Result<(), ReceiverError> {
        if self.end.is_some_and(|end| end != at) {
            return Err(ReceiverError::End { at });
        }
        self.end = Some(at);
        self.check_end()
    }

    /// The contiguous bytes that can be taken out of the ring next.
    pub(crate) fn ready(&self) -> Span {
        self.ready_from(self.consumed).span
    }

    /// The first `count` bytes of [`Receiver::ready`] were taken out.
    pub(crate) fn consume(&mut self, count: usize) {
        self.consumed += count as u64;
        debug_assert!(self.consumed <= self.ready, "only what is there is taken");
        self.pass_padding();
    }

    /// How many bytes arrived in order and were not taken out.
    pub(crate) fn arrived_bytes(&self) -> u64 {
        self.ready - self.consumed
    }

    /// How many bytes are in the ring: those, and what has arrived before others that precede it.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.last_arrived() - self.consumed
    }

    /// How many bytes of the stream were taken out.
    pub(crate) fn consumed(&self) -> u64 {
        self.consumed
    }

    /// Whether the whole stream has arrived.
    pub(crate) fn has_all(&self) -> bool {
        self.end == Some(self.ready)
    }

    /// Whether the end of the stream is known.
    pub(crate) fn has_ended(&self) -> bool {
        self.end.is_some()
    }

    /// Whether the whole stream was taken out.
    pub(crate) fn is_finished(&self) -> bool {
        self.end == Some(self.consumed)
    }

    /// Whether the piece at `start` has not arrived before.
    fn is_new(&self, start: u64) -> bool {
        start >= self.ready && !self.early.contains_key(&start)
    }

    /// The end of the last piece that has arrived.
    fn last_arrived(&self) -> u64 {
        let last = self.early.last_key_value();
        last.map_or(self.ready, |(_, &end)| end)
    }

    fn check(&self, start: u64, length: u64) -> Result<(), ReceiverError> {
        if length == 0 {
            return Err(ReceiverError::Empty);
        }
        let limit = self.limit();
        let end = start.saturating_add(length);
        if end > limit {
            return Err(ReceiverError::BeyondCredit { end, limit });
        }
        if length > self.rings.contiguous(start) {
            return Err(ReceiverError::AcrossTheEnd);
        }
        Ok(())
    }

    fn check_end(&self) -> Result<(), ReceiverError> {
        match self.end {
            Some(at) if at < self.last_arrived() => Err(ReceiverError::End { at }),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
