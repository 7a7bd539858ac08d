//! The text form of a range set, as in `REST` and in `111` markers.

use std::fmt;
use std::ops::Range;

use super::{MAX_OFFSET, RangeSet};
use crate::excerpt::Excerpt;
use crate::number::decimal;

/// The most ranges of a `REST` command.
pub const MAX_PARSED_RANGES: usize = 4096;

/// Text that is not a valid list of ranges.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    /// An item that is neither `start-end` nor a number.
    #[error("'{0}' is no range; a restart is written as 1234 or as 0-1000,2000-3000")]
    Syntax(Excerpt),
    /// The end is before the start.
    #[error("the range {0}-{1} ends before it starts")]
    Backwards(u64, u64),
    /// A number greater than the largest file offset.
    #[error("{0} is past the largest file offset, {MAX_OFFSET}")]
    TooLarge(Excerpt),
    /// More than [`MAX_PARSED_RANGES`].
    #[error("the line names more than {MAX_PARSED_RANGES} ranges")]
    TooMany,
}

impl RangeSet {
    /// Reads the argument of `REST`: one number for all bytes before it (RFC 3659 5.3), or a list of ranges (GFD.20, restart),
    /// which globus-url-copy copies from `111` markers.
    ///
    /// # Errors
    ///
    /// When the text has another form, or offsets are too large.
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
}

fn parse_range(piece: &[u8]) -> Result<Range<u64>, RangeError> {
    let syntax = || RangeError::Syntax(Excerpt::new(piece));
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
        return Err(RangeError::Syntax(Excerpt::new(piece)));
    }
    decimal(digits)
        .filter(|&offset| offset <= MAX_OFFSET)
        .ok_or_else(|| RangeError::TooLarge(Excerpt::new(digits)))
}

/// The format of `111` markers and of `REST`.
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
    fn errors_of_restarts_name_the_cause() {
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

    proptest! {
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
