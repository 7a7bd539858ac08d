//! What a copy has done, in a file that outlives the program.
//!
//! Each line is a record: `C KEY` for a file that is complete, `P KEY RANGES` for one of which the destination has ranges that came in
//! MODE E, and `S KEY RANGES` for one that came as a stream. A key stands for the names, the size and the time of a file, so the record
//! of another version is of no effect. The last line may be cut short.

use std::collections::{HashMap, HashSet};
use std::env;
use std::fs::{self, File, OpenOptions};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use gridhaul_protocol::command::TransferMode;
use gridhaul_protocol::ranges::RangeSet;
use rustix::fs::{FlockOperation, flock};

use super::super::report::Record;
use super::job::Job;
use super::present::first_ranges;
use super::version::Version;

/// Other versions of the program may compute other keys.
const HEAD: &str = concat!("gridhaul copy ", env!("CARGO_PKG_VERSION"));

/// The longest line that is read: more than the ranges of a record, which are two numbers of 20 digits each.
const LONGEST: u64 = 64 << 10;

/// Why an earlier copy cannot be resumed.
#[derive(Debug, thiserror::Error)]
pub(super) enum JournalError {
    #[error(
        "there is no place for the journal: set HOME or XDG_STATE_HOME, or give --journal FILE"
    )]
    NoPlace,
    #[error("no copy with these sources and this destination was interrupted ({} does not exist)", .0.display())]
    Nothing(PathBuf),
    #[error("{}: a copy with these sources and this destination is running", .0.display())]
    Busy(PathBuf),
    #[error("{}: it was written by another version of this program, or is no journal: remove it, and copy again", .0.display())]
    Foreign(PathBuf),
    #[error("{}: {error}", path.display())]
    Io { path: PathBuf, error: io::Error },
}

/// The journal of a copy.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    /// Opened with the first record. `None` after an error: a copy goes on without.
    file: Mutex<State>,
    complete: HashSet<Key>,
    partial: HashMap<Key, (TransferMode, RangeSet)>,
}

#[derive(Debug)]
enum State {
    Closed,
    Open(File),
    Failed,
}

/// Names and version of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key(u128);

impl Key {
    /// `None` without a size or a time: another version of the file could have the same key.
    pub(super) fn of(job: &Job) -> Option<Self> {
        let names = (job.source.words(), job.destination.words());
        Self::of_names((&names.0, &names.1), job.known)
    }

    /// As [`Self::of`], of the words for source and destination.
    pub(super) fn of_names(names: (&str, &str), known: Version) -> Option<Self> {
        let (size, modified) = (known.size?, known.modified?);
        let since = modified.duration_since(SystemTime::UNIX_EPOCH).ok()?;
        let half = |salt: u8| {
            let mut hasher = DefaultHasher::new();
            (salt, &names, size, since.as_secs()).hash(&mut hasher);
            u128::from(hasher.finish())
        };
        Some(Self(half(0) << 64 | half(1)))
    }
}

impl Journal {
    /// The journal of a new copy. An earlier one of the same copy is replaced.
    pub(super) fn new(path: PathBuf) -> Self {
        Self {
            path,
            file: Mutex::new(State::Closed),
            complete: HashSet::new(),
            partial: HashMap::new(),
        }
    }

    /// Without records.
    pub(super) fn none() -> Self {
        Self {
            file: Mutex::new(State::Failed),
            ..Self::new(PathBuf::new())
        }
    }

    /// Continues the journal of an earlier copy.
    pub(super) fn resume(path: PathBuf) -> Result<Self, JournalError> {
        let failed = |error| JournalError::Io {
            path: path.clone(),
            error,
        };
        let file = match OpenOptions::new().read(true).append(true).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(JournalError::Nothing(path));
            }
            file => file.map_err(failed)?,
        };
        lock(&file).map_err(|_| JournalError::Busy(path.clone()))?;
        let mut journal = Self::new(path.clone());
        let length = journal.read(&file).map_err(failed)?;
        let length = length.ok_or_else(|| JournalError::Foreign(path.clone()))?;
        // Without a last line that was cut short.
        file.set_len(length).map_err(failed)?;
        journal.file = Mutex::new(State::Open(file));
        Ok(journal)
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

    /// Whether an earlier run has copied this file.
    pub(super) fn has(&self, key: Key) -> bool {
        self.complete.contains(&key)
    }

    /// What the destination has of this file from an earlier run, and how it came. `None`: it was not begun.
    pub(super) fn partial(&self, key: Key) -> Option<&(TransferMode, RangeSet)> {
        self.partial.get(&key)
    }

    pub(super) fn record_complete(&self, key: Key) {
        self.record(format_args!("C {:032x}\n", key.0));
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
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*file, State::Open(_)) {
            let _ = fs::remove_file(&self.path);
        }
        *file = State::Failed;
    }

    /// A line in one write, so that a kill cannot mix lines.
    fn record(&self, line: std::fmt::Arguments<'_>) {
        let mut state = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*state, State::Closed) {
            *state = match create(&self.path) {
                Ok(file) => State::Open(file),
                Err(_) => State::Failed,
            };
        }
        if let State::Open(file) = &mut *state
            && file.write_all(line.to_string().as_bytes()).is_err()
        {
            *state = State::Failed;
        }
    }

    /// Reads the records, and returns the length of all whole lines. `None`: it is no journal of this version.
    fn read(&mut self, file: &File) -> io::Result<Option<u64>> {
        let mut length = 0;
        let mut reader = BufReader::new(file);
        let mut is_head = true;
        loop {
            let mut line = Vec::new();
            io::Read::take(&mut reader, LONGEST).read_until(b'\n', &mut line)?;
            if !line.ends_with(b"\n") {
                return Ok((!is_head).then_some(length));
            }
            length += line.len() as u64;
            line.pop();
            let text = String::from_utf8_lossy(&line);
            if is_head {
                if text != HEAD {
                    return Ok(None);
                }
                is_head = false;
                continue;
            }
            let mut words = text.split(' ');
            let kind = words.next();
            let key = words
                .next()
                .and_then(|key| u128::from_str_radix(key, 16).ok());
            match (kind, key.map(Key), words.next()) {
                (Some("C"), Some(key), None) => {
                    self.complete.insert(key);
                    self.partial.remove(&key);
                }
                (Some(kind @ ("P" | "S")), Some(key), Some(ranges)) => {
                    let mode = match kind {
                        "P" => TransferMode::Extended,
                        _ => TransferMode::Stream,
                    };
                    let ranges = ranges.as_bytes();
                    let ranges = RangeSet::parse_rest(ranges).unwrap_or_default();
                    self.partial.insert(key, (mode, ranges));
                }
                _ => {}
            }
        }
    }
}

/// Records what the destination stores of one file. The records of a file are bounded in number and length, also for a hostile peer.
pub(super) struct Recorder<'a> {
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

    pub(super) fn new(journal: &'a Journal, key: Key, file: Version) -> Self {
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

fn create(path: &Path) -> io::Result<File> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    let file = OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(path)?;
    lock(&file)?;
    file.set_len(0)?;
    (&file).write_all(format!("{HEAD}\n").as_bytes())?;
    Ok(file)
}

fn lock(file: &File) -> io::Result<()> {
    Ok(flock(file, FlockOperation::NonBlockingLockExclusive)?)
}

#[cfg(test)]
mod tests {
    use super::super::job::Place;
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
    fn records_count_for_their_version_also_after_a_cut() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("a/b.journal");
        let keys = [1, 2, 3].map(|size| Key::of(&job("x", size)).expect("a version"));
        let mut ranges = RangeSet::from(0..10);
        ranges.insert(20..30);
        let journal = Journal::new(path.clone());
        journal.record_complete(keys[0]);
        journal.record_nothing(keys[1]);
        journal.record_partial(keys[1], TransferMode::Stream, &ranges);
        let busy = Journal::resume(path.clone()).expect_err("locked");
        assert!(matches!(busy, JournalError::Busy(_)));
        drop(journal);
        let mut text = fs::read(&path).expect("there");
        text.extend_from_slice(format!("C {:032x}", keys[2].0).as_bytes());
        fs::write(&path, text).expect("written");
        for _ in 0..2 {
            let journal = Journal::resume(path.clone()).expect("readable");
            assert!(journal.has(keys[0]));
            assert!(!journal.has(keys[2]), "its line is cut");
            let partial = Some(&(TransferMode::Stream, ranges.clone()));
            assert_eq!(journal.partial(keys[1]), partial);
            // After the cut line.
            journal.record_complete(Key::of(&job("y", 1)).expect("a version"));
        }
        let journal = Journal::resume(path.clone()).expect("readable");
        assert!(journal.has(Key::of(&job("y", 1)).expect("a version")));
        journal.remove();
        let gone = Journal::resume(path.clone()).expect_err("removed");
        assert!(matches!(gone, JournalError::Nothing(_)));
        fs::write(&path, "other\n").expect("written");
        let foreign = Journal::resume(path).expect_err("no journal");
        assert!(matches!(foreign, JournalError::Foreign(_)));
    }

    #[test]
    fn the_records_of_a_file_are_bounded_and_readable() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("journal");
        let journal = Journal::new(path.clone());
        let key = Key::of(&job("x", 1)).expect("a version");
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
        let journal = Journal::resume(path).expect("readable");
        let (_, ranges) = journal.partial(key).expect("recorded");
        assert_eq!(*ranges, first_ranges(&stored));
        assert!(ranges.len() < stored.len());
    }
}
