//! Sets of byte ranges: what arrived, what is missing, what a restart leaves out.
//!
//! Ends are exclusive everywhere, as in the `111` markers and `REST` lines of the field's programs.

use std::fmt;
use std::ops::Range;

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
    Syntax(String),
    /// The end is before the start.
    #[error("the range {0}-{1} ends before it starts")]
    Backwards(u64, u64),
    /// A number that no file offset can have.
    #[error("{0} is past the largest file offset, {MAX_OFFSET}")]
    TooLarge(String),
    /// More ranges than are accepted.
    #[error("more than {MAX_PARSED_RANGES} ranges in one line")]
    TooMany,
}

/// The largest file offset: the kernel's are signed.
pub const MAX_OFFSET: u64 = i64::MAX as u64;

/// How many ranges a line may name.
pub const MAX_PARSED_RANGES: usize = 4096;

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
        // Blocks mostly come in order: the last range grows.
        match self.ranges.last_mut() {
            Some(last) if last.end == range.start => {
                last.end = range.end;
                return;
            }
            Some(last) if last.end > range.start => {}
            _ => {
                self.ranges.push(range);
                return;
            }
        }
        let first = self
            .ranges
            .partition_point(|present| present.end < range.start);
        let last = self
            .ranges
            .partition_point(|present| present.start <= range.end);
        let merged = if first == last {
            range
        } else {
            range.start.min(self.ranges[first].start)..range.end.max(self.ranges[last - 1].end)
        };
        self.ranges.splice(first..last, [merged]);
    }

    /// Adds a range of which no byte is there.
    ///
    /// # Errors
    ///
    /// When a byte is; the set stays as it was.
    pub fn insert_disjoint(&mut self, range: Range<u64>) -> Result<(), Overlap> {
        if range.is_empty() {
            return Ok(());
        }
        if let Some(present) = self.ranges.get(self.first_ending_after(range.start))
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

    /// Reads the argument of `REST`: one number for all bytes before it, or a list of ranges.
    ///
    /// # Errors
    ///
    /// When the text is neither, or names offsets that no file has.
    pub fn parse_rest(text: &[u8]) -> Result<Self, RangeError> {
        let text = std::str::from_utf8(text)
            .map_err(|_| RangeError::Syntax(String::from_utf8_lossy(text).into_owned()))?;
        let mut set = Self::new();
        for (index, piece) in text.split(',').enumerate() {
            if index == MAX_PARSED_RANGES {
                return Err(RangeError::TooMany);
            }
            let piece = piece.trim_matches(' ');
            let range = match piece.split_once('-') {
                Some((start, end)) => offset(piece, start)?..offset(piece, end)?,
                // RFC 3659 5.3: one number is the byte to begin at.
                None if index == 0 && !text.contains(',') => 0..offset(piece, piece)?,
                None => return Err(RangeError::Syntax(piece.to_owned())),
            };
            if range.end < range.start {
                return Err(RangeError::Backwards(range.start, range.end));
            }
            set.insert(range);
        }
        Ok(set)
    }

    fn first_ending_after(&self, offset: u64) -> usize {
        self.ranges.partition_point(|range| range.end <= offset)
    }
}

fn offset(piece: &str, digits: &str) -> Result<u64, RangeError> {
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(RangeError::Syntax(piece.to_owned()));
    }
    digits
        .parse()
        .ok()
        .filter(|&offset| offset <= MAX_OFFSET)
        .ok_or_else(|| RangeError::TooLarge(digits.to_owned()))
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
