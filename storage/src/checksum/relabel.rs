//! Keeps checksums while this process changes the name, times or permissions of a file for a client.
//!
//! Such a change updates ctime, which also detects writes. So the file's version is read right before and right after: a
//! write in between changes size or mtime. A program that writes in between and restores mtime to the nanosecond is not
//! detected, nor is a write while a client sets mtime. Therefore checksums are dropped if the change took long.

use std::time::{Duration, Instant, SystemTime};

use super::memory::ChecksumMemory;
use super::seal::Sums;
use super::version::{FileId, Version, facts};
use crate::{OpenedFile, StorageError, StoredFile};

/// Checksums are kept only if the change took at most this long. Most changes take microseconds; the margin is for a busy machine.
const LONGEST: Duration = Duration::from_secs(1);

/// The checksums of a file before it is changed.
struct Known {
    id: FileId,
    version: Version,
    sums: Sums,
    since: Instant,
}

impl ChecksumMemory {
    /// Sets a file's modification time, and keeps its checksums.
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
            // The stored checksum may have the new modification time and belong to an earlier content.
            self.remove_stored(stored);
        }
        Ok(())
    }

    /// Calls `relabel`, which changes the name or the permissions of a file, and keeps its checksums. `stored` is its name
    /// before and afterwards.
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
        let (id, version) = facts(file).ok()?;
        let sums = self.known(stored, id, version);
        (!sums.is_empty()).then_some(Known {
            id,
            version,
            sums,
            since,
        })
    }

    /// Keeps the checksums of a file if its content is still the same; returns whether it is.
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
            self.keep((file, stored), known.id, after, known.sums);
        }
        is_same
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::UNIX_EPOCH;

    use super::super::ChecksumAlgorithm;
    use super::super::site::{Site, key};
    use super::*;
    use crate::Storage as _;

    const ADLER: ChecksumAlgorithm = ChecksumAlgorithm::Adler32;
    const SUM: &str = "0bcb02fc";

    /// More than a tick of the slowest clock that Linux is built with, and less than [`LONGEST`].
    const TICK: Duration = Duration::from_millis(15);

    fn site() -> Site {
        Site::new(None)
    }

    /// A client stores the file `file`.
    fn receive(site: &Site) {
        site.receive("file", b"content", vec![(ADLER, SUM.to_owned())]);
        assert!(is_known(site, "file"));
    }

    fn is_known(site: &Site, name: &str) -> bool {
        let sum = site.memory.recall(&site.open(name), ADLER);
        assert!(sum.as_deref().is_none_or(|sum| sum == SUM));
        sum.is_some()
    }

    /// Renames the file to `other`, after `before`.
    fn rename(site: &Site, before: impl FnOnce()) {
        let names = (&site.stored("file"), &site.stored("other"));
        let relabel = || {
            before();
            site.storage.rename("file".as_ref(), "other".as_ref())
        };
        let file = site.open("file");
        let renamed = site.memory.keep_while_relabelled(&file, names, relabel);
        renamed.unwrap();
    }

    #[test]
    fn a_file_keeps_its_checksum_under_any_name_and_with_any_rights() {
        let site = site();
        receive(&site);
        rename(&site, || {});
        assert!(is_known(&site, "other"));
        let stored = site.stored("other");
        let set = || site.storage.set_mode("other".as_ref(), 0o600);
        let file = site.open("other");
        let relabelled = site
            .memory
            .keep_while_relabelled(&file, (&stored, &stored), set);
        relabelled.unwrap();
        assert!(is_known(&site, "other"));
        // A new content does not inherit it.
        fs::write(site.path("other"), b"CONTENT").unwrap();
        assert!(!is_known(&site, "other"));
    }

    #[test]
    fn a_write_just_before_a_rename_is_detected() {
        let contents: [&[u8]; 2] = [b"CONTENT", b"longer content"];
        for content in contents {
            let site = site();
            receive(&site);
            rename(&site, || {
                site.write("file", content);
                // The rename happens in a later tick of the file system's clock.
                let written = Instant::now();
                while written.elapsed() < TICK {
                    std::thread::yield_now();
                }
            });
            assert!(!is_known(&site, "other"));
        }
    }

    #[test]
    fn nothing_is_kept_over_a_change_that_takes_long() {
        let site = site();
        receive(&site);
        let version = |name| facts(&site.open(name)).unwrap().1;
        let before = version("file");
        rename(&site, || std::thread::sleep(LONGEST));
        // If the file system does not change ctime on a rename, the checksum is still valid.
        assert_eq!(is_known(&site, "other"), version("other") == before);
    }

    #[test]
    fn a_failed_rename_keeps_the_checksum() {
        let site = site();
        receive(&site);
        let names = (&site.stored("file"), &site.stored("no/such"));
        let relabel = || site.storage.rename("file".as_ref(), "no/such".as_ref());
        let file = site.open("file");
        let renamed = site.memory.keep_while_relabelled(&file, names, relabel);
        renamed.unwrap_err();
        assert!(is_known(&site, "file"));
    }

    #[test]
    fn the_stored_checksum_survives_a_rename() {
        let Some(mut site) = Site::with_attributes() else {
            return;
        };
        receive(&site);
        rename(&site, || {});
        site.restart(key(0));
        let (file, stored) = (site.open("other"), site.stored("other"));
        assert_eq!(
            site.memory.recall_stored(&file, &stored, ADLER).as_deref(),
            Some(SUM)
        );
    }

    #[test]
    fn setting_the_modification_time_keeps_the_checksum() {
        let site = site();
        receive(&site);
        let file = site.open("file");
        let set = |seconds| {
            let time = UNIX_EPOCH + Duration::from_secs(seconds);
            let memory = &site.memory;
            memory
                .keep_while_modified(&file, &site.stored("file"), time)
                .unwrap();
        };
        set(1_000_000_000);
        assert!(is_known(&site, "file"));
        site.write("file", b"CONTENT");
        assert!(!is_known(&site, "file"));
        // In the far future: later writes may have an earlier time.
        receive(&site);
        set(10_000_000_000);
        assert!(!is_known(&site, "file"));
    }
}
