//! Remembers checksums for as long as they are those of their files.
//!
//! A value is kept under the file's place (device and inode) with what the kernel says of its content:
//! size, time of modification (mtime) and time of change (ctime), to the nanosecond. It is given out only
//! while all of them are the same. So a file loses its checksum when anybody writes to it, cuts it, or puts
//! another in its place; when clients of this process rename it, it does not (`relabel`). What this rests on:
//!
//! - Every `write` and `truncate` sets mtime and ctime to the file system's clock. That clock may stand
//!   still for 10 ms (a tick; Linux 6.13 ended this for most file systems) or a second (old ones), so two
//!   writes may leave the same times. Therefore nothing is remembered while a later write could leave the
//!   mtime that is there. A file that was received gets an mtime some ticks in the past when it is
//!   complete; then its mtime lies before its ctime, which is the clock's word, and all that comes later
//!   is stamped with that ctime or a later time. A checksum that was computed is remembered only if the
//!   file did not change for [`QUIET`](super::version::QUIET).
//! - Programs that write and then set mtime back (`touch -r`, `rsync --inplace`) move ctime, which
//!   nobody can set.
//! - Writes through a shared mapping are stamped when a clean page is first written to, and again after the
//!   kernel has written it to the disk, which it does after 30 seconds: that is why `QUIET` is longer. File
//!   systems in memory write nothing to a disk. There, a program that has a file mapped, has not touched it
//!   for a minute, and then writes to a page that it had written to before, is not noticed.
//! - While a file is received it is garbage to all others, and what they write to it in that time
//!   is not noticed. Two sessions of one node that receive the same file are: then nothing is remembered.
//! - On network file systems opening a file asks the file server for its facts (close-to-open
//!   consistency); files are opened for every question.
//!
//! With a key, files carry their checksums in an attribute as well (`attribute`), and what is not in memory is looked
//! for there. The value holds for the same size and mtime, and for the ctime that writing it has left, which it can
//! only name to within 50 ms: a program that writes to a file and sets its mtime back to the nanosecond, all within
//! that time after the value was written, is not noticed by the next process. When it is done through this one, the
//! value is removed.
//!
//! What was summed up on arrival is carried before the kernel has written the content to the disk, unless files are to be
//! synced: a crash of the machine soon after may lose content and leave the value.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use super::attribute::Attribute;
use super::seal::Sums;
use super::version::{Place, Version, facts, stamp};
use super::{ChecksumAlgorithm, ChecksumKey};
use crate::{OpenedFile, StorageError, StoredFile};

/// How far in the past a received file is stamped: longer than a tick of the slowest clock that Linux
/// is built with (100 Hz).
const BACKDATED: Duration = Duration::from_millis(20);

/// The checksums that a node remembers, of a bounded number of files.
#[derive(Debug)]
pub struct ChecksumMemory {
    limit: usize,
    /// Where checksums outlive this process, if they do.
    attribute: Option<Attribute>,
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

#[derive(Debug)]
struct Remembered {
    version: Version,
    sums: Sums,
}

#[derive(Debug, Default)]
struct Writers {
    active: usize,
    /// There were several of them at a time.
    met: bool,
}

impl ChecksumMemory {
    /// Remembers the checksums of up to `files` files. With a key, files carry them as well.
    pub fn new(files: usize, key: Option<ChecksumKey>) -> Arc<Self> {
        Arc::new(Self {
            limit: files,
            attribute: key.map(Attribute::new),
            state: Mutex::default(),
        })
    }

    /// The checksum of the whole file, if it is known for certain.
    pub fn recall(&self, file: &OpenedFile, algorithm: ChecksumAlgorithm) -> Option<String> {
        let (place, version) = facts(file).ok()?;
        find_in(&self.remembered(place, version)?, algorithm)
    }

    /// The same, if the file carries it. From here on it is remembered.
    pub(super) fn recall_carried(
        &self,
        file: &OpenedFile,
        stored: &StoredFile<'_>,
        algorithm: ChecksumAlgorithm,
    ) -> Option<String> {
        let (place, version) = facts(file).ok()?;
        let sums = self.attribute.as_ref()?.read(stored, place, version);
        let sum = find_in(&sums, algorithm)?;
        let mut state = self.lock();
        if state.writers.contains_key(&place) {
            return None;
        }
        state.remember(place, version, sums, self.limit);
        Some(sum)
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

    /// Remembers what was computed from a file that was like `before` when that began, if it stayed so.
    pub(super) fn remember_computed(
        &self,
        (file, stored): (&OpenedFile, &StoredFile<'_>),
        before: Version,
        sum: (ChecksumAlgorithm, String),
        now: SystemTime,
    ) {
        let Ok((place, version)) = facts(file) else {
            return;
        };
        let mut sums = self.known(stored, place, version);
        // What is known of a content can be believed, and so can more of it.
        if version == before && (version.is_quiet(now) || !sums.is_empty()) {
            add(&mut sums, vec![sum]);
            self.keep((file, stored), place, version, sums);
        }
    }

    /// Remembers the checksums of a content, and has the file carry them. Not while it is received.
    pub(super) fn keep(
        &self,
        (file, stored): (&OpenedFile, &StoredFile<'_>),
        place: Place,
        version: Version,
        sums: Sums,
    ) {
        if self.lock().writers.contains_key(&place) {
            return;
        }
        if let Some(version) = self.carry((file, stored), place, version, &sums) {
            let mut state = self.lock();
            if !state.writers.contains_key(&place) {
                state.remember(place, version, sums, self.limit);
            }
        }
    }

    /// Has the file carry the checksums of a content, and returns how that is described then.
    fn carry(
        &self,
        file: (&OpenedFile, &StoredFile<'_>),
        place: Place,
        version: Version,
        sums: &Sums,
    ) -> Option<Version> {
        match &self.attribute {
            Some(attribute) => attribute.write(file, place, version, sums),
            None => Some(version),
        }
    }

    /// All checksums that are known of a content.
    pub(super) fn known(&self, stored: &StoredFile<'_>, place: Place, version: Version) -> Sums {
        let remembered = self.remembered(place, version);
        remembered
            .or_else(|| Some(self.attribute.as_ref()?.read(stored, place, version)))
            .unwrap_or_default()
    }

    /// Takes away what a file carries.
    pub(super) fn remove_carried(&self, stored: &StoredFile<'_>) {
        if let Some(attribute) = &self.attribute {
            attribute.remove(stored);
        }
    }

    fn remembered(&self, place: Place, version: Version) -> Option<Sums> {
        let mut state = self.lock();
        if state.writers.contains_key(&place) {
            return None;
        }
        let known = state.find(place, self.limit)?;
        (known.version == version).then(|| known.sums.clone())
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
    /// time of modification, by its name where the descriptor does not allow it.
    pub fn remember(self, file: &OpenedFile, stored: &StoredFile<'_>, length: u64, sums: Sums) {
        let keeps_nothing = self.memory.limit == 0 && self.memory.attribute.is_none();
        if sums.is_empty() || keeps_nothing || self.met_others() {
            return;
        }
        let time = SystemTime::now() - BACKDATED;
        // A file that cannot be stamped is not remembered, and loses nothing else.
        if stamp(file, time).is_err() && stored.storage.set_modified(stored.path, time).is_err() {
            return;
        }
        let Ok((place, version)) = facts(file) else {
            return;
        };
        if place != self.place || version.size != length || !version.is_lasting() {
            return;
        }
        let Some(version) = self.memory.carry((file, stored), place, version, &sums) else {
            return;
        };
        let mut state = self.memory.lock();
        if !state.met(place) {
            state.remember(place, version, sums, self.memory.limit);
            return;
        }
        drop(state);
        // Who has come meanwhile may have written before the file was stamped.
        if let Some(attribute) = &self.memory.attribute {
            attribute.remove(stored);
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

    fn remember(&mut self, place: Place, version: Version, sums: Sums, limit: usize) {
        match self.find(place, limit) {
            Some(known) if known.version == version => add(&mut known.sums, sums),
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

fn find_in(sums: &Sums, algorithm: ChecksumAlgorithm) -> Option<String> {
    let mut sums = sums.iter();
    let found = sums.find(|(known, _)| *known == algorithm);
    found.map(|(_, sum)| sum.clone())
}

/// Bounded by the number of algorithms.
fn add(sums: &mut Sums, others: Sums) {
    for (algorithm, sum) in others {
        sums.retain(|(known, _)| *known != algorithm);
        sums.push((algorithm, sum));
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File, FileTimes, OpenOptions};
    use std::io::Write as _;
    use std::os::unix::fs::FileExt as _;
    use std::path::{Path, PathBuf};

    use tempfile::TempDir;

    use super::super::version::{QUIET, version};
    use super::*;
    use crate::{PosixOptions, PosixStorage};

    const ADLER: ChecksumAlgorithm = ChecksumAlgorithm::Adler32;

    struct Fixture {
        memory: Arc<ChecksumMemory>,
        directory: TempDir,
        storage: PosixStorage,
    }

    impl Fixture {
        fn new() -> Self {
            let directory = TempDir::new().unwrap();
            Self {
                memory: ChecksumMemory::new(16, None),
                storage: PosixStorage::open(directory.path(), PosixOptions::default()).unwrap(),
                directory,
            }
        }

        fn stored(&self) -> StoredFile<'_> {
            stored(&self.storage)
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
            let stored = StoredFile {
                path: Path::new(name),
                ..self.stored()
            };
            writing.remember(&opened, &stored, 7, vec![(ADLER, sum.to_owned())]);
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

    /// The name `file` in a storage.
    fn stored(storage: &PosixStorage) -> StoredFile<'_> {
        StoredFile {
            storage,
            path: Path::new("file"),
        }
    }

    #[test]
    fn a_received_file_keeps_its_checksum() {
        let fixture = Fixture::new();
        fixture.receive("file", "1");
        assert_eq!(fixture.recall("file"), Some("1".to_owned()));
        fs::rename(fixture.path("file"), fixture.path("other")).unwrap();
        // What others do to a name changes ctime on most file systems; then it is computed again.
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
        first.remember(&file, &fixture.stored(), 7, vec![(ADLER, "2".to_owned())]);
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
        writing.remember(&file, &fixture.stored(), 6, vec![(ADLER, "1".to_owned())]);
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
            let options = PosixOptions {
                read_only: !stamps,
                ..PosixOptions::default()
            };
            let storage = PosixStorage::open(fixture.directory.path(), options).unwrap();
            let writing = fixture.memory.begin_writing(&held).unwrap();
            writing.remember(&held, &stored(&storage), 7, vec![(ADLER, "1".to_owned())]);
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
            let file = (&file, &fixture.stored());
            fixture.memory.remember_computed(file, before, sum, now);
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
