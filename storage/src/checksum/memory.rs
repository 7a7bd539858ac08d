//! Remembers checksums for as long as they are those of their files.
//!
//! A value is kept under the file's place (device and inode) with what the kernel says of its content:
//! size, time of modification (mtime) and time of change (ctime), to the nanosecond. It is given out only
//! while all of them are the same. So a file keeps its checksum when it is renamed, and loses it when
//! anybody writes to it, cuts it, or puts another in its place. What this rests on:
//!
//! - Every `write` and `truncate` sets mtime and ctime to the file system's clock. That clock may stand
//!   still for 10 ms (a tick; Linux 6.13 ended this for most file systems) or a second (old ones), so two
//!   writes may leave the same times. Therefore nothing is remembered while a later write could leave the
//!   mtime that is there. A file that was received gets an mtime some ticks in the past when it is
//!   complete; then its mtime lies before its ctime, which is the clock's word, and all that comes later
//!   is stamped with that ctime or a later time. A checksum that was computed is remembered only if the
//!   file did not change for [`QUIET`].
//! - Programs that write and then set mtime back (`touch -r`, `rsync --inplace`) move ctime, which
//!   nobody can set.
//! - Writes through a shared mapping are stamped when a clean page is first written to, and again after the
//!   kernel has written it to the disk, which it does after 30 seconds: that is why [`QUIET`] is longer. File
//!   systems in memory write nothing to a disk. There, a program that has a file mapped, has not touched it
//!   for a minute, and then writes to a page that it had written to before, is not noticed.
//! - While a file is received it is garbage to all others, and what they write to it in that time
//!   is not noticed. Two sessions of one node that receive the same file are: then nothing is remembered.
//! - On network file systems opening a file asks the file server for its facts (close-to-open
//!   consistency); files are opened for every question.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, Statx, StatxFlags, Timespec, Timestamps, UTIME_OMIT};
use rustix::io::Errno;

use super::ChecksumAlgorithm;
use crate::{OpenedFile, StorageError};

/// How long a file must not have changed before a checksum that was computed from it is remembered.
pub(super) const QUIET: Duration = Duration::from_secs(60);

/// How far in the past a received file is stamped: longer than a tick of the slowest clock that Linux
/// is built with (100 Hz).
const BACKDATED: Duration = Duration::from_millis(20);

/// The checksums that a node remembers, of a bounded number of files.
#[derive(Debug)]
pub struct ChecksumMemory {
    limit: usize,
    state: Mutex<State>,
}

/// Files are put into the young generation when they are remembered or asked for. When it is full the old
/// one is forgotten, and the young one is the old one.
#[derive(Debug, Default)]
struct State {
    young: HashMap<Place, Remembered>,
    old: HashMap<Place, Remembered>,
    /// The files that are being received now.
    writers: HashMap<Place, Writers>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Place {
    device: u64,
    inode: u64,
}

/// What differs between two contents of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) size: u64,
    modified: Time,
    changed: Time,
}

/// Seconds and nanoseconds since 1970.
type Time = (i64, u32);

#[derive(Debug)]
struct Remembered {
    version: Version,
    sums: Vec<(ChecksumAlgorithm, String)>,
}

#[derive(Debug, Default)]
struct Writers {
    active: usize,
    /// There were several of them at a time.
    met: bool,
}

impl ChecksumMemory {
    /// Remembers the checksums of up to `files` files.
    pub fn new(files: usize) -> Arc<Self> {
        Arc::new(Self {
            limit: files,
            state: Mutex::default(),
        })
    }

    /// The checksum of the whole file, if it is known for certain.
    pub fn recall(&self, file: &OpenedFile, algorithm: ChecksumAlgorithm) -> Option<String> {
        let (place, version) = facts(file).ok()?;
        let mut state = self.lock();
        if state.writers.contains_key(&place) {
            return None;
        }
        let sum = state.find(place, self.limit)?.sum(version, algorithm)?;
        Some(sum.to_owned())
    }

    /// Announces that a file is received. What was known of it is forgotten.
    pub fn begin_writing(self: &Arc<Self>, file: &OpenedFile) -> Result<Writing, StorageError> {
        let (place, _) = facts(file)?;
        let mut state = self.lock();
        state.forget(place);
        let writers = state.writers.entry(place).or_default();
        writers.active += 1;
        writers.met |= writers.active > 1;
        drop(state);
        Ok(Writing {
            memory: self.clone(),
            place,
        })
    }

    /// Sets a file's time of modification by `set_modified`, and keeps its checksums.
    ///
    /// # Errors
    ///
    /// Those of `set_modified`.
    pub fn keep_while(
        &self,
        file: &OpenedFile,
        set_modified: impl FnOnce() -> Result<(), StorageError>,
    ) -> Result<(), StorageError> {
        let known = facts(file).ok().and_then(|(place, version)| {
            let mut state = self.lock();
            let known = state.find(place, self.limit)?;
            (known.version == version).then(|| (place, std::mem::take(&mut known.sums)))
        });
        set_modified()?;
        if let Some((place, sums)) = known
            && let Ok((_, version)) = facts(file)
            && version.is_lasting()
        {
            self.lock().remember(place, version, sums, self.limit);
        }
        Ok(())
    }

    /// Remembers what was computed from a file that was like `before` when that began, if it stayed so.
    pub(super) fn remember_computed(
        &self,
        file: &OpenedFile,
        before: Version,
        sum: (ChecksumAlgorithm, String),
        now: SystemTime,
    ) {
        let Ok((place, version)) = facts(file) else {
            return;
        };
        let mut state = self.lock();
        if version == before && version.is_quiet(now) && !state.writers.contains_key(&place) {
            state.remember(place, version, vec![sum], self.limit);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A file that is being received, until this is dropped.
#[derive(Debug)]
pub struct Writing {
    memory: Arc<ChecksumMemory>,
    place: Place,
}

impl Writing {
    /// Whether `file` is the one that is being received.
    pub fn is_of(&self, file: &OpenedFile) -> bool {
        facts(file).is_ok_and(|(place, _)| place == self.place)
    }

    /// Remembers the checksums of the file, which is complete with `length` bytes and still open. Sets its
    /// time of modification, by `set_modified` where the descriptor does not allow it.
    pub fn remember(
        self,
        file: &OpenedFile,
        length: u64,
        sums: Vec<(ChecksumAlgorithm, String)>,
        set_modified: impl FnOnce(SystemTime) -> Result<(), StorageError>,
    ) {
        if sums.is_empty() || self.memory.limit == 0 || self.met_others() {
            return;
        }
        let time = SystemTime::now() - BACKDATED;
        // A file that cannot be stamped is not remembered, and loses nothing else.
        if stamp(file, time).is_err() && set_modified(time).is_err() {
            return;
        }
        let Ok((place, version)) = facts(file) else {
            return;
        };
        if place == self.place && version.size == length && version.is_lasting() {
            let mut state = self.memory.lock();
            if !state.met(place) {
                state.remember(place, version, sums, self.memory.limit);
            }
        }
    }

    fn met_others(&self) -> bool {
        self.memory.lock().met(self.place)
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        let mut state = self.memory.lock();
        if let Some(writers) = state.writers.get_mut(&self.place) {
            writers.active -= 1;
            if writers.active == 0 {
                state.writers.remove(&self.place);
            }
        }
    }
}

impl State {
    /// What is known of a file, which is young again for it.
    fn find(&mut self, place: Place, limit: usize) -> Option<&mut Remembered> {
        if let Some(known) = self.old.remove(&place) {
            self.insert(place, known, limit);
        }
        self.young.get_mut(&place)
    }

    fn remember(
        &mut self,
        place: Place,
        version: Version,
        sums: Vec<(ChecksumAlgorithm, String)>,
        limit: usize,
    ) {
        match self.find(place, limit) {
            Some(known) if known.version == version => known.add(sums),
            _ => self.insert(place, Remembered { version, sums }, limit),
        }
    }

    fn insert(&mut self, place: Place, known: Remembered, limit: usize) {
        let generation = limit / 2;
        if self.young.len() >= generation {
            self.old = std::mem::take(&mut self.young);
        }
        if generation > 0 {
            self.young.insert(place, known);
        }
    }

    fn forget(&mut self, place: Place) {
        self.young.remove(&place);
        self.old.remove(&place);
    }

    fn met(&self, place: Place) -> bool {
        self.writers.get(&place).is_none_or(|writers| writers.met)
    }
}

impl Remembered {
    fn sum(&self, version: Version, algorithm: ChecksumAlgorithm) -> Option<&str> {
        if self.version != version {
            return None;
        }
        let mut sums = self.sums.iter();
        sums.find(|(known, _)| *known == algorithm)
            .map(|(_, sum)| sum.as_str())
    }

    /// Bounded by the number of algorithms.
    fn add(&mut self, sums: Vec<(ChecksumAlgorithm, String)>) {
        for (algorithm, sum) in sums {
            self.sums.retain(|(known, _)| *known != algorithm);
            self.sums.push((algorithm, sum));
        }
    }
}

impl Version {
    /// Whether a later write cannot leave the same times.
    fn is_lasting(&self) -> bool {
        self.modified < self.changed
    }

    fn is_quiet(&self, now: SystemTime) -> bool {
        let since = now
            .checked_sub(QUIET)
            .and_then(|since| since.duration_since(UNIX_EPOCH).ok());
        since.is_some_and(|since| {
            let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
            self.modified.max(self.changed).0 < seconds
        })
    }
}

/// What the kernel says of an open file's content.
pub(super) fn version(file: &OpenedFile) -> Result<Version, StorageError> {
    facts(file).map(|(_, version)| version)
}

fn facts(file: &OpenedFile) -> Result<(Place, Version), StorageError> {
    const WANTED: StatxFlags = StatxFlags::INO
        .union(StatxFlags::SIZE)
        .union(StatxFlags::MTIME)
        .union(StatxFlags::CTIME);
    let facts: Statx = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, WANTED)
        .map_err(|errno| StorageError::new("stat", errno))?;
    let place = Place {
        device: rustix::fs::makedev(facts.stx_dev_major, facts.stx_dev_minor),
        inode: facts.stx_ino,
    };
    let version = Version {
        size: facts.stx_size,
        modified: (facts.stx_mtime.tv_sec, facts.stx_mtime.tv_nsec),
        changed: (facts.stx_ctime.tv_sec, facts.stx_ctime.tv_nsec),
    };
    Ok((place, version))
}

fn stamp(file: &OpenedFile, time: SystemTime) -> Result<(), Errno> {
    let since = time.duration_since(UNIX_EPOCH).map_err(|_| Errno::INVAL)?;
    let times = Timestamps {
        last_access: Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_OMIT,
        },
        last_modification: Timespec {
            tv_sec: i64::try_from(since.as_secs()).map_err(|_| Errno::INVAL)?,
            tv_nsec: since.subsec_nanos().into(),
        },
    };
    rustix::fs::futimens(file, &times)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File, FileTimes, OpenOptions};
    use std::io::Write as _;
    use std::os::unix::fs::FileExt as _;
    use std::path::PathBuf;

    use tempfile::TempDir;

    use super::*;

    const ADLER: ChecksumAlgorithm = ChecksumAlgorithm::Adler32;

    struct Fixture {
        memory: Arc<ChecksumMemory>,
        directory: TempDir,
    }

    impl Fixture {
        fn new() -> Self {
            Self {
                memory: ChecksumMemory::new(16),
                directory: TempDir::new().unwrap(),
            }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.directory.path().join(name)
        }

        /// Receives a file, and says that its checksum is `sum`.
        fn receive(&self, name: &str, sum: &str) {
            let mut file = File::create(self.path(name)).unwrap();
            let opened = opened(&file);
            let writing = self.memory.begin_writing(&opened).unwrap();
            file.write_all(b"content").unwrap();
            writing.remember(&opened, 7, vec![(ADLER, sum.to_owned())], refused);
        }

        fn recall(&self, name: &str) -> Option<String> {
            self.memory.recall(&self.open(name), ADLER)
        }

        fn open(&self, name: &str) -> OpenedFile {
            opened(&File::open(self.path(name)).unwrap())
        }

        fn writable(&self, name: &str) -> File {
            OpenOptions::new()
                .write(true)
                .open(self.path(name))
                .unwrap()
        }
    }

    fn opened(file: &File) -> OpenedFile {
        OpenedFile::new(file.try_clone().unwrap().into(), 0)
    }

    fn refused(_: SystemTime) -> Result<(), StorageError> {
        Err(StorageError::new("utime", Errno::PERM))
    }

    #[test]
    fn a_received_file_keeps_its_checksum_under_any_name() {
        let fixture = Fixture::new();
        fixture.receive("file", "1");
        assert_eq!(fixture.recall("file"), Some("1".to_owned()));
        fs::rename(fixture.path("file"), fixture.path("other")).unwrap();
        // Renaming changes ctime on some file systems; then it is computed again.
        assert!(matches!(
            fixture.recall("other").as_deref(),
            Some("1") | None
        ));
        let sha = fixture
            .memory
            .recall(&fixture.open("other"), ChecksumAlgorithm::Sha1);
        assert_eq!(sha, None);
    }

    #[test]
    fn whoever_changes_a_file_takes_its_checksum_away() {
        type Change = fn(&Fixture);
        let changes: [(&str, Change); 7] = [
            ("written over", |fixture| {
                fixture
                    .writable("file")
                    .write_at(b"CONTENT", 0)
                    .map(drop)
                    .unwrap();
            }),
            ("made longer", |fixture| {
                fixture
                    .writable("file")
                    .write_at(b"!", 7)
                    .map(drop)
                    .unwrap();
            }),
            ("cut", |fixture| {
                fixture.writable("file").set_len(3).unwrap()
            }),
            ("cut and made as long again", |fixture| {
                let file = fixture.writable("file");
                file.set_len(0).unwrap();
                file.set_len(7).unwrap();
            }),
            ("written anew", |fixture| {
                fs::write(fixture.path("file"), b"CONTENT").unwrap();
            }),
            ("replaced", |fixture| {
                fs::write(fixture.path("other"), b"CONTENT").unwrap();
                fs::rename(fixture.path("other"), fixture.path("file")).unwrap();
            }),
            ("written over, with its old time", |fixture| {
                let modified = fs::metadata(fixture.path("file"))
                    .unwrap()
                    .modified()
                    .unwrap();
                // The clock of the file system may stand still for a tick, and then does not.
                let before = fs::metadata(fixture.path("file")).unwrap();
                loop {
                    let file = fixture.writable("file");
                    file.write_at(b"CONTENT", 0).unwrap();
                    file.set_times(FileTimes::new().set_modified(modified))
                        .unwrap();
                    let after = fs::metadata(fixture.path("file")).unwrap();
                    use std::os::unix::fs::MetadataExt as _;
                    if (before.ctime(), before.ctime_nsec()) != (after.ctime(), after.ctime_nsec())
                    {
                        break;
                    }
                }
            }),
        ];
        for (how, change) in changes {
            let fixture = Fixture::new();
            fixture.receive("file", "1");
            assert_eq!(fixture.recall("file"), Some("1".to_owned()), "before {how}");
            change(&fixture);
            assert_eq!(fixture.recall("file"), None, "{how}");
        }
    }

    #[test]
    fn nothing_is_known_of_a_file_while_it_is_received() {
        let fixture = Fixture::new();
        fixture.receive("file", "1");
        let file = opened(&fixture.writable("file"));
        let first = fixture.memory.begin_writing(&file).unwrap();
        assert_eq!(fixture.recall("file"), None);
        let second = fixture.memory.begin_writing(&file).unwrap();
        drop(second);
        first.remember(&file, 7, vec![(ADLER, "2".to_owned())], refused);
        // Nobody knows which of the two wrote what.
        assert_eq!(fixture.recall("file"), None);
        fixture.receive("file", "3");
        assert_eq!(fixture.recall("file"), Some("3".to_owned()));
    }

    #[test]
    fn a_file_of_another_length_is_not_the_one_that_was_received() {
        let fixture = Fixture::new();
        fs::write(fixture.path("file"), b"content").unwrap();
        let file = opened(&fixture.writable("file"));
        let writing = fixture.memory.begin_writing(&file).unwrap();
        writing.remember(&file, 6, vec![(ADLER, "1".to_owned())], refused);
        assert_eq!(fixture.recall("file"), None);
    }

    #[test]
    fn files_of_others_are_stamped_by_others() {
        let fixture = Fixture::new();
        fs::write(fixture.path("file"), b"content").unwrap();
        // A descriptor that cannot be stamped, like one of another account's file.
        let path = fixture.path("file");
        let held = rustix::fs::open(&path, rustix::fs::OFlags::PATH, rustix::fs::Mode::empty());
        let held = OpenedFile::new(held.unwrap(), 7);
        for stamps in [false, true] {
            let writing = fixture.memory.begin_writing(&held).unwrap();
            let stamp = |time| {
                if !stamps {
                    return refused(time);
                }
                let times = FileTimes::new().set_modified(time);
                fixture.writable("file").set_times(times).unwrap();
                Ok(())
            };
            writing.remember(&held, 7, vec![(ADLER, "1".to_owned())], stamp);
            assert_eq!(fixture.recall("file").is_some(), stamps);
        }
    }

    #[test]
    fn a_computed_checksum_is_remembered_once_the_file_is_quiet() {
        let fixture = Fixture::new();
        fs::write(fixture.path("file"), b"content").unwrap();
        let file = fixture.open("file");
        let before = version(&file).unwrap();
        let remember = |now| {
            let sum = (ADLER, "1".to_owned());
            fixture.memory.remember_computed(&file, before, sum, now);
        };
        let now = SystemTime::now();
        remember(now);
        remember(now + QUIET - Duration::from_secs(5));
        assert_eq!(fixture.recall("file"), None);
        remember(now + QUIET + Duration::from_secs(5));
        assert_eq!(fixture.recall("file"), Some("1".to_owned()));
        // Another version of it is not what was read.
        fixture.writable("file").set_len(0).unwrap();
        remember(now + QUIET + Duration::from_secs(5));
        assert_eq!(fixture.recall("file"), None);
    }

    #[test]
    fn a_time_that_is_set_through_us_changes_no_content() {
        let fixture = Fixture::new();
        fixture.receive("file", "1");
        let file = fixture.open("file");
        let set = |seconds| {
            let writable = fixture.writable("file");
            let time = UNIX_EPOCH + Duration::from_secs(seconds);
            let set = || {
                writable
                    .set_times(FileTimes::new().set_modified(time))
                    .unwrap();
                Ok(())
            };
            fixture.memory.keep_while(&file, set).unwrap();
        };
        set(1_000_000_000);
        assert_eq!(fixture.recall("file"), Some("1".to_owned()));
        fixture.writable("file").write_at(b"CONTENT", 0).unwrap();
        assert_eq!(fixture.recall("file"), None);
        // In the far future: nobody knows which times later writes will have.
        fixture.receive("file", "2");
        set(10_000_000_000);
        assert_eq!(fixture.recall("file"), None);
    }

    #[test]
    fn the_number_of_files_is_bounded_and_those_in_use_stay() {
        let fixture = Fixture::new();
        fixture.receive("used", "0");
        for n in 0..100 {
            fixture.receive(&format!("file{n}"), "1");
            assert_eq!(fixture.recall("used"), Some("0".to_owned()));
        }
        let state = fixture.memory.lock();
        assert!(state.young.len() + state.old.len() <= 16);
        drop(state);
        assert_eq!(fixture.recall("file0"), None);
        assert_eq!(fixture.recall("file99"), Some("1".to_owned()));
    }
}
