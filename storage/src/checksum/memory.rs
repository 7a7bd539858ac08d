//! Remembers checksums for as long as they are those of their files.
//!
//! A value is kept under the file's place (device and inode) with what the kernel says of its content:
//! size, time of modification (mtime) and time of change (ctime), to the nanosecond. It is given out only
//! while all of them are the same. So a file loses its checksum when it is written, truncated or replaced; when
//! clients of this process rename it, it does not (`relabel`). What this rests on:
//!
//! - Every `write` and `truncate` sets mtime and ctime to the file system's clock. That clock may stand
//!   still for 10 ms (a tick; Linux 6.13 ended this for most file systems) or a second (old ones), so two
//!   writes may leave the same times. Therefore nothing is remembered while a later write could leave the
//!   mtime that is there. A file that was received gets an mtime some ticks in the past when it is
//!   complete; then its mtime lies before its ctime, which is the clock's word, and all that comes later
//!   is stamped with that ctime or a later time. A checksum that was computed is remembered only if the
//!   file did not change for [`QUIET`](super::version::QUIET).
//! - Programs that write and then set mtime back (`touch -r`, `rsync --inplace`) move ctime, which no program can
//!   set.
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

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use super::attribute::Attribute;
use super::known_files::{KnownFiles, add, find_in};
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
    /// Where checksums outlive this process, if they do.
    attribute: Option<Attribute>,
    files: Mutex<KnownFiles>,
}

impl ChecksumMemory {
    /// Remembers the checksums of up to `files` files. With a key, files carry them as well.
    pub fn new(files: usize, key: Option<ChecksumKey>) -> Arc<Self> {
        Arc::new(Self {
            attribute: key.map(Attribute::new),
            files: Mutex::new(KnownFiles::new(files)),
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
        let mut files = self.lock();
        if files.is_written(place) {
            return None;
        }
        files.remember(place, version, sums);
        Some(sum)
    }

    /// Announces that a file is received. What was known of it is forgotten.
    pub fn begin_writing(self: &Arc<Self>, file: &OpenedFile) -> Result<Writing, StorageError> {
        let (place, _) = facts(file)?;
        self.lock().begin_writing(place);
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
        if self.lock().is_written(place) {
            return;
        }
        if let Some(version) = self.carry((file, stored), place, version, &sums) {
            let mut files = self.lock();
            if !files.is_written(place) {
                files.remember(place, version, sums);
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
        self.lock().of(place, version).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, KnownFiles> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
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
        let keeps_nothing = self.memory.lock().limit() == 0 && self.memory.attribute.is_none();
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
        let mut files = self.memory.lock();
        if !files.writers_met(place) {
            files.remember(place, version, sums);
            return;
        }
        drop(files);
        // Who has come meanwhile may have written before the file was stamped.
        if let Some(attribute) = &self.memory.attribute {
            attribute.remove(stored);
        }
    }

    fn met_others(&self) -> bool {
        self.memory.lock().writers_met(self.place)
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        self.memory.lock().end_writing(self.place);
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, FileTimes};

    use super::super::site::{Site, opened, stored_in};
    use super::super::version::{QUIET, version};
    use super::*;
    use crate::{PosixOptions, PosixStorage};

    const ADLER: ChecksumAlgorithm = ChecksumAlgorithm::Adler32;

    fn site() -> Site {
        Site::new(None)
    }

    /// Receives a file, and says that its checksum is `sum`.
    fn receive(site: &Site, name: &str, sum: &str) {
        site.receive(name, b"content", vec![(ADLER, sum.to_owned())]);
    }

    fn recall(site: &Site, name: &str) -> Option<String> {
        site.memory.recall(&site.open(name), ADLER)
    }

    #[test]
    fn a_received_file_keeps_its_checksum() {
        let site = site();
        receive(&site, "file", "1");
        assert_eq!(recall(&site, "file"), Some("1".to_owned()));
        fs::rename(site.path("file"), site.path("other")).unwrap();
        // What others do to a name changes ctime on most file systems; then it is computed again.
        assert!(matches!(
            recall(&site, "other").as_deref(),
            Some("1") | None
        ));
        let sha = site
            .memory
            .recall(&site.open("other"), ChecksumAlgorithm::Sha1);
        assert_eq!(sha, None);
    }

    #[test]
    fn whoever_changes_a_file_takes_its_checksum_away() {
        type Change = fn(&Site);
        let changes: [(&str, Change); 7] = [
            ("written over", |site| site.write("file", b"CONTENT")),
            ("made longer", |site| site.write("file", b"content!")),
            ("cut", |site| site.writable("file").set_len(3).unwrap()),
            ("cut and made as long again", |site| {
                let file = site.writable("file");
                file.set_len(0).unwrap();
                file.set_len(7).unwrap();
            }),
            ("written anew", |site| {
                fs::write(site.path("file"), b"CONTENT").unwrap();
            }),
            ("replaced", |site| {
                fs::write(site.path("other"), b"CONTENT").unwrap();
                fs::rename(site.path("other"), site.path("file")).unwrap();
            }),
            ("written over, with its old time", |site| {
                let modified = fs::metadata(site.path("file")).unwrap().modified().unwrap();
                // The clock of the file system may stand still for a tick, and then does not.
                let before = fs::metadata(site.path("file")).unwrap();
                loop {
                    site.write("file", b"CONTENT");
                    let times = FileTimes::new().set_modified(modified);
                    site.writable("file").set_times(times).unwrap();
                    let after = fs::metadata(site.path("file")).unwrap();
                    use std::os::unix::fs::MetadataExt as _;
                    if (before.ctime(), before.ctime_nsec()) != (after.ctime(), after.ctime_nsec())
                    {
                        break;
                    }
                }
            }),
        ];
        for (how, change) in changes {
            let site = site();
            receive(&site, "file", "1");
            assert_eq!(recall(&site, "file"), Some("1".to_owned()), "before {how}");
            change(&site);
            assert_eq!(recall(&site, "file"), None, "{how}");
        }
    }

    #[test]
    fn nothing_is_known_of_a_file_while_it_is_received() {
        let site = site();
        receive(&site, "file", "1");
        let file = opened(&site.writable("file"));
        let first = site.memory.begin_writing(&file).unwrap();
        assert_eq!(recall(&site, "file"), None);
        let second = site.memory.begin_writing(&file).unwrap();
        drop(second);
        first.remember(
            &file,
            &site.stored("file"),
            7,
            vec![(ADLER, "2".to_owned())],
        );
        // It is unknown which of the two wrote what.
        assert_eq!(recall(&site, "file"), None);
        receive(&site, "file", "3");
        assert_eq!(recall(&site, "file"), Some("3".to_owned()));
    }

    #[test]
    fn a_file_of_another_length_is_not_the_one_that_was_received() {
        let site = site();
        fs::write(site.path("file"), b"content").unwrap();
        let file = opened(&site.writable("file"));
        let writing = site.memory.begin_writing(&file).unwrap();
        writing.remember(
            &file,
            &site.stored("file"),
            6,
            vec![(ADLER, "1".to_owned())],
        );
        assert_eq!(recall(&site, "file"), None);
    }

    #[test]
    fn files_of_others_are_stamped_by_others() {
        let site = site();
        fs::write(site.path("file"), b"content").unwrap();
        // A descriptor that cannot be stamped, like one of another account's file.
        let path = site.path("file");
        let held = rustix::fs::open(&path, rustix::fs::OFlags::PATH, rustix::fs::Mode::empty());
        let held = OpenedFile::new(held.unwrap(), 7);
        for stamps in [false, true] {
            let options = PosixOptions {
                read_only: !stamps,
                ..PosixOptions::default()
            };
            let storage = PosixStorage::open(site.directory.path(), options).unwrap();
            let writing = site.memory.begin_writing(&held).unwrap();
            writing.remember(
                &held,
                &stored_in(&storage, "file"),
                7,
                vec![(ADLER, "1".to_owned())],
            );
            assert_eq!(recall(&site, "file").is_some(), stamps);
        }
    }

    #[test]
    fn a_computed_checksum_is_remembered_once_the_file_is_quiet() {
        let site = site();
        fs::write(site.path("file"), b"content").unwrap();
        let file = site.open("file");
        let before = version(&file).unwrap();
        let remember = |now| {
            let sum = (ADLER, "1".to_owned());
            let file = (&file, &site.stored("file"));
            site.memory.remember_computed(file, before, sum, now);
        };
        let now = SystemTime::now();
        remember(now);
        remember(now + QUIET - Duration::from_secs(5));
        assert_eq!(recall(&site, "file"), None);
        remember(now + QUIET + Duration::from_secs(5));
        assert_eq!(recall(&site, "file"), Some("1".to_owned()));
        // Another version of it is not what was read.
        site.writable("file").set_len(0).unwrap();
        remember(now + QUIET + Duration::from_secs(5));
        assert_eq!(recall(&site, "file"), None);
    }
}
