//! Sets of byte ranges: what arrived, what is missing, what a restart leaves out.
//!
//! Ends are exclusive everywhere, as in the `111` markers and `REST` lines of the field's programs.
//! A set takes memory for every gap in it, not for every byte; who adds ranges that a peer chose
//! bounds [`RangeSet::len`].

use std::fmt;
use std::ops::Range;

use crate::command::Shown;
use crate::number::decimal;

/// The largest file offset: the kernel's are signed.
pub const MAX_OFFSET: u64 = i64::MAX as u64;

/// How many ranges a `REST` line may name.
pub const MAX_PARSED_RANGES: usize = 4096;

/// Disjoint ranges of bytes, in order, with no two of them adjacent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RangeSet {
    ranges: Vec<Range<u64>>,
}

/// A range that has bytes in common with one that is there already.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}-{} has bytes in common with {}-{}", wanted.start, wanted.end, present.start, present.end)]
pub struct Overlap {
    /// The range that was to be added.
    pub wanted: Range<u64>,
    /// The range that was there.
    pub present: Range<u64>,
}

/// Text that is no list of ranges.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    /// A piece that is neither `first-end` nor one number.
    #[error("'{0}' is no range; a restart is written as 1234 or as 0-1000,2000-3000")]
    Syntax(Shown),
    /// The end is before the start.
    #[error("the range {0}-{1} ends before it starts")]
    Backwards(u64, u64),
    /// A number that no file offset can have.
    #[error("{0} is past the largest file offset, {MAX_OFFSET}")]
    TooLarge(Shown),
    /// More ranges than are accepted.
    #[error("the line names more than {MAX_PARSED_RANGES} ranges")]
    TooMany,
}

impl RangeSet {
    /// The empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether there is no byte in the set.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// How many ranges there are.
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// How many bytes there are.
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

    /// Adds a range; bytes that are there already stay.
    pub fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        match self.ranges.last_mut() {
            Some(last) if range.start < last.end => self.merge(range),
            // Blocks mostly come in order.
            Some(last) if range.start == last.end => last.end = range.end,
            _ => self.ranges.push(range),
        }
    }

    /// Adds a range of which no byte is there.
    ///
    /// # Errors
    ///
    /// When a byte is; the set stays as it was.
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

    /// Reads the argument of `REST`: one number for all bytes before it (RFC 3659 5.3), or a list
    /// of ranges (GFD.20, restart), which globus-url-copy writes as it got them in `111`.
    ///
    /// # Errors
    ///
    /// When the text is neither, or names offsets that no file has.
    pub fn parse_rest(text: &[u8]) -> Result<Self, RangeError> {
        if !text.contains(&b'-') && !text.contains(&b',') {
            return Ok(Self::from(0..offset(text, text)?));
        }
        let mut set = Self::new();
        for (index, piece) in text.split(|&byte| byte == b',').enumerate() {
            if index == MAX_PARSED_RANGES {
                return Err(RangeError::TooMany);
            }
            set.insert(parse_range(piece.trim_ascii())?);
        }
        Ok(set)
    }

    /// Adds a range that begins before the end of the last one.
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

fn parse_range(piece: &[u8]) -> Result<Range<u64>, RangeError> {
    let syntax = || RangeError::Syntax(Shown::new(piece));
    let dash = piece
        .iter()
        .position(|&byte| byte == b'-')
        .ok_or_else(syntax)?;
    let start = offset(&piece[..dash], piece)?;
    let end = offset(&piece[dash + 1..], piece)?;
    if end < start {
        return Err(RangeError::Backwards(start, end));
    }
    Ok(start..end)
}

fn offset(digits: &[u8], piece: &[u8]) -> Result<u64, RangeError> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(RangeError::Syntax(Shown::new(piece)));
    }
    decimal(digits)
        .filter(|&offset| offset <= MAX_OFFSET)
        .ok_or_else(|| RangeError::TooLarge(Shown::new(digits)))
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

/// The form of `111` markers and of `REST`.
impl fmt::Display for RangeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, range) in self.ranges.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{}-{}", range.start, range.end)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// Offsets in the model are small, so that ranges meet.
    const BOUND: u64 = 64;

    fn set(text: &str) -> RangeSet {
        RangeSet::parse_rest(text.as_bytes()).expect("a restart")
    }

    fn refused(text: &str) -> String {
        let error = RangeSet::parse_rest(text.as_bytes()).expect_err("no restart");
        error.to_string()
    }

    #[test]
    fn a_restart_is_one_number_or_a_list() {
        assert_eq!(set("0"), RangeSet::new());
        assert_eq!(set("1234").to_string(), "0-1234");
        assert_eq!(set("0-10,20-30").to_string(), "0-10,20-30");
        assert_eq!(set("0-10, 20-30").to_string(), "0-10,20-30");
        assert_eq!(set("20-30,0-10,10-20").to_string(), "0-30");
        assert_eq!(set("0-0"), RangeSet::new());
        assert_eq!(set("0-9223372036854775807").covered(), MAX_OFFSET);
    }

    #[test]
    fn what_is_wrong_with_a_restart_is_named() {
        for text in [
            "", "abc", "100-", "-100", "0-10,", "0-10,20", "1-2-3", "+5", "5 6", "0-+1",
        ] {
            assert!(refused(text).contains("is no range"), "{text}");
        }
        assert_eq!(refused("20-10"), "the range 20-10 ends before it starts");
        for text in ["9223372036854775808", "0-18446744073709551616"] {
            assert!(
                refused(text).contains("past the largest file offset"),
                "{text}"
            );
        }
        assert!(refused(&"9".repeat(60_000)).len() < 200);
    }

    #[test]
    fn a_line_names_a_bounded_number_of_ranges() {
        let line = |count: usize| {
            let ranges: Vec<String> = (0..count)
                .map(|n| format!("{}-{}", 2 * n, 2 * n + 1))
                .collect();
            ranges.join(",")
        };
        assert_eq!(set(&line(MAX_PARSED_RANGES)).len(), MAX_PARSED_RANGES);
        assert_eq!(
            RangeSet::parse_rest(line(MAX_PARSED_RANGES + 1).as_bytes()),
            Err(RangeError::TooMany)
        );
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

        #[test]
        fn a_written_set_reads_the_same(
            bounds in vec((0..=MAX_OFFSET, 0..=MAX_OFFSET), 1..20),
        ) {
            let set: RangeSet = bounds.into_iter().map(|(a, b)| a.min(b)..a.max(b)).collect();
            prop_assume!(!set.is_empty());
            prop_assert_eq!(RangeSet::parse_rest(set.to_string().as_bytes()), Ok(set));
        }

        #[test]
        fn any_bytes_are_a_restart_or_an_error(
            text in vec(any::<u8>(), 0..60),
            digits in "[0-9, -]{0,60}",
        ) {
            let _ = RangeSet::parse_rest(&text);
            let _ = RangeSet::parse_rest(digits.as_bytes());
        }
    }
}
