//! What the destination has of a file from an earlier attempt.

use gridhaul_protocol::command::TransferMode;
use gridhaul_protocol::ranges::RangeSet;

use super::job::Job;
use super::version::Version;
use crate::transfer::Transferred;

/// What has arrived of a smaller file is not searched for.
pub(super) const WORTHWHILE: u64 = 4 << 20;

/// The size of a small file, of which a later attempt continues nothing. `None` if it is larger, or of unknown size.
pub(super) fn small(version: Version) -> Option<u64> {
    version.size.filter(|size| *size < WORTHWHILE)
}

/// What the destination has of a file, and of which version of it. Only what this copy has stored there, or has found to be equal,
/// counts: other programs leave files under the same names.
#[derive(Debug, Default)]
pub(super) struct Present {
    version: Version,
    /// The mode in which it has arrived: each one has unfinished files of its own.
    mode: Option<TransferMode>,
    ranges: RangeSet,
    /// An earlier attempt or run has begun this version.
    is_begun: bool,
    /// An earlier attempt has received all of it, and could not ask whether the source has changed meanwhile.
    received: Option<Transferred>,
}

impl Present {
    /// What an earlier run has left.
    pub(super) fn of_earlier(job: &Job, earlier: Option<&(TransferMode, RangeSet)>) -> Self {
        earlier.map_or_else(Self::default, |(mode, ranges)| Self {
            version: job.known,
            mode: Some(*mode),
            ranges: ranges.clone(),
            is_begun: true,
            received: None,
        })
    }

    /// The mode in which an earlier attempt has begun: only the same one can continue it.
    pub(super) fn earlier_mode(&self) -> Option<TransferMode> {
        self.mode.filter(|_| self.is_begun)
    }

    /// An attempt begins. What has arrived of another version or in another mode does not count.
    pub(super) fn begins(&mut self, version: Version, mode: TransferMode) {
        let is_same =
            !self.version.differs_from(&version) && self.mode.is_none_or(|known| known == mode);
        if !is_same {
            self.forget();
        }
        (self.version, self.mode) = (version, Some(mode));
    }

    /// The version of which it is a part.
    pub(super) fn version(&self) -> Version {
        self.version
    }

    /// Whether an earlier attempt or run has begun this version of a file that is worth a search.
    pub(super) fn may_have_more(&self) -> bool {
        self.is_begun && self.version.size >= Some(WORTHWHILE)
    }

    /// What the destination has is not that, or it is not known: the file is begun again.
    pub(super) fn forget(&mut self) {
        self.ranges = RangeSet::new();
        self.is_begun = false;
        self.received = None;
    }

    /// All of it has been received, and has its name.
    pub(super) fn is_received(&mut self, done: &Transferred) {
        self.received = Some(done.clone());
    }

    /// What an earlier attempt has received in full.
    pub(super) fn received(&self) -> Option<Transferred> {
        self.received.clone()
    }

    /// Only these ranges count.
    pub(super) fn set(&mut self, ranges: RangeSet) {
        self.ranges = ranges;
    }

    /// What need not be sent again.
    pub(super) fn restart(&self) -> RangeSet {
        match self.mode {
            Some(TransferMode::Extended) => first_ranges(&self.ranges),
            // A stream restarts at one offset.
            _ => {
                let first = self.ranges.iter().next();
                let start = first.filter(|range| range.start == 0);
                start.map(RangeSet::from).unwrap_or_default()
            }
        }
    }

    /// All ranges of this version.
    pub(super) fn ranges(&self) -> &RangeSet {
        &self.ranges
    }

    /// An attempt has failed: what it has stored counts for the next one, if it has begun.
    pub(super) fn is_continued(&mut self, may_have_moved: bool) {
        self.is_begun |= may_have_moved || !self.ranges.is_empty();
    }

    /// Adds ranges.
    pub(super) fn gain(&mut self, stored: &RangeSet) {
        self.ranges.extend_from(stored);
    }
}

/// The first ranges of many: a command has room for so many, and a restart sends the others again.
pub(super) fn first_ranges(all: &RangeSet) -> RangeSet {
    /// Two numbers of 19 digits each, in a command of at most 64 KiB.
    const MOST: usize = 1000;

    let mut first = RangeSet::new();
    all.iter().take(MOST).for_each(|range| first.insert(range));
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restart_fits_into_a_command() {
        let mut many = RangeSet::new();
        for piece in 0..5000 {
            let start = (u64::MAX >> 1) - 10_000 + piece * 2;
            many.insert(start..start + 1);
        }
        let first = first_ranges(&many);
        assert_eq!(first.iter().next(), many.iter().next());
        assert!(first.to_string().len() < 60_000, "{}", first.len());
    }
}
