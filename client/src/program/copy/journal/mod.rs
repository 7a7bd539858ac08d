//! What a copy has done, in a file that outlives the program.
//!
//! Each line is a record: `C KEY` for a file that is complete, with the checksum that it was verified by, if any, `P KEY RANGES` for one of which the destination has ranges that came in
//! MODE E, and `S KEY RANGES` for one that came as a stream. A key stands for the names, the size and the time of a file, so the record
//! of another version is of no effect. The last line may be cut short.

mod file;
mod key;
mod recorder;

use std::collections::HashMap;
use std::env;
use std::fs::File;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::sync::Mutex;

use gridhaul_protocol::command::TransferMode;
use gridhaul_protocol::ranges::RangeSet;
use gridhaul_storage::ChecksumAlgorithm;

use self::file::Content;
pub(super) use self::file::JournalError;
pub(super) use self::key::Key;
pub(super) use self::recorder::Recorder;
use super::super::output::locked;
use super::job::Place;
use super::present::first_ranges;
use super::version::Version;

/// The longest line that is read: more than the ranges of a record, which are two numbers of 20 digits each.
const LONGEST: u64 = 64 << 10;

/// The journal of a copy.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    file: Mutex<State>,
    /// Complete files, and the checksum that they were verified by.
    complete: HashMap<Key, Option<ChecksumAlgorithm>>,
    partial: HashMap<Key, (TransferMode, RangeSet)>,
}

#[derive(Debug)]
enum State {
    /// It is opened with the first record.
    Closed,
    Open(File),
    /// Nothing is recorded: a copy goes on without. Why, until that was told.
    Off(Option<String>),
}

impl Journal {
    /// The journal of a new copy. An earlier one of the same copy is replaced.
    pub(super) fn new(path: PathBuf) -> Self {
        Self {
            path,
            file: Mutex::new(State::Closed),
            complete: HashMap::new(),
            partial: HashMap::new(),
        }
    }

    /// As [`Self::new`], with a file that the user has named.
    ///
    /// # Errors
    ///
    /// When the file has other content.
    pub(super) fn named(path: PathBuf) -> Result<Self, JournalError> {
        file::check(&path)?;
        Ok(Self::new(path))
    }

    /// Without records. `why`, if that is worth a note.
    pub(super) fn none(why: Option<&JournalError>) -> Self {
        Self {
            file: Mutex::new(State::Off(why.map(without))),
            ..Self::new(PathBuf::new())
        }
    }

    /// Continues the journal of an earlier copy, or begins one. Also returns a note if there is none to continue.
    ///
    /// # Errors
    ///
    /// When another copy has it, or the file has other content.
    pub(super) fn resume(path: PathBuf) -> Result<(Self, Option<String>), JournalError> {
        let note = |why: &str| Some(format!("{}: {why}: all is copied", path.display()));
        let mut journal = Self::new(path.clone());
        let Some((found, content)) = file::open(&path)? else {
            let why = "no copy with these sources and this destination was interrupted";
            return Ok((journal, note(why)));
        };
        match content {
            Content::Nothing => Ok((journal, note("the earlier copy has no records"))),
            Content::OtherVersion => {
                let why = "another version of this program has written the records";
                Ok((journal, note(why)))
            }
            Content::Journal => {
                let read = journal.read(&found);
                // Without a last line that was cut short.
                let cut = read.and_then(|length| file::cut(&found, length));
                cut.map_err(|error| JournalError::Io { path, error })?;
                journal.file = Mutex::new(State::Open(found));
                Ok((journal, None))
            }
        }
    }

    /// The same without further records, and with its file.
    pub(super) fn only_read(self) -> Self {
        Self {
            file: Mutex::new(State::Off(None)),
            ..self
        }
    }

    /// The place of the journal of a copy with these arguments.
    pub(super) fn place(locations: &[String]) -> Result<PathBuf, JournalError> {
        let absolute = |name| {
            env::var_os(name)
                .map(PathBuf::from)
                .filter(|path| path.is_absolute())
        };
        let home = || Some(absolute("HOME")?.join(".local/state"));
        let state = absolute("XDG_STATE_HOME").or_else(home);
        let state = state.ok_or(JournalError::NoPlace)?;
        let mut hasher = DefaultHasher::new();
        (locations, env::current_dir().ok()).hash(&mut hasher);
        let name = format!("copy-{:016x}.journal", hasher.finish());
        Ok(state.join("gridhaul").join(name))
    }

    /// Whether an earlier run has copied any file.
    pub(super) fn has_complete(&self) -> bool {
        !self.complete.is_empty()
    }

    /// The checksum by which an earlier run has verified this file, which it has copied. The outer `None`: it has not.
    pub(super) fn complete(&self, key: Key) -> Option<Option<ChecksumAlgorithm>> {
        self.complete.get(&key).copied()
    }

    /// What the destination has of this file from an earlier run, and how it came. `None`: it was not begun.
    pub(super) fn partial(&self, key: Key) -> Option<&(TransferMode, RangeSet)> {
        self.partial.get(&key)
    }

    /// Whether an earlier run has begun any file and not completed it.
    pub(super) fn has_partial(&self) -> bool {
        !self.partial.is_empty()
    }

    /// Whether an earlier run has begun to copy this version, and not completed it. What the destination has may have the size of the
    /// whole file, and its time if the file is new: blocks arrive in any order.
    pub(super) fn has_begun(&self, source: &Place, destination: &Place, known: Version) -> bool {
        let key = Key::new(source, destination, known);
        key.is_some_and(|key| self.partial(key).is_some())
    }

    /// `sum` is what the file was verified by.
    pub(super) fn record_complete(&self, key: Key, sum: Option<ChecksumAlgorithm>) {
        match sum {
            Some(sum) => self.record(format_args!("C {:032x} {sum}\n", key.0)),
            None => self.record(format_args!("C {:032x}\n", key.0)),
        }
    }

    /// Why nothing is recorded, once.
    pub(super) fn take_failure(&self) -> Option<String> {
        match &mut *locked(&self.file) {
            State::Off(why) => why.take(),
            State::Closed | State::Open(_) => None,
        }
    }

    /// Of many ranges only the first ones are recorded: a restart sends the others again.
    fn record_partial(&self, key: Key, mode: TransferMode, ranges: &RangeSet) {
        let first = first_ranges(ranges);
        let kind = match mode {
            TransferMode::Extended => 'P',
            TransferMode::Stream => 'S',
        };
        self.record(format_args!("{kind} {:032x} {first}\n", key.0));
    }

    /// What the destination has of this file is wrong: no later run continues it.
    pub(super) fn record_nothing(&self, key: Key) {
        self.record_partial(key, TransferMode::Extended, &RangeSet::new());
    }

    /// Everything is complete: no later run resumes it.
    pub(super) fn remove(&self) {
        let mut state = locked(&self.file);
        if let State::Open(file) = &*state {
            file::remove(&self.path, file);
            *state = State::Off(None);
        }
    }

    /// A line in one write, so that a kill cannot mix lines.
    fn record(&self, line: std::fmt::Arguments<'_>) {
        let mut state = locked(&self.file);
        if matches!(*state, State::Closed) {
            *state = match file::begin(&self.path) {
                Ok(file) => State::Open(file),
                Err(error) => State::Off(Some(without(&error))),
            };
        }
        if let State::Open(file) = &mut *state
            && let Err(error) = file.write_all(line.to_string().as_bytes())
        {
            let path = self.path.clone();
            *state = State::Off(Some(without(&JournalError::Io { path, error })));
        }
    }

    /// Reads the records, and returns the length of all whole lines. The first one is known.
    fn read(&mut self, file: &File) -> io::Result<u64> {
        let mut length = 0;
        let mut reader = BufReader::new(file);
        loop {
            let mut line = Vec::new();
            io::Read::take(&mut reader, LONGEST).read_until(b'\n', &mut line)?;
            if !line.ends_with(b"\n") {
                return Ok(length);
            }
            length += line.len() as u64;
            line.pop();
            let text = String::from_utf8_lossy(&line);
            let mut words = text.split(' ');
            let kind = words.next();
            let key = words
                .next()
                .and_then(|key| u128::from_str_radix(key, 16).ok());
            match (kind, key.map(Key), words.next()) {
                (Some("C"), Some(key), sum) => {
                    let sum = sum.and_then(|name| name.parse().ok());
                    self.complete.insert(key, sum);
                    self.partial.remove(&key);
                }
                (Some(kind @ ("P" | "S")), Some(key), Some(ranges)) => {
                    let mode = match kind {
                        "P" => TransferMode::Extended,
                        _ => TransferMode::Stream,
                    };
                    let ranges = ranges.as_bytes();
                    let ranges = RangeSet::parse_rest(ranges).unwrap_or_default();
                    // It was copied again, because another comparison was wanted.
                    self.complete.remove(&key);
                    self.partial.insert(key, (mode, ranges));
                }
                _ => {}
            }
        }
    }
}

/// What to tell where nothing is recorded.
fn without(error: &JournalError) -> String {
    format!("{error}; it is not recorded what is complete, and --resume would copy all again")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::time::{Duration, SystemTime};

    use super::super::job::{Job, Place};
    use super::super::version::Version;
    use super::*;

    fn job(name: &str, size: u64) -> Job {
        let place = |name: &str| Place::Local {
            path: PathBuf::from(name),
            root: Path::new("/").into(),
            beneath: PathBuf::from(name),
        };
        Job {
            source: place(name),
            destination: place("to"),
            known: Version {
                size: Some(size),
                modified: Some(SystemTime::UNIX_EPOCH),
                mode: None,
            },
            is_only: false,
        }
    }

    #[test]
    fn a_file_that_is_copied_again_is_not_complete() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("journal");
        let key = Key::of(&job("x", 1)).expect("a version");
        for (again, is_complete) in [(false, true), (true, false)] {
            let journal = Journal::new(path.clone());
            journal.record_complete(key, None);
            if again {
                journal.record_nothing(key);
            }
            drop(journal);
            let (journal, _) = Journal::resume(path.clone()).expect("readable");
            assert_eq!(journal.complete(key).is_some(), is_complete);
        }
    }

    #[test]
    fn records_count_for_their_version_also_after_a_cut() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("a/b.journal");
        let keys = [1, 2, 3].map(|size| Key::of(&job("x", size)).expect("a version"));
        let mut ranges = RangeSet::from(0..10);
        ranges.insert(20..30);
        let journal = Journal::new(path.clone());
        journal.record_complete(keys[0], Some(ChecksumAlgorithm::Sha256));
        journal.record_nothing(keys[1]);
        journal.record_partial(keys[1], TransferMode::Stream, &ranges);
        let busy = Journal::resume(path.clone()).expect_err("locked");
        assert!(matches!(busy, JournalError::Busy(_)));
        drop(journal);
        let mut text = fs::read(&path).expect("there");
        text.extend_from_slice(format!("C {:032x}", keys[2].0).as_bytes());
        fs::write(&path, text).expect("written");
        for _ in 0..2 {
            let (journal, note) = Journal::resume(path.clone()).expect("readable");
            assert_eq!(note, None);
            let sum = Some(ChecksumAlgorithm::Sha256);
            assert_eq!(journal.complete(keys[0]), Some(sum));
            assert_eq!(journal.complete(keys[2]), None, "its line is cut");
            let partial = Some(&(TransferMode::Stream, ranges.clone()));
            assert_eq!(journal.partial(keys[1]), partial);
            // After the cut line.
            journal.record_complete(Key::of(&job("y", 1)).expect("a version"), None);
        }
        let (journal, _) = Journal::resume(path.clone()).expect("readable");
        let other = Key::of(&job("y", 1)).expect("a version");
        assert_eq!(journal.complete(other), Some(None));
        journal.remove();
        let (_, note) = Journal::resume(path.clone()).expect("nothing to read");
        assert!(note.is_some_and(|note| note.contains("was interrupted")));
        assert!(!path.exists());
        fs::write(&path, "other\n").expect("written");
        let foreign = Journal::resume(path).expect_err("no journal");
        assert!(matches!(foreign, JournalError::Foreign(_)));
    }

    #[test]
    fn a_change_within_a_second_makes_another_version() {
        let at = |nanoseconds| {
            let mut job = job("x", 1);
            job.known.modified = Some(SystemTime::UNIX_EPOCH + Duration::from_nanos(nanoseconds));
            Key::of(&job).expect("a version")
        };
        assert_eq!(at(5), at(5));
        assert_ne!(at(5), at(6));
    }

    #[test]
    fn keys_have_the_names_of_files_and_not_those_of_the_command_line() {
        let named = |path: &str| {
            let mut job = job("/d/x", 1);
            if let Place::Local { path: words, .. } = &mut job.source {
                *words = path.into();
            }
            Key::of(&job)
        };
        assert_eq!(named("x"), named("../d/x"));
        assert_ne!(Key::of(&job("/d/x", 1)), Key::of(&job("/e/x", 1)));
    }

    #[test]
    fn a_journal_that_cannot_be_written_is_told_once() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("file/journal");
        fs::write(place.path().join("file"), "").expect("written");
        let journal = Journal::new(path);
        assert_eq!(journal.take_failure(), None);
        for _ in 0..2 {
            journal.record_complete(Key::of(&job("x", 1)).expect("a version"), None);
        }
        let told = journal.take_failure().expect("a failure");
        assert!(told.contains("it is not recorded"), "{told}");
        journal.record_complete(Key::of(&job("x", 1)).expect("a version"), None);
        assert_eq!(journal.take_failure(), None);
    }
}
