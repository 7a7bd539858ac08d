//! Keeps checksums while files get other names, times and rights through this process.
//!
//! All of that moves ctime, by which writes are noticed. So a file is looked at right before and right after: whoever has
//! written to it in between has moved its size or its mtime. A program that writes in between and sets mtime back to
//! the nanosecond is not noticed, nor is one that writes while a client has mtime set; so nothing is kept if that took
//! long.

use std::time::{Duration, Instant, SystemTime};

use super::memory::ChecksumMemory;
use super::seal::Sums;
use super::version::{Place, Version, facts};
use crate::{OpenedFile, StorageError, StoredFile};

/// How long a change may take, which is some microseconds mostly: longer than one on a busy machine.
const LONGEST: Duration = Duration::from_secs(1);

/// What is known of a file before it is changed.
struct Known {
    place: Place,
    version: Version,
    sums: Sums,
    since: Instant,
}

impl ChecksumMemory {
    /// Sets a file's time of modification, and keeps its checksums.
    ///
    /// # Errors
    ///
    /// Those of [`crate::Storage::set_modified`].
    pub fn keep_while_modified(
        &self,
        file: &OpenedFile,
        stored: &StoredFile<'_>,
        modified: SystemTime,
    ) -> Result<(), StorageError> {
        let known = self.known_before(file, stored);
        stored.storage.set_modified(stored.path, modified)?;
        if !known.is_some_and(|known| self.keep_after(file, stored, known, |_| true)) {
            // What it carries may be true of the time that it has from here on, and not of its content.
            self.remove_carried(stored);
        }
        Ok(())
    }

    /// Has `relabel` give a file another name or other rights, and keeps its checksums. `stored` is its name before and
    /// its name afterwards.
    ///
    /// # Errors
    ///
    /// Those of `relabel`.
    pub fn keep_while_relabelled(
        &self,
        file: &OpenedFile,
        stored: (&StoredFile<'_>, &StoredFile<'_>),
        relabel: impl FnOnce() -> Result<(), StorageError>,
    ) -> Result<(), StorageError> {
        let known = self.known_before(file, stored.0);
        relabel()?;
        if let Some(known) = known {
            let before = known.version;
            self.keep_after(file, stored.1, known, |after| {
                after.modified == before.modified
            });
        }
        Ok(())
    }

    fn known_before(&self, file: &OpenedFile, stored: &StoredFile<'_>) -> Option<Known> {
        let since = Instant::now();
        let (place, version) = facts(file).ok()?;
        let sums = self.known(stored, place, version);
        (!sums.is_empty()).then_some(Known {
            place,
            version,
            sums,
            since,
        })
    }

    /// Keeps what was known before of a file that is believed to have the same content after; whether it is.
    fn keep_after(
        &self,
        file: &OpenedFile,
        stored: &StoredFile<'_>,
        known: Known,
        is_same: impl FnOnce(&Version) -> bool,
    ) -> bool {
        let Ok((_, after)) = facts(file) else {
            return false;
        };
        let is_same = after.size == known.version.size
            && after.is_lasting()
            && is_same(&after)
            && known.since.elapsed() <= LONGEST;
        if is_same {
            self.keep((file, stored), known.place, after, known.sums);
        }
        is_same
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File, OpenOptions};
    use std::io::Write as _;
    use std::os::unix::fs::FileExt as _;
    use std::path::{Path, PathBuf};
    use std::sync::Arc;
    use std::time::UNIX_EPOCH;

    use tempfile::TempDir;

    use super::super::{ChecksumAlgorithm, ChecksumKey};
    use super::*;
    use crate::{PosixOptions, PosixStorage, Storage as _};

    const ADLER: ChecksumAlgorithm = ChecksumAlgorithm::Adler32;
    const SUM: &str = "0bcb02fc";

    /// More than a tick of the slowest clock that Linux is built with, and less than what a change may take.
    const TICK: Duration = Duration::from_millis(15);

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

        /// Receives a file.
        fn receive(&self) {
            let mut file = File::create(self.path("file")).unwrap();
            let opened = OpenedFile::new(file.try_clone().unwrap().into(), 0);
            let writing = self.memory.begin_writing(&opened).unwrap();
            file.write_all(b"content").unwrap();
            let sums = vec![(ADLER, SUM.to_owned())];
            writing.remember(&opened, &self.stored("file"), 7, sums);
            assert!(self.is_known("file"));
        }

        fn path(&self, name: &str) -> PathBuf {
            self.directory.path().join(name)
        }

        fn stored<'a>(&'a self, name: &'a str) -> StoredFile<'a> {
            StoredFile {
                storage: &self.storage,
                path: Path::new(name),
            }
        }

        fn open(&self, name: &str) -> OpenedFile {
            self.storage.open_read(name.as_ref()).unwrap()
        }

        fn is_known(&self, name: &str) -> bool {
            let sum = self.memory.recall(&self.open(name), ADLER);
            assert!(sum.as_deref().is_none_or(|sum| sum == SUM));
            sum.is_some()
        }

        fn write(&self, content: &[u8]) {
            let file = OpenOptions::new().write(true).open(self.path("file"));
            file.unwrap().write_all_at(content, 0).unwrap();
        }

        /// Gives the file the name `other`, after `before`.
        fn rename(&self, before: impl FnOnce()) {
            let names = (&self.stored("file"), &self.stored("other"));
            let relabel = || {
                before();
                self.storage.rename("file".as_ref(), "other".as_ref())
            };
            let file = self.open("file");
            let renamed = self.memory.keep_while_relabelled(&file, names, relabel);
            renamed.unwrap();
        }
    }

    #[test]
    fn a_file_keeps_its_checksum_under_any_name_and_with_any_rights() {
        let fixture = Fixture::new();
        fixture.receive();
        fixture.rename(|| {});
        assert!(fixture.is_known("other"));
        let stored = fixture.stored("other");
        let set = || fixture.storage.set_mode("other".as_ref(), 0o600);
        let file = fixture.open("other");
        let relabelled = fixture
            .memory
            .keep_while_relabelled(&file, (&stored, &stored), set);
        relabelled.unwrap();
        assert!(fixture.is_known("other"));
        // It is not carried on to what comes in its place.
        fs::write(fixture.path("other"), b"CONTENT").unwrap();
        assert!(!fixture.is_known("other"));
    }

    #[test]
    fn what_is_written_just_before_the_new_name_is_noticed() {
        let contents: [&[u8]; 2] = [b"CONTENT", b"longer content"];
        for content in contents {
            let fixture = Fixture::new();
            fixture.receive();
            fixture.rename(|| {
                fixture.write(content);
                // So that the new name is given in a later tick of the file system's clock.
                let written = Instant::now();
                while written.elapsed() < TICK {
                    std::thread::yield_now();
                }
            });
            assert!(!fixture.is_known("other"));
        }
    }

    #[test]
    fn nothing_is_kept_over_a_change_that_takes_long() {
        let fixture = Fixture::new();
        fixture.receive();
        let version = |name| facts(&fixture.open(name)).unwrap().1;
        let before = version("file");
        fixture.rename(|| std::thread::sleep(LONGEST));
        // Where a new name leaves ctime as it was, there is nothing to keep.
        assert_eq!(fixture.is_known("other"), version("other") == before);
    }

    #[test]
    fn a_failure_leaves_what_was_known() {
        let fixture = Fixture::new();
        fixture.receive();
        let names = (&fixture.stored("file"), &fixture.stored("no/such"));
        let relabel = || fixture.storage.rename("file".as_ref(), "no/such".as_ref());
        let file = fixture.open("file");
        let renamed = fixture.memory.keep_while_relabelled(&file, names, relabel);
        renamed.unwrap_err();
        assert!(fixture.is_known("file"));
    }

    #[test]
    fn a_file_carries_its_checksum_under_its_new_name() {
        let key = || ChecksumKey::new(&[1; 32]).unwrap();
        let mut fixture = Fixture::new();
        fixture.memory = ChecksumMemory::new(16, Some(key()));
        fixture.receive();
        if fixture
            .storage
            .checksum_attribute("file".as_ref())
            .ok()
            .flatten()
            .is_none()
        {
            eprintln!("skipped: no extended attributes where temporary files are");
            return;
        }
        fixture.rename(|| {});
        let other = ChecksumMemory::new(16, Some(key()));
        let (file, stored) = (fixture.open("other"), fixture.stored("other"));
        assert_eq!(
            other.recall_carried(&file, &stored, ADLER).as_deref(),
            Some(SUM)
        );
    }

    #[test]
    fn a_time_that_is_set_through_us_changes_no_content() {
        let fixture = Fixture::new();
        fixture.receive();
        let file = fixture.open("file");
        let set = |seconds| {
            let time = UNIX_EPOCH + Duration::from_secs(seconds);
            let memory = &fixture.memory;
            memory
                .keep_while_modified(&file, &fixture.stored("file"), time)
                .unwrap();
        };
        set(1_000_000_000);
        assert!(fixture.is_known("file"));
        fixture.write(b"CONTENT");
        assert!(!fixture.is_known("file"));
        // In the far future: nobody knows which times later writes will have.
        fixture.receive();
        set(10_000_000_000);
        assert!(!fixture.is_known("file"));
    }
}
