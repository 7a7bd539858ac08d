//! Records of one file while it arrives.

use gridhaul_protocol::command::TransferMode;
use gridhaul_protocol::ranges::RangeSet;

use super::super::super::report::Record;
use super::super::version::Version;
use super::{Journal, Key};

/// Records what the destination stores of one file. The records of a file are bounded in number and length, also for a hostile peer.
pub(in super::super) struct Recorder<'a> {
    journal: &'a Journal,
    key: Key,
    mode: TransferMode,
    /// The least bytes between two records.
    step: u64,
    /// The bytes in the last record.
    recorded: u64,
}

impl<'a> Recorder<'a> {
    /// The most records of a file in an attempt.
    const RECORDS: u64 = 4096;

    /// The least bytes that are worth a record.
    const LEAST: u64 = 1 << 20;

    pub(in super::super) fn new(journal: &'a Journal, key: Key, file: Version) -> Self {
        Self {
            journal,
            key,
            mode: TransferMode::Extended,
            step: (file.size.unwrap_or_default() / Self::RECORDS).max(Self::LEAST),
            recorded: 0,
        }
    }
}

impl Record for Recorder<'_> {
    fn begins(&mut self, mode: TransferMode, present: &RangeSet) {
        (self.mode, self.recorded) = (mode, present.covered());
        self.journal.record_partial(self.key, mode, present);
    }

    fn stored(&mut self, all: &RangeSet) {
        if all.covered() >= self.recorded.saturating_add(self.step) {
            self.recorded = all.covered();
            self.journal.record_partial(self.key, self.mode, all);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::super::present::first_ranges;
    use super::super::LONGEST;
    use super::*;

    #[test]
    fn the_records_of_a_file_are_bounded_and_readable() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("journal");
        let journal = Journal::new(path.clone());
        let key = Key(1);
        let file = Version {
            size: Some(1 << 62),
            modified: None,
            mode: None,
        };
        let mut recorder = Recorder::new(&journal, key, file);
        recorder.begins(TransferMode::Extended, &RangeSet::new());
        // As many pieces as possible, far apart and with long numbers.
        let mut stored = RangeSet::new();
        for piece in 0..20_000 {
            let start = (1 << 60) + piece * 100_000_000_000_000;
            stored.insert(start..start + 50_000_000_000_000);
            if piece % 100 == 0 {
                recorder.stored(&stored);
            }
        }
        drop(journal);
        let length = fs::metadata(&path).expect("there").len();
        assert!(length < Recorder::RECORDS * LONGEST);
        let lines = fs::read_to_string(&path).expect("text");
        assert!(lines.lines().all(|line| (line.len() as u64) < LONGEST));
        let lines = lines.lines().count();
        assert!((3..=203).contains(&lines), "{lines}");
        let (journal, _) = Journal::resume(path).expect("readable");
        let (_, ranges) = journal.partial(key).expect("recorded");
        assert_eq!(*ranges, first_ranges(&stored));
        assert!(ranges.len() < stored.len());
    }
}
