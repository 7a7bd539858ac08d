//! Markers: preliminary replies about the progress of a transfer or a checksum.
//!
//! `112` is the progress of a stripe, `111` the ranges that are stored (GFD.20, performance and restart markers), and `113` the
//! progress of a checksum. The caller decides when to send them. `112` and `111` are for MODE E only: in stream mode
//! globus-url-copy 10.12 derives an invalid `REST` from a `111`.

#[cfg(test)]
mod tests;

use jiff::Timestamp;

use crate::excerpt::Excerpt;
use crate::line::MAX_LINE_BYTES;
use crate::number::decimal;
use crate::ranges::{RangeError, RangeSet};
use crate::reply::Reply;

/// The progress of one stripe: reply 112.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PerformanceMarker {
    /// The time of the measurement; written in tenths of a second.
    pub timestamp: Timestamp,
    /// The stripe; less than `stripe_count`, which is the length of an array in globus-url-copy.
    pub stripe_index: usize,
    /// The bytes of it that were transferred.
    pub stripe_bytes: u64,
    /// The number of stripes.
    pub stripe_count: usize,
}

/// The bytes that are stored and need not be sent again: reply 111.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestartMarker(pub RangeSet);

/// The progress of a checksum: reply 113.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChecksumMarker {
    /// The time of the measurement; written in tenths of a second.
    pub timestamp: Timestamp,
    /// The bytes that were read.
    pub bytes: u64,
}

/// Why a reply is not a valid marker. The server is at fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MarkerError {
    /// The reply has another code.
    #[error("the reply {0} is no such marker")]
    Code(u16),
    /// A required line is missing.
    #[error("the performance marker has no line '{0}:'")]
    Missing(&'static str),
    /// The value of a line is not a number.
    #[error("the performance marker has '{value}' as its {label}, which is no number")]
    Number {
        /// The text before the colon.
        label: &'static str,
        /// The text after the colon.
        value: Excerpt,
    },
    /// The index is not less than the number of stripes.
    #[error("the performance marker is of stripe {index}, but there are only {count}")]
    StripeIndex {
        /// Stripe Index.
        index: usize,
        /// Total Stripe Count.
        count: usize,
    },
    /// The ranges are invalid.
    #[error("the restart marker is wrong: {0}")]
    Ranges(#[from] RangeError),
}

const TIMESTAMP: &str = "Timestamp";
const STRIPE_INDEX: &str = "Stripe Index";
const STRIPE_BYTES: &str = "Stripe Bytes Transferred";
const STRIPE_COUNT: &str = "Total Stripe Count";

impl PerformanceMarker {
    /// The reply code.
    pub const CODE: u16 = 112;

    /// The marker as a reply. globus-url-copy reads numbers at a fixed distance from their labels, so all spaces are as in
    /// globus-gridftp-server 13.24, including the two after `Timestamp:`.
    pub fn reply(&self) -> Reply {
        let lines = [
            format!("{TIMESTAMP}:  {}", tenths(self.timestamp)),
            format!("{STRIPE_INDEX}: {}", self.stripe_index),
            format!("{STRIPE_BYTES}: {}", self.stripe_bytes),
            format!("{STRIPE_COUNT}: {}", self.stripe_count),
        ];
        Reply::spaced(Self::CODE, "Perf Marker", lines, "End.")
    }

    /// Reads a marker. Other lines, letter case and the number of spaces are ignored.
    ///
    /// # Errors
    ///
    /// When the reply is not a valid performance marker.
    pub fn from_reply(reply: &Reply) -> Result<Self, MarkerError> {
        if reply.code() != Self::CODE {
            return Err(MarkerError::Code(reply.code()));
        }
        let marker = Self {
            timestamp: find(reply, TIMESTAMP, timestamp)?,
            stripe_index: find(reply, STRIPE_INDEX, decimal)?,
            stripe_bytes: find(reply, STRIPE_BYTES, decimal)?,
            stripe_count: find(reply, STRIPE_COUNT, decimal)?,
        };
        if marker.stripe_index >= marker.stripe_count {
            return Err(MarkerError::StripeIndex {
                index: marker.stripe_index,
                count: marker.stripe_count,
            });
        }
        Ok(marker)
    }
}

impl ChecksumMarker {
    /// The reply code.
    pub const CODE: u16 = 113;

    /// The marker as a reply, as in globus-gridftp-server 13.24, with one space after `Timestamp:`.
    pub fn reply(&self) -> Reply {
        let lines = [
            format!("{TIMESTAMP}: {}", tenths(self.timestamp)),
            format!("Bytes Processed: {}", self.bytes),
        ];
        Reply::spaced(Self::CODE, "Status Marker", lines, "End.")
    }
}

/// Seconds since 1970 with one decimal, truncated.
fn tenths(timestamp: Timestamp) -> String {
    let tenths = timestamp.as_millisecond().max(0) / 100;
    format!("{}.{}", tenths / 10, tenths % 10)
}

impl RestartMarker {
    /// The reply code.
    pub const CODE: u16 = 111;

    /// The text before the ranges.
    const WORDS: &'static str = "Range Marker ";

    /// The most ranges of one reply, so that no line is longer than clients and servers accept. Further ranges are sent in further
    /// replies, because clients merge all markers.
    pub const MAX_RANGES: usize = 1024;

    /// The marker as replies; none for an empty set.
    pub fn replies(&self) -> impl Iterator<Item = Reply> + '_ {
        let mut ranges = self.0.iter().peekable();
        std::iter::from_fn(move || {
            ranges.peek()?;
            let some: RangeSet = ranges.by_ref().take(Self::MAX_RANGES).collect();
            Some(Reply::new(Self::CODE, format!("{}{some}", Self::WORDS)))
        })
    }

    /// Reads a marker. The list starts at the first digit, as in globus-url-copy.
    ///
    /// # Errors
    ///
    /// When the reply is not a valid restart marker.
    pub fn from_reply(reply: &Reply) -> Result<Self, MarkerError> {
        if reply.code() != Self::CODE {
            return Err(MarkerError::Code(reply.code()));
        }
        let text = reply.lines().next().unwrap_or_default();
        let words = text
            .iter()
            .take_while(|byte| !byte.is_ascii_digit())
            .count();
        let ranges = RangeSet::parse_rest(text[words..].trim_ascii())?;
        Ok(Self(ranges))
    }
}

/// Each range has two numbers of at most 19 digits, a dash and a comma; the line starts with the code.
const _: () =
    assert!(4 + RestartMarker::WORDS.len() + 40 * RestartMarker::MAX_RANGES <= MAX_LINE_BYTES);

/// The value of the line that begins with `label` and a colon.
fn find<T>(
    reply: &Reply,
    label: &'static str,
    read: impl FnOnce(&[u8]) -> Option<T>,
) -> Result<T, MarkerError> {
    let values = reply.lines().filter_map(|line| {
        let (start, rest) = line.trim_ascii_start().split_at_checked(label.len())?;
        let value = rest.strip_prefix(b":")?;
        start
            .eq_ignore_ascii_case(label.as_bytes())
            .then_some(value.trim_ascii())
    });
    let value = values.last().ok_or(MarkerError::Missing(label))?;
    read(value).ok_or_else(|| MarkerError::Number {
        label,
        value: Excerpt::new(value),
    })
}

/// Seconds since 1970, with an optional fraction that is read to milliseconds.
fn timestamp(text: &[u8]) -> Option<Timestamp> {
    let (seconds, fraction) = match text.iter().position(|&byte| byte == b'.') {
        Some(point) => (&text[..point], &text[point + 1..]),
        None => (text, &b"0"[..]),
    };
    if !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let padded = fraction.iter().chain(std::iter::repeat(&b'0')).take(3);
    let milliseconds = padded.fold(0, |sum, &digit| sum * 10 + i64::from(digit - b'0'));
    let seconds: i64 = decimal(seconds)?;
    let whole = seconds.checked_mul(1000)?.checked_add(milliseconds)?;
    Timestamp::from_millisecond(whole).ok()
}
