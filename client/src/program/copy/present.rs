//! What the destination has of a file from an earlier attempt.

use std::fs;
use std::path::Path;

use gridhaul_protocol::command::TransferMode;
use gridhaul_protocol::ranges::RangeSet;
use gridhaul_storage::UploadForm;
use gridhaul_transfer::NodeSession;
use tokio::task::block_in_place;

use super::job::Job;
use super::version::Version;

/// What the destination has of a file, and of which version of it.
#[derive(Debug, Default)]
pub(super) struct Present {
    version: Version,
    ranges: RangeSet,
    /// An earlier attempt or run has begun this version.
    is_begun: bool,
}

impl Present {
    /// What an earlier run has left.
    pub(super) fn of_earlier(job: &Job, ranges: Option<&RangeSet>) -> Self {
        ranges.map_or_else(Self::default, |ranges| Self {
            version: job.known,
            ranges: ranges.clone(),
            is_begun: true,
        })
    }

    /// Streams are not recorded: an earlier attempt has written them in their order to the file that becomes `path`.
    pub(super) fn note_stream(&mut self, files: &dyn NodeSession, path: &Path) {
        let temporary = UploadForm::Stream.unfinished(path);
        let found = temporary
            .and_then(|temporary| block_in_place(|| files.storage().stat(&temporary)).ok());
        let size = found.map_or(0, |found| found.size);
        if self.is_begun && size > 0 && self.version.size >= Some(size) {
            self.ranges = RangeSet::from(0..size);
        }
        self.is_begun = false;
    }

    /// The mode in which an earlier attempt has received the most of the file at `path`: only the same mode can continue it.
    pub(super) fn earlier_mode(&self, path: &Path) -> Option<TransferMode> {
        let size = |form: UploadForm| {
            let found = form
                .unfinished(path)
                .and_then(|path| fs::metadata(path).ok());
            found.map_or(0, |found| found.len())
        };
        let (stream, blocks) = (size(UploadForm::Stream), size(UploadForm::Blocks));
        match self.is_begun {
            true if stream > blocks => Some(TransferMode::Stream),
            true if blocks > 0 => Some(TransferMode::Extended),
            _ => None,
        }
    }

    /// Whether an earlier attempt or run has begun this version of a file that is worth it.
    pub(super) fn may_have_more(&self, version: Version, least: u64) -> bool {
        let is_same = !self.version.differs_from(&version);
        self.is_begun && is_same && version.size >= Some(least)
    }

    /// What need not be sent again of this version.
    pub(super) fn of(&mut self, version: Version, mode: TransferMode) -> RangeSet {
        if self.version.differs_from(&version) {
            self.ranges = RangeSet::new();
        }
        self.version = version;
        match mode {
            TransferMode::Extended => first_ranges(&self.ranges),
            // A stream restarts at one offset.
            TransferMode::Stream => {
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

    /// An attempt has failed: what it has written counts for the next one.
    pub(super) fn is_continued(&mut self) {
        self.is_begun = true;
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
