//! Sets of byte ranges: received bytes, missing bytes, and bytes that a restart skips.
//!
//! Ends are exclusive, as in the `111` markers and `REST` commands of GridFTP programs. A set takes memory for each gap. Callers
//! that add ranges chosen by a peer must bound [`RangeSet::len`].

mod rest;

use std::ops::Range;

pub use rest::{MAX_PARSED_RANGES, RangeError};

/// The largest file offset: `off_t` is signed.
pub const MAX_OFFSET: u64 = i64::MAX as u64;

/// Disjoint, non-adjacent ranges of bytes in ascending order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RangeSet {
    ranges: Vec<Range<u64>>,
}

/// A range that overlaps one in the set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}-{} has bytes in common with {}-{}", wanted.start, wanted.end, present.start, present.end)]
pub struct Overlap {
    /// The new range.
    pub wanted: Range<u64>,
    /// The range in the set.
    pub present: Range<u64>,
}

impl RangeSet {
    /// The empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The number of ranges.
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// The number of bytes.
    pub fn covered(&self) -> u64 {
        self.ranges
            .iter()
            .map(|range| range.end - range.start)
            .sum()
    }

    /// The ranges, in order.
    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.ranges.iter().cloned()
    }

    /// One past the last byte; 0 for the empty set.
    pub fn end(&self) -> u64 {
        self.ranges.last().map_or(0, |range| range.end)
    }

    /// Whether all bytes of `range` are in the set.
    pub fn contains(&self, range: &Range<u64>) -> bool {
        if range.is_empty() {
            return true;
        }
        let index = self.first_ending_after(range.start);
        self.ranges
            .get(index)
            .is_some_and(|present| present.start <= range.start && range.end <= present.end)
    }

    /// Adds a range, which may overlap the set.
    pub fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        match self.ranges.last_mut() {
            Some(last) if range.start < last.end => self.merge(range),
            // Blocks mostly arrive in order.
            Some(last) if range.start == last.end => last.end = range.end,
            _ => self.ranges.push(range),
        }
    }

    /// Adds a range that must not overlap the set.
    ///
    /// # Errors
    ///
    /// When it overlaps; the set is unchanged.
    pub fn insert_disjoint(&mut self, range: Range<u64>) -> Result<(), Overlap> {
        if !range.is_empty()
            && range.start < self.end()
            && let Some(present) = self.ranges.get(self.first_ending_after(range.start))
            && present.start < range.end
        {
            return Err(Overlap {
                wanted: range,
                present: present.clone(),
            });
        }
        self.insert(range);
        Ok(())
    }

    /// Adds all ranges of another set.
    pub fn extend_from(&mut self, other: &Self) {
        for range in other.iter() {
            self.insert(range);
        }
    }

    /// The parts of `bounds` that are not in the set, in order.
    pub fn missing_in(&self, bounds: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let end = bounds.end;
        let mut at = bounds.start;
        let mut present = self.ranges[self.first_ending_after(at)..].iter();
        std::iter::from_fn(move || {
            while at < end {
                let start = at;
                let next = present.next();
                let gap_end = next.map_or(end, |range| range.start.min(end));
                at = next.map_or(end, |range| range.end);
                if start < gap_end {
                    return Some(start..gap_end);
                }
            }
            None
        })
    }

    /// Adds a range that starts before the end of the last one.
    fn merge(&mut self, range: Range<u64>) {
        let first = self.ranges.partition_point(|has| has.end < range.start);
        let after = self.ranges.partition_point(|has| has.start <= range.end);
        let merged = match &self.ranges[first..after] {
            [] => range,
            [lowest, ..] => {
                let highest = &self.ranges[after - 1];
                range.start.min(lowest.start)..range.end.max(highest.end)
            }
        };
        self.ranges.splice(first..after, [merged]);
    }

    fn first_ending_after(&self, offset: u64) -> usize {
        self.ranges.partition_point(|range| range.end <= offset)
    }
}

impl From<Range<u64>> for RangeSet {
    fn from(range: Range<u64>) -> Self {
        let mut set = Self::new();
        set.insert(range);
        set
    }
}

impl FromIterator<Range<u64>> for RangeSet {
    fn from_iter<I: IntoIterator<Item = Range<u64>>>(ranges: I) -> Self {
        let mut set = Self::new();
        for range in ranges {
            set.insert(range);
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// Offsets in the model are small, so that ranges overlap often.
    const BOUND: u64 = 64;

    fn set(text: &str) -> RangeSet {
        RangeSet::parse_rest(text.as_bytes()).expect("a restart")
    }

    #[test]
    fn blocks_in_order_are_one_range() {
        let mut set = RangeSet::new();
        for block in 0..1000 {
            set.insert_disjoint(block * 10..block * 10 + 10)
                .expect("no overlap");
        }
        assert_eq!(set, RangeSet::from(0..10_000));
    }

    #[test]
    fn an_overlap_names_both_ranges() {
        let mut set = set("0-10,20-30");
        let overlap = set.insert_disjoint(5..25).expect_err("an overlap");
        assert_eq!(overlap.to_string(), "5-25 has bytes in common with 0-10");
        assert_eq!(set.to_string(), "0-10,20-30");
    }

    /// A range within the model's bounds, perhaps empty.
    fn range() -> impl Strategy<Value = Range<u64>> {
        (0..BOUND, 0..12_u64).prop_map(|(start, length)| start..(start + length).min(BOUND))
    }

    fn model(ranges: &[Range<u64>]) -> Vec<bool> {
        let has = |byte| ranges.iter().any(|range| range.contains(&byte));
        (0..BOUND).map(has).collect()
    }

    fn bytes(ranges: impl Iterator<Item = Range<u64>>) -> Vec<bool> {
        model(&ranges.collect::<Vec<_>>())
    }

    /// How many bytes of `range` are in the model.
    fn present(model: &[bool], range: &Range<u64>) -> u64 {
        let inside = model[slots(range)].iter().filter(|&&has| has);
        inside.count() as u64
    }

    fn slots(range: &Range<u64>) -> Range<usize> {
        let slot = |offset: u64| usize::try_from(offset).expect("the model is small");
        slot(range.start)..slot(range.end)
    }

    proptest! {
        #[test]
        fn a_set_has_the_bytes_that_were_added(ranges in vec(range(), 0..20), asked in range()) {
            let set: RangeSet = ranges.iter().cloned().collect();
            let model = model(&ranges);
            prop_assert_eq!(&bytes(set.iter()), &model);

            let runs: Vec<Range<u64>> = set.iter().collect();
            prop_assert!(runs.iter().all(|run| !run.is_empty()));
            prop_assert!(runs.windows(2).all(|pair| pair[0].end < pair[1].start));

            prop_assert_eq!(set.covered(), present(&model, &(0..BOUND)));
            prop_assert_eq!(set.len(), runs.len());
            prop_assert_eq!(set.end(), runs.last().map_or(0, |run| run.end));
            let there = present(&model, &asked);
            let asked_bytes = asked.end - asked.start;
            prop_assert_eq!(set.contains(&asked), there == asked_bytes);

            let missing: RangeSet = set.missing_in(asked.clone()).collect();
            prop_assert_eq!(missing.covered(), asked_bytes - there);
            for gap in missing.iter() {
                prop_assert_eq!(present(&model, &gap), 0);
                prop_assert!(asked.start <= gap.start && gap.end <= asked.end);
            }
        }

        #[test]
        fn disjoint_ranges_are_added_and_others_refused(ranges in vec(range(), 0..20)) {
            let mut set = RangeSet::new();
            let mut model = model(&[]);
            for range in ranges {
                let free = present(&model, &range) == 0;
                let before = set.clone();
                match set.insert_disjoint(range.clone()) {
                    Ok(()) => {
                        prop_assert!(free);
                        model[slots(&range)].fill(true);
                    }
                    Err(Overlap { wanted, present }) => {
                        prop_assert!(!free);
                        prop_assert_eq!(&set, &before);
                        prop_assert_eq!(wanted, range.clone());
                        prop_assert!(present.start < range.end && range.start < present.end);
                        prop_assert!(set.iter().any(|has| has == present));
                    }
                }
                prop_assert_eq!(&bytes(set.iter()), &model);
            }
        }

        #[test]
        fn a_union_has_the_bytes_of_both(
            left in vec(range(), 0..10),
            right in vec(range(), 0..10),
        ) {
            let mut union: RangeSet = left.iter().cloned().collect();
            union.extend_from(&right.iter().cloned().collect());
            prop_assert_eq!(bytes(union.iter()), model(&[left, right].concat()));
        }
    }
}
