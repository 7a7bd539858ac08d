//! Times of commands and facts: `YYYYMMDDHHMMSS`, always in UTC (RFC 3659 2.3).
//!
//! `MDTM`, `MFMT`, `SITE UTIME` and the fact `Modify` use this format.

use std::fmt;

use jiff::Timestamp;
use jiff::civil::{Date, DateTime};
use jiff::tz::Offset;

use crate::excerpt::Excerpt;
use crate::number::{append_padded, decimal};

/// A time that is written in whole seconds of UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimeValue(pub Timestamp);

/// Text that is not a valid time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TimeError {
    /// Not fourteen digits.
    #[error("'{0}' is no time; it is written as YYYYMMDDHHMMSS in UTC, such as 20261120092338")]
    Form(Excerpt),
    /// A part of the date or time is out of its range.
    #[error(
        "{value} cannot be the {part} of the time '{given}': it must be from {first} to {last}"
    )]
    Part {
        /// The whole text.
        given: Excerpt,
        /// The part.
        part: &'static str,
        /// Its value.
        value: i8,
        /// The least valid value.
        first: i8,
        /// The greatest valid value.
        last: i8,
    },
    /// Near the end of the year 9999, which cannot be represented in all time zones.
    #[error("'{0}' is too late; the last time is 99991230220000")]
    TooLate(Excerpt),
}

/// The number of digits before the fraction.
const DIGITS: usize = 14;

impl TimeValue {
    /// Reads `YYYYMMDDHHMMSS`, optionally followed by a point and a fraction, of which nine digits are used. The second 60 is for
    /// leap seconds (RFC 3659 2.3), which POSIX clocks do not have: it becomes 59.
    ///
    /// # Errors
    ///
    /// When the text has another form, or the date or the time of day does not exist.
    pub fn parse(text: &[u8]) -> Result<Self, TimeError> {
        let form = || TimeError::Form(Excerpt::new(text));
        let (whole, fraction) = match text.iter().position(|&byte| byte == b'.') {
            Some(point) => (&text[..point], nanoseconds(&text[point + 1..])),
            None => (text, Some(0)),
        };
        let fraction = fraction.ok_or_else(form)?;
        if whole.len() != DIGITS {
            return Err(form());
        }
        let part = |part, at: usize, first: i8, last: i8| {
            let value = decimal(&whole[at..at + 2]).ok_or_else(form)?;
            if (first..=last).contains(&value) {
                return Ok(value);
            }
            Err(TimeError::Part {
                given: Excerpt::new(text),
                part,
                value,
                first,
                last,
            })
        };
        let year = decimal(&whole[..4]).ok_or_else(form)?;
        let month = part("month", 4, 1, 12)?;
        let days = Date::new(year, month, 1).map_or(31, Date::days_in_month);
        let day = part("day", 6, 1, days)?;
        let hour = part("hour", 8, 0, 23)?;
        let minute = part("minute", 10, 0, 59)?;
        let second = part("second", 12, 0, 60)?.min(59);
        DateTime::new(year, month, day, hour, minute, second, fraction)
            .and_then(|time| Offset::UTC.to_timestamp(time))
            .map(Self)
            .map_err(|_| TimeError::TooLate(Excerpt::new(text)))
    }
}

impl TimeValue {
    /// Appends the fourteen digits, without the fraction, as in globus-gridftp-server 13.24.
    pub(crate) fn append(self, text: &mut Vec<u8>) {
        let time = Offset::UTC.to_datetime(self.0);
        // A file system may return any year, and the format has no sign.
        let year = time.year().max(0).unsigned_abs();
        let parts = [
            time.month(),
            time.day(),
            time.hour(),
            time.minute(),
            time.second(),
        ];
        let mut number = u64::from(year);
        for part in parts {
            number = number * 100 + u64::from(part.unsigned_abs());
        }
        append_padded(text, number, DIGITS);
    }
}

/// Reads the digits of a fraction of a second.
fn nanoseconds(digits: &[u8]) -> Option<i32> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let padded = digits.iter().chain(std::iter::repeat(&b'0')).take(9);
    Some(padded.fold(0, |sum, &digit| sum * 10 + i32::from(digit - b'0')))
}

/// The fourteen digits.
impl fmt::Display for TimeValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = Vec::with_capacity(DIGITS);
        self.append(&mut text);
        f.write_str(&String::from_utf8_lossy(&text))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn seconds(text: &str) -> i64 {
        let time = TimeValue::parse(text.as_bytes()).expect("a time");
        time.0.as_second()
    }

    fn refused(text: &str) -> String {
        let error = TimeValue::parse(text.as_bytes()).expect_err("no time");
        error.to_string()
    }

    #[test]
    fn times_are_in_utc() {
        assert_eq!(seconds("19700101000000"), 0);
        assert_eq!(seconds("20261120092338"), 1_795_166_618);
        assert_eq!(seconds("20240229235959"), 1_709_251_199);
        assert_eq!(seconds("19600102000000"), -315_532_800);
        assert_eq!(seconds("20161231235960"), seconds("20161231235959"));
    }

    #[test]
    fn a_fraction_is_kept_but_not_written() {
        let time = TimeValue::parse(b"20261120092338.0625").expect("a time");
        assert_eq!(time.0.subsec_nanosecond(), 62_500_000);
        assert_eq!(time.to_string(), "20261120092338");
        let long = TimeValue::parse(b"20261120092338.1234567899999").expect("a time");
        assert_eq!(long.0.subsec_nanosecond(), 123_456_789);
    }

    #[test]
    fn errors_name_the_cause() {
        for text in [
            "",
            "202611200923",
            "2026112009233",
            "202611200923380",
            "20261120092338.",
            "20261120092338.1.2",
            "20261120T92338",
            "+2026112009233",
            "2026-11-20 9:0",
            "20261120 92338",
        ] {
            assert!(refused(text).contains("is no time"), "{text}");
        }
        for (text, wrong) in [
            ("20261320092338", "13 cannot be the month"),
            ("20260020092338", "0 cannot be the month"),
            ("20260229092338", "29 cannot be the day"),
            ("20261120242338", "24 cannot be the hour"),
            ("20261120096038", "60 cannot be the minute"),
            ("20261120092361", "61 cannot be the second"),
        ] {
            assert!(refused(text).starts_with(wrong), "{}", refused(text));
        }
        assert!(refused("20260229092338").ends_with("it must be from 1 to 28"));
        assert!(refused("99991231235959").contains("too late"));
    }

    #[test]
    fn times_before_christ_have_fourteen_digits_too() {
        assert_eq!(TimeValue(Timestamp::MIN).to_string().len(), DIGITS);
    }

    proptest! {
        #[test]
        fn a_written_time_reads_the_same(second in -62_167_219_200..=Timestamp::MAX.as_second()) {
            let time = TimeValue(Timestamp::from_second(second).unwrap());
            prop_assert_eq!(TimeValue::parse(time.to_string().as_bytes()), Ok(time));
        }

        #[test]
        fn any_bytes_are_a_time_or_an_error(
            text in prop::collection::vec(any::<u8>(), 0..30),
            digits in "[0-9]{14}(\\.[0-9]{0,12})?",
        ) {
            let _ = TimeValue::parse(&text);
            let _ = TimeValue::parse(digits.as_bytes());
        }
    }
}
