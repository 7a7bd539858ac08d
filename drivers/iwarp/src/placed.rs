//! The bytes of the peer's window that were written since the peer last got credit for them, by
//! address.
//!
//! A peer announces its bytes after it has written them. If it announces bytes that it has not
//! written, the memory holds older content: an earlier file of the same channel, or zeros. Ranges
//! are added when all their bytes have arrived, and removed when the peer gets credit to fill them
//! again.
//!
//! A correct peer writes each piece from its beginning to its end, so there are at most as many runs
//! as pieces in flight. A peer that writes to more places at a time is refused, so it cannot use up
//! our memory.

use std::collections::BTreeMap;

use crate::buffer::Span;

/// The written bytes as runs that do not touch.
#[derive(Debug)]
pub(crate) struct Placed {
    /// Start and end.
    runs: BTreeMap<usize, usize>,
    most_runs: usize,
}

/// The peer wrote to more places than pieces can be in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("WRITEs to more than {0} places that do not touch each other")]
pub(crate) struct Scattered(usize);

impl Placed {
    pub(crate) fn new(most_runs: usize) -> Self {
        Self {
            runs: BTreeMap::new(),
            most_runs,
        }
    }

    /// All bytes of a part have arrived.
    ///
    /// # Errors
    ///
    /// When there are too many runs.
    pub(crate) fn add(&mut self, part: Span) -> Result<(), Scattered> {
        if part.length == 0 {
            return Ok(());
        }
        let (mut start, mut end) = (part.offset, part.offset + part.length);
        while let Some((&other_start, &other_end)) = self.runs.range(..=end).next_back()
            && other_end >= start
        {
            self.runs.remove(&other_start);
            (start, end) = (start.min(other_start), end.max(other_end));
        }
        self.runs.insert(start, end);
        if self.runs.len() > self.most_runs {
            return Err(Scattered(self.most_runs));
        }
        Ok(())
    }

    /// Whether all bytes of a part have arrived.
    pub(crate) fn covers(&self, part: Span) -> bool {
        let (start, end) = (part.offset, part.offset + part.length);
        let run = self.runs.range(..=start).next_back();
        part.length == 0 || run.is_some_and(|(_, &run_end)| end <= run_end)
    }

    /// The bytes of a part must be written again.
    pub(crate) fn forget(&mut self, part: Span) {
        if part.length == 0 {
            return;
        }
        let (start, end) = (part.offset, part.offset + part.length);
        while let Some((&run_start, &run_end)) = self.runs.range(..end).next_back()
            && run_end > start
        {
            self.runs.remove(&run_start);
            if run_start < start {
                self.runs.insert(run_start, start);
            }
            if run_end > end {
                self.runs.insert(end, run_end);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: usize = 6;

    /// All parts of a memory of [`BYTES`] bytes, empty ones included.
    fn parts() -> impl Iterator<Item = Span> {
        (0..=BYTES).flat_map(|start| (start..=BYTES).map(move |end| Span::new(start, end - start)))
    }

    /// The bytes of a part, one bit for each.
    fn bits(part: Span) -> u32 {
        ((1 << part.length) - 1) << part.offset
    }

    /// The runs of a set of bits.
    fn placed(set: u32) -> Placed {
        let mut placed = Placed::new(BYTES);
        for byte in (0..BYTES).filter(|byte| set >> byte & 1 == 1) {
            placed.add(Span::new(byte, 1)).unwrap();
        }
        placed
    }

    fn assert_is(placed: &Placed, set: u32) {
        for part in parts() {
            let is_there = set & bits(part) == bits(part);
            assert_eq!(placed.covers(part), is_there, "{part:?} of {placed:?}");
        }
        let ends: Vec<_> = placed.runs.iter().collect();
        assert!(ends.windows(2).all(|runs| runs[0].1 < runs[1].0));
    }

    /// Every operation on every set of bytes, compared with a set of bits.
    #[test]
    fn runs_are_sets_of_bytes() {
        for set in 0..1 << BYTES {
            assert_is(&placed(set), set);
            for part in parts() {
                let mut added = placed(set);
                added.add(part).unwrap();
                assert_is(&added, set | bits(part));
                let mut left = placed(set);
                left.forget(part);
                assert_is(&left, set & !bits(part));
            }
        }
    }

    #[test]
    fn a_peer_that_writes_everywhere_is_refused() {
        let mut placed = Placed::new(2);
        assert_eq!(placed.add(Span::new(0, 1)), Ok(()));
        assert_eq!(placed.add(Span::new(2, 1)), Ok(()));
        assert_eq!(placed.add(Span::new(1, 1)), Ok(()));
        assert_eq!(placed.add(Span::new(4, 1)), Ok(()));
        assert_eq!(placed.add(Span::new(6, 1)), Err(Scattered(2)));
    }
}
