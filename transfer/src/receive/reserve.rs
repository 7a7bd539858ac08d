//! Blocks that are reserved for what `ALLO` announced.
//!
//! A reservation keeps a file in one piece and tells of a full disk early, but an announcement costs a client
//! nothing. So nothing is reserved for a client that sends nothing, later about as much as has come, and
//! never more than [`MOST_AHEAD_BYTES`] beyond it. What is left is given back however the transfer ends, when the
//! reservation is dropped.

use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use gridhaul_storage::{OpenedFile, StorageError};

/// From this size on, blocks are reserved.
const FROM_BYTES: u64 = 4 * 1024 * 1024;

/// The least and the most that is reserved beyond what has come.
const LEAST_AHEAD_BYTES: u64 = 16 * 1024 * 1024;
const MOST_AHEAD_BYTES: u64 = 256 * 1024 * 1024;

/// The reservation of one file.
#[derive(Debug)]
pub(super) struct Reserve {
    /// A descriptor of its own, which is closed after the rest is given back.
    file: OpenedFile,
    /// Where the announced bytes begin in the file.
    base: u64,
    /// How many are announced.
    promised: u64,
    /// When so many bytes have come, more is reserved.
    due: AtomicU64,
    /// How many bytes are reserved from `base` on.
    reserved: Mutex<u64>,
}

impl Reserve {
    /// Looks whether there is room for what is announced; `None` where nothing is to be reserved.
    ///
    /// # Errors
    ///
    /// When the disk is too full.
    pub(super) fn new(
        file: &OpenedFile,
        base: u64,
        promised: u64,
    ) -> Result<Option<Self>, StorageError> {
        if promised < FROM_BYTES {
            return Ok(None);
        }
        let own = file.as_fd().try_clone_to_owned();
        let own = own.map_err(|error| StorageError::from_io("open", &error));
        let reserve = Self {
            file: OpenedFile::new(own?, file.size_at_open()),
            base,
            promised,
            due: AtomicU64::new(1),
            reserved: Mutex::new(1),
        };
        // One block shows whether the file system can.
        if !file.preallocate(base, 1)? {
            return Ok(None);
        }
        file.check_room(base, promised)?;
        Ok(Some(reserve))
    }

    /// To be told how many bytes have come in all.
    pub(super) fn follow(&self, stored: u64) -> Result<(), StorageError> {
        if stored < self.due.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut reserved = self.reserved.lock().unwrap_or_else(PoisonError::into_inner);
        let ahead = stored.clamp(LEAST_AHEAD_BYTES, MOST_AHEAD_BYTES);
        let wanted = stored.saturating_add(ahead).min(self.promised);
        if wanted > *reserved {
            self.file
                .preallocate(self.base + *reserved, wanted - *reserved)?;
            *reserved = wanted;
        }
        let due = if wanted == self.promised {
            u64::MAX
        } else {
            // Half of it is left then.
            stored.saturating_add(ahead / 2)
        };
        self.due.store(due, Ordering::Relaxed);
        Ok(())
    }

    /// Gives back the reserved blocks behind the end of the file.
    ///
    /// # Errors
    ///
    /// When the file cannot be cut to its size.
    pub(super) fn release(&self) -> Result<(), StorageError> {
        let mut reserved = self.reserved.lock().unwrap_or_else(PoisonError::into_inner);
        self.due.store(u64::MAX, Ordering::Relaxed);
        if std::mem::take(&mut *reserved) == 0 {
            return Ok(());
        }
        self.file.truncate(self.file.size()?)
    }
}

impl Drop for Reserve {
    fn drop(&mut self) {
        // The transfer has failed, and says why; what this would add is seen by those who look at the disk.
        let _ = self.release();
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::{FileExt as _, MetadataExt as _};

    use super::*;

    const GIB: u64 = 1 << 30;
    /// Blocks of file systems, and what they need to find them again.
    const LITTLE: u64 = 1 << 20;

    /// A file, and what shows its blocks; `None` where blocks cannot be reserved.
    fn file() -> Option<(OpenedFile, File)> {
        let file = tempfile::tempfile().expect("a file");
        let opened = OpenedFile::new(file.try_clone().expect("twice").into(), 0);
        if opened.preallocate(0, 1).expect("room") {
            opened.truncate(0).expect("cut");
            return Some((opened, file));
        }
        eprintln!("skipped: no blocks can be reserved where temporary files are");
        None
    }

    fn reserved(file: &File) -> u64 {
        file.metadata().expect("there").blocks() * 512
    }

    #[test]
    fn as_much_is_reserved_as_has_come() {
        let Some((opened, file)) = file() else {
            return;
        };
        let reserve = Reserve::new(&opened, 0, GIB);
        let reserve = reserve.expect("room").expect("it is long");
        assert!(reserved(&file) <= LITTLE);
        let mut most = 0;
        for stored in [1, 1 << 20, 20 << 20, 100 << 20, 600 << 20, GIB] {
            reserve.follow(stored).expect("room");
            let ahead = reserved(&file).saturating_sub(stored);
            assert!(ahead <= MOST_AHEAD_BYTES + LITTLE, "{ahead} after {stored}");
            assert!(
                ahead <= stored.max(LEAST_AHEAD_BYTES) + LITTLE,
                "{ahead} after {stored}"
            );
            most = most.max(reserved(&file));
        }
        assert!(most >= GIB, "all is reserved in the end");
        file.write_all_at(b"content", 0).expect("written");
        reserve.release().expect("given back");
        assert!(reserved(&file) <= LITTLE);
        assert_eq!(opened.size().expect("there"), 7);
        reserve.follow(GIB).expect("nothing to do");
        assert!(reserved(&file) <= LITTLE);
    }

    #[test]
    fn what_is_reserved_is_given_back_however_the_transfer_ends() {
        let Some((opened, file)) = file() else {
            return;
        };
        let reserve = Reserve::new(&opened, 0, GIB);
        let reserve = reserve.expect("room").expect("it is long");
        drop(opened);
        reserve.follow(100 << 20).expect("room");
        assert!(reserved(&file) >= 100 << 20);
        drop(reserve);
        assert_eq!(reserved(&file), 0);
    }

    #[test]
    fn what_the_disk_cannot_hold_is_refused_and_reserves_nothing() {
        let Some((opened, file)) = file() else {
            return;
        };
        let error = Reserve::new(&opened, 0, 1 << 60).expect_err("no disk is so large");
        assert!(error.to_string().contains("No space left"), "{error}");
        assert_eq!(reserved(&file), 0);
        assert!(
            Reserve::new(&opened, 0, FROM_BYTES - 1)
                .expect("short")
                .is_none()
        );
    }
}
