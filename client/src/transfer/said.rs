//! What a server says while it transfers.

use std::time::{Duration, Instant};

use gridhaul_protocol::address::StripeAddresses;
use gridhaul_protocol::marker::{PerformanceMarker, RestartMarker};
use gridhaul_protocol::ranges::RangeSet;
use gridhaul_protocol::reply::Reply;

use crate::control::ControlError;

/// More ranges are not remembered: they would cost memory, and stand for a restart that sends everything in pieces.
pub(crate) const MOST_RANGES: usize = 100_000;

/// A reply to a command that transfers.
pub(super) enum Said {
    /// `111`: ranges that the server has stored.
    Stored(RangeSet),
    /// `112`: the progress of a stripe.
    Moved(PerformanceMarker),
    /// `125`, `150`: the transfer begins.
    Begins,
    /// Any other preliminary reply. The server is at work.
    Works,
    /// The last reply.
    Last(Reply),
}

impl Said {
    pub(super) fn of(reply: Reply) -> Self {
        // A wrong marker costs only bytes at a restart.
        if let Ok(marker) = RestartMarker::from_reply(&reply) {
            return Self::Stored(marker.0);
        }
        if let Ok(marker) = PerformanceMarker::from_reply(&reply)
            && marker.stripe_count <= StripeAddresses::MAX
        {
            return Self::Moved(marker);
        }
        match (reply.is_preliminary(), reply.code()) {
            (true, 125 | 150) => Self::Begins,
            (true, _) => Self::Works,
            (false, _) => Self::Last(reply),
        }
    }
}

/// The ranges before `end`: a server cannot have stored what the file does not have.
pub(super) fn before(end: u64, ranges: RangeSet) -> RangeSet {
    if ranges.end() <= end {
        return ranges;
    }
    let mut kept = RangeSet::new();
    for range in ranges.iter().filter(|range| range.start < end) {
        kept.insert(range.start..range.end.min(end));
    }
    kept
}

/// Bounds the preliminary replies to a command that transfers, which may take days: each one costs processor time.
#[derive(Debug)]
pub(super) struct ReplyLimit {
    since: Instant,
    replies: usize,
}

impl ReplyLimit {
    /// The most replies in [`Self::WITHIN`]: three markers a second for each of as many stripes as a server may have.
    const MOST: usize = 3 * 10 * StripeAddresses::MAX;

    const WITHIN: Duration = Duration::from_secs(10);

    pub(super) fn new() -> Self {
        Self {
            since: Instant::now(),
            replies: 0,
        }
    }

    /// Counts a reply to `verb`, if it is a preliminary one.
    pub(super) fn count(&mut self, verb: &'static str, reply: &Reply) -> Result<(), ControlError> {
        if !reply.is_preliminary() {
            return Ok(());
        }
        if self.since.elapsed() >= Self::WITHIN {
            *self = Self::new();
        }
        self.replies += 1;
        match self.replies > Self::MOST {
            true => Err(ControlError::TooManyReplies {
                verb,
                limit: Self::MOST,
                within: Self::WITHIN,
            }),
            false => Ok(()),
        }
    }
}

/// What a server has told of its progress.
#[derive(Debug, Default)]
pub(super) struct Told {
    begun: bool,
    stored: RangeSet,
    stripes: Vec<u64>,
}

impl Told {
    /// Whether the transfer begins now. The reply counts once.
    pub(super) fn begins(&mut self) -> bool {
        !std::mem::replace(&mut self.begun, true)
    }

    /// Whether the server has begun.
    pub(super) fn has_begun(&self) -> bool {
        self.begun
    }

    /// The bytes of all ranges so far.
    pub(super) fn stores(&mut self, ranges: &RangeSet) -> u64 {
        if self.stored.len() + ranges.len() <= MOST_RANGES {
            self.stored.extend_from(ranges);
        }
        self.stored.covered()
    }

    /// The bytes that the server says to have stored besides these.
    pub(super) fn stored_besides(&self, present: &RangeSet) -> u64 {
        self.stored_with(present).covered() - present.covered()
    }

    /// The ranges that the server says to have stored, and these.
    pub(super) fn stored_with(&self, present: &RangeSet) -> RangeSet {
        let mut all = present.clone();
        all.extend_from(&self.stored);
        all
    }

    /// Whether the server says to have stored a file of this size, and nothing behind its end.
    pub(super) fn has_stored(&self, size: u64) -> bool {
        self.stored.covered() == size && self.stored.end() == size
    }

    /// The bytes of each stripe.
    pub(super) fn stripes(&self) -> &[u64] {
        &self.stripes
    }

    /// The bytes of all stripes.
    pub(super) fn moves(&mut self, marker: &PerformanceMarker) -> u64 {
        // The count is bounded, and the index less than it.
        self.stripes.resize(marker.stripe_count, 0);
        self.stripes[marker.stripe_index] = marker.stripe_bytes;
        self.moved()
    }

    /// The bytes of all stripes.
    pub(super) fn moved(&self) -> u64 {
        let all = self.stripes.iter();
        all.fold(0, |sum, bytes| sum.saturating_add(*bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_end_with_the_file() {
        let ranges = |all: &[std::ops::Range<u64>]| {
            let mut set = RangeSet::new();
            all.iter().for_each(|range| set.insert(range.clone()));
            set
        };
        let told = ranges(&[0..5, 7..12, 15..u64::MAX]);
        assert_eq!(before(10, told.clone()), ranges(&[0..5, 7..10]));
        assert_eq!(before(12, told.clone()), ranges(&[0..5, 7..12]));
        assert_eq!(before(u64::MAX, told.clone()), told);
    }
}
