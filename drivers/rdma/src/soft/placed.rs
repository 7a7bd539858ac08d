//! Which bytes of the memory that a peer writes to have come since the peer was given that place.
//!
//! A peer announces its bytes after it has written them. What it announces and has not written would be what was there before:
//! bytes of an earlier file, or zeros. Places are added when their bytes are all there, and taken away when the peer is told
//! that it may fill them anew.
//!
//! An engine writes each piece from its beginning to its end, so there are no more runs of bytes than pieces; a peer
//! that writes to more places at a time is not one, and must not cost us memory.

use std::collections::BTreeMap;

use crate::memory::Span;

/// The bytes that have come, as runs that do not touch each other.
#[derive(Debug)]
pub(super) struct Placed {
    /// By start: the end.
    runs: BTreeMap<usize, usize>,
    most_runs: usize,
}

/// The peer wrote to more places than pieces can be under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("WRITEs to more than {0} places that do not touch each other")]
pub(super) struct Scattered(usize);

impl Placed {
    pub(super) fn new(most_runs: usize) -> Self {
        Self {
            runs: BTreeMap::new(),
            most_runs,
        }
    }

    /// The bytes of a part have come.
    ///
    /// # Errors
    ///
    /// When there are too many runs.
    pub(super) fn add(&mut self, part: Span) -> Result<(), Scattered> {
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

    /// Whether all bytes of a part have come.
    pub(super) fn covers(&self, part: Span) -> bool {
        let (start, end) = (part.offset, part.offset + part.length);
        let run = self.runs.range(..=start).next_back();
        part.length == 0 || run.is_some_and(|(_, &run_end)| end <= run_end)
    }

    /// The bytes of a part have to come anew.
    pub(super) fn forget(&mut self, part: Span) {
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

    /// All parts of a memory of [`BYTES`] bytes, empty ones as well.
    fn parts() -> impl Iterator<Item = Span> {
        (0..=BYTES).flat_map(|start| (start..=BYTES).map(move |end| Span::new(start, end - start)))
    }

    /// The bytes of a part, one bit for each.
    fn bits(part: Span) -> u32 {
        ((1 << part.length) - 1) << part.offset
    }

    /// Runs from a set of bits.
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

    /// Every operation on every set of bytes, against a set of bits.
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
