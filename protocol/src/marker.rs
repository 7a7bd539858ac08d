//! Markers, which a receiver sends while a transfer runs: `112` says how much of a stripe arrived,
//! `111` says which bytes are safe (GFD.20, performance and restart markers); and `113`, which says how far
//! a checksum is.
//!
//! When markers are due, and what they may say, is not decided here. They are for MODE E only: in
//! stream mode globus-url-copy 10.12 makes a `REST` without sense of a `111`.

#[cfg(test)]
mod tests;

use jiff::Timestamp;

use crate::excerpt::Excerpt;
use crate::line::MAX_LINE_BYTES;
use crate::number::decimal;
use crate::ranges::{RangeError, RangeSet};
use crate::reply::Reply;

/// How much of one stripe was transferred so far: reply 112.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PerformanceMarker {
    /// When that was so; tenths of a second are written.
    pub timestamp: Timestamp,
    /// Which stripe; less than `stripe_count`, because globus-url-copy has an array of that many.
    pub stripe_index: usize,
    /// How many bytes of it were transferred.
    pub stripe_bytes: u64,
    /// How many stripes there are.
    pub stripe_count: usize,
}

/// Bytes that storage accepted, and that need not be sent again: reply 111.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestartMarker(pub RangeSet);

/// How much of a file was read for its checksum so far: reply 113.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChecksumMarker {
    /// When that was so; tenths of a second are written.
    pub timestamp: Timestamp,
    /// How many bytes were read.
    pub bytes: u64,
}

/// What is wrong with a marker. The server is at fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MarkerError {
    /// The reply is another one.
    #[error("the reply {0} is no such marker")]
    Code(u16),
    /// A line that must be there is not.
    #[error("the performance marker has no line '{0}:'")]
    Missing(&'static str),
    /// A line that says something else than a number.
    #[error("the performance marker has '{value}' as its {label}, which is no number")]
    Number {
        /// The words before the colon.
        label: &'static str,
        /// The words after it.
        value: Excerpt,
    },
    /// A stripe that there is not.
    #[error("the performance marker is of stripe {index}, but there are only {count}")]
    StripeIndex {
        /// Stripe Index.
        index: usize,
        /// Total Stripe Count.
        count: usize,
    },
    /// The ranges cannot be.
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

    /// The marker as a reply. globus-url-copy reads numbers at a fixed distance from their labels,
    /// so every space is where globus-gridftp-server 13.24 has it, also the second one after
    /// `Timestamp:`.
    pub fn reply(&self) -> Reply {
        let lines = [
            format!("{TIMESTAMP}:  {}", tenths(self.timestamp)),
            format!("{STRIPE_INDEX}: {}", self.stripe_index),
            format!("{STRIPE_BYTES}: {}", self.stripe_bytes),
            format!("{STRIPE_COUNT}: {}", self.stripe_count),
        ];
        Reply::spaced(Self::CODE, "Perf Marker", lines, "End.")
    }

    /// Reads the marker that a reply is. Lines that say something else are passed over, and so is
    /// any case and any number of spaces.
    ///
    /// # Errors
    ///
    /// When the reply is no such marker.
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

    /// The marker as a reply, as globus-gridftp-server 13.24 has it: with one space after `Timestamp:`.
    pub fn reply(&self) -> Reply {
        let lines = [
            format!("{TIMESTAMP}: {}", tenths(self.timestamp)),
            format!("Bytes Processed: {}", self.bytes),
        ];
        Reply::spaced(Self::CODE, "Status Marker", lines, "End.")
    }
}

/// Seconds since 1970 with one decimal, which is cut and not rounded.
fn tenths(timestamp: Timestamp) -> String {
    let tenths = timestamp.as_millisecond().max(0) / 100;
    format!("{}.{}", tenths / 10, tenths % 10)
}

impl RestartMarker {
    /// The reply code.
    pub const CODE: u16 = 111;

    /// The words before the ranges.
    const WORDS: &'static str = "Range Marker ";

    /// How many ranges one reply names. More go into further replies, which mean the same to a
    /// client: it adds up what it gets. So no line is longer than clients and servers of this field
    /// accept.
    pub const MAX_RANGES: usize = 1024;

    /// The marker as replies; none if there is nothing to tell.
    pub fn replies(&self) -> impl Iterator<Item = Reply> + '_ {
        let mut ranges = self.0.iter().peekable();
        std::iter::from_fn(move || {
            ranges.peek()?;
            let some: RangeSet = ranges.by_ref().take(Self::MAX_RANGES).collect();
            Some(Reply::new(Self::CODE, format!("{}{some}", Self::WORDS)))
        })
    }

    /// Reads the marker that a reply is: the list that starts at the first digit, as
    /// globus-url-copy does.
    ///
    /// # Errors
    ///
    /// When the reply is no such marker.
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

/// Two numbers of 19 digits, a dash and a comma for every range; the code comes before the words.
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

/// Seconds since 1970, perhaps with a fraction, of which milliseconds count.
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
