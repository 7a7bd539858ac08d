//! Remembers checksums for as long as they are valid for their files.
//!
//! A checksum is kept under the file's identity (device and inode) with the version of its content: size, modification
//! time (mtime) and change time (ctime), to the nanosecond. It is returned only while all of them are the same. So a
//! write, a truncation or a replacement invalidates it. A rename by a client of this process does not (`relabel`). This
//! relies on the following:
//!
//! - Every `write` and `truncate` sets mtime and ctime to the file system's clock. That clock may have a resolution of
//!   10 ms (a tick; finer for most file systems since Linux 6.13) or of a second (old file systems), so two writes may
//!   leave the same times. Therefore a checksum is remembered only if no later write can leave the present mtime. A file
//!   that was received gets an mtime some ticks in the past when it is complete. Its mtime is then earlier than its
//!   ctime, and every later change gets this ctime or a later one. A checksum that was computed from a file is remembered
//!   only if the file has not changed for [`QUIET`](super::version::QUIET).
//! - Programs that write and then restore mtime (`touch -r`, `rsync --inplace`) change ctime, which no program can set.
//! - Writes through a shared mapping update the times when a clean page is first written to, and again after the kernel
//!   has written the page back, which it does after 30 seconds: `QUIET` is longer. File systems in memory have no write
//!   back. There, a program that has a file mapped, has not touched it for a minute, and then writes to a page that it
//!   had written to before, is not detected.
//! - While a file is being received its content is undefined for other programs, and writes of theirs in that time are
//!   not detected. If two sessions of one node receive the same file, nothing is remembered.
//! - On network file systems, opening a file fetches its attributes from the file server (close-to-open consistency).
//!   Files are opened for every request.
//!
//! With a key, checksums are also stored in an extended attribute (`attribute`), which is consulted if the memory has
//! none. A stored value is valid for the same size and mtime, and for the ctime that writing the value has left, which the
//! value can contain only to within 50 ms: a program that writes to a file and restores mtime to the nanosecond, all
//! within that time after the value was written, is not detected by the next process. If this process does it for a
//! client, it removes the value.
//!
//! A checksum that was computed on arrival is stored before the kernel has written the content to the disk, unless files
//! are synced: a crash of the machine soon afterwards may lose content and keep the value.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use super::attribute::Attribute;
use super::known_files::{KnownFiles, add, find_in};
use super::seal::Sums;
use super::version::{FileId, Version, facts};
use super::{ChecksumAlgorithm, ChecksumKey};
use crate::{OpenedFile, StoredFile};

/// The checksums that a node remembers, for a bounded number of files.
#[derive(Debug)]
pub struct ChecksumMemory {
    /// Stores checksums with their files, if there is a key.
    pub(super) attribute: Option<Attribute>,
    files: Mutex<KnownFiles>,
}

impl ChecksumMemory {
    /// Remembers the checksums of up to `files` files. With a key, they are stored with the files as well.
    pub fn new(files: usize, key: Option<ChecksumKey>) -> Arc<Self> {
        Arc::new(Self {
            attribute: key.map(Attribute::new),
            files: Mutex::new(KnownFiles::new(files)),
        })
    }

    /// The checksum of the whole file, if it is remembered and still valid.
    pub fn recall(&self, file: &OpenedFile, algorithm: ChecksumAlgorithm) -> Option<String> {
        let (id, version) = facts(file).ok()?;
        find_in(&self.remembered(id, version)?, algorithm)
    }

    /// The checksum of the whole file, if it is stored with the file and still valid. It is then remembered.
    pub(super) fn recall_stored(
        &self,
        file: &OpenedFile,
        stored: &StoredFile<'_>,
        algorithm: ChecksumAlgorithm,
    ) -> Option<String> {
        let (id, version) = facts(file).ok()?;
        let sums = self.attribute.as_ref()?.read(stored, id, version);
        let sum = find_in(&sums, algorithm)?;
        let mut files = self.lock();
        if files.is_written(id) {
            return None;
        }
        files.remember(id, version, sums);
        Some(sum)
    }

    /// Remembers a checksum that was computed from a file, whose version was `before` when the computation began.
    pub(super) fn remember_computed(
        &self,
        (file, stored): (&OpenedFile, &StoredFile<'_>),
        before: Version,
        sum: (ChecksumAlgorithm, String),
        now: SystemTime,
    ) {
        let Ok((id, version)) = facts(file) else {
            return;
        };
        let mut sums = self.known(stored, id, version);
        // A version with valid checksums cannot have changed unnoticed, so it need not be quiet.
        if version == before && (version.is_quiet(now) || !sums.is_empty()) {
            add(&mut sums, vec![sum]);
            self.keep((file, stored), id, version, sums);
        }
    }

    /// Remembers the checksums of a version, and stores them with the file. Has no effect while the file is received.
    pub(super) fn keep(
        &self,
        (file, stored): (&OpenedFile, &StoredFile<'_>),
        id: FileId,
        version: Version,
        sums: Sums,
    ) {
        if self.lock().is_written(id) {
            return;
        }
        if let Some(version) = self.store((file, stored), id, version, &sums) {
            let mut files = self.lock();
            if !files.is_written(id) {
                files.remember(id, version, sums);
            }
        }
    }

    /// Stores the checksums of a version with the file. Returns the version afterwards; `None` if the content has changed.
    pub(super) fn store(
        &self,
        file: (&OpenedFile, &StoredFile<'_>),
        id: FileId,
        version: Version,
        sums: &Sums,
    ) -> Option<Version> {
        match &self.attribute {
            Some(attribute) => attribute.write(file, id, version, sums),
            None => Some(version),
        }
    }

    /// All valid checksums of a version.
    pub(super) fn known(&self, stored: &StoredFile<'_>, id: FileId, version: Version) -> Sums {
        let remembered = self.remembered(id, version);
        remembered
            .or_else(|| Some(self.attribute.as_ref()?.read(stored, id, version)))
            .unwrap_or_default()
    }

    /// Removes the checksums that are stored with a file.
    pub(super) fn remove_stored(&self, stored: &StoredFile<'_>) {
        if let Some(attribute) = &self.attribute {
            attribute.remove(stored);
        }
    }

    fn remembered(&self, id: FileId, version: Version) -> Option<Sums> {
        self.lock().of(id, version).cloned()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, KnownFiles> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, FileTimes};
    use std::time::Duration;

    use super::super::site::{Site, opened, stored_in};
    use super::super::version::{QUIET, version};
    use super::*;
    use crate::{PosixOptions, PosixStorage};

    const ADLER: ChecksumAlgorithm = ChecksumAlgorithm::Adler32;

    fn site() -> Site {
        Site::new(None)
    }

    /// Receives a file with `sum` for its checksum.
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
        // A rename by another program changes ctime on most file systems; then the checksum is computed again.
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
    fn every_change_of_a_file_invalidates_its_checksum() {
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
                // Repeated until the file system's clock has advanced by a tick.
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
    fn a_file_has_no_checksum_while_it_is_received() {
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
        // The content may be a mixture of both.
        assert_eq!(recall(&site, "file"), None);
        receive(&site, "file", "3");
        assert_eq!(recall(&site, "file"), Some("3".to_owned()));
    }

    #[test]
    fn a_file_of_another_length_is_not_remembered() {
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
    fn files_of_another_account_get_their_time_by_name() {
        let site = site();
        fs::write(site.path("file"), b"content").unwrap();
        // A descriptor that does not allow to set times, as for a file of another account.
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
        // Another version is not the one that was read.
        site.writable("file").set_len(0).unwrap();
        remember(now + QUIET + Duration::from_secs(5));
        assert_eq!(recall(&site, "file"), None);
    }
}
