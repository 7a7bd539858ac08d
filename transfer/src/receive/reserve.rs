//! Reservation of disk blocks for the size in `ALLO`.
//!
//! A reservation avoids fragmentation and detects a full disk early, but an announcement costs the client
//! nothing. So the reservation starts with the first byte, grows with the received bytes to about twice their
//! number, and never exceeds them by more than [`MOST_AHEAD_BYTES`]. Unused blocks are freed when the reservation is
//! dropped, however the transfer ends.
//!
//! Only cutting the file to its size frees them. What another program adds between both calls would be cut off, so a file that has
//! reached the end of its reservation, as each complete one has, is not cut.

use std::os::fd::AsFd as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use gridhaul_storage::{OpenedFile, StorageError};

use crate::sync::lock;

/// Blocks are reserved for files of at least this size.
const FROM_BYTES: u64 = 4 * 1024 * 1024;

/// The limits of the reservation beyond the received bytes.
const LEAST_AHEAD_BYTES: u64 = 16 * 1024 * 1024;
const MOST_AHEAD_BYTES: u64 = 256 * 1024 * 1024;

/// The reservation of one file.
#[derive(Debug)]
pub(super) struct Reserve {
    /// A separate descriptor, closed after the unused blocks are freed.
    file: OpenedFile,
    /// Where the announced bytes begin in the file.
    base: u64,
    /// The number of announced bytes.
    promised: u64,
    /// The number of received bytes at which the reservation grows.
    due: AtomicU64,
    /// The number of reserved bytes from `base` on.
    reserved: Mutex<u64>,
}

impl Reserve {
    /// Checks that there is room for the announced bytes; `None` if the file is small or the file system cannot
    /// reserve blocks.
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
        // Reserving one block shows whether the file system supports it.
        if !file.preallocate(base, 1)? {
            return Ok(None);
        }
        file.check_room(base, promised)?;
        Ok(Some(reserve))
    }

    /// Grows the reservation after `stored` bytes have been received.
    pub(super) fn follow(&self, stored: u64) -> Result<(), StorageError> {
        if stored < self.due.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut reserved = lock(&self.reserved);
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
            // Then half of the reservation is unused.
            stored.saturating_add(ahead / 2)
        };
        self.due.store(due, Ordering::Relaxed);
        Ok(())
    }

    /// Frees the reserved blocks behind the end of the file.
    ///
    /// # Errors
    ///
    /// When the file cannot be cut to its size.
    pub(super) fn release(&self) -> Result<(), StorageError> {
        let mut reserved = lock(&self.reserved);
        self.due.store(u64::MAX, Ordering::Relaxed);
        let reserved = std::mem::take(&mut *reserved);
        if reserved == 0 {
            return Ok(());
        }
        let size = self.file.size()?;
        match size < self.base.saturating_add(reserved) {
            true => self.file.truncate(size),
            false => Ok(()),
        }
    }
}

impl Drop for Reserve {
    fn drop(&mut self) {
        // The transfer has already failed and reports its own error; blocks that cannot be freed are only wasted.
        let _ = self.release();
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::{FileExt as _, MetadataExt as _};
    use std::time::{Duration, SystemTime};

    use super::*;

    const GIB: u64 = 1 << 30;
    /// Rounding to blocks, and metadata of the file system.
    const LITTLE: u64 = 1 << 20;

    /// A file, opened twice; `None` where blocks cannot be reserved.
    fn file() -> Option<(OpenedFile, File)> {
        let file = tempfile::tempfile().expect("a file");
        let opened = OpenedFile::new(file.try_clone().expect("twice").into(), 0);
        if opened.preallocate(0, 1).expect("room") {
            opened.truncate(0).expect("cut");
            return Some((opened, file));
        }
        gridhaul_skip::skipped("no blocks can be reserved where temporary files are");
        None
    }

    fn reserved(file: &File) -> u64 {
        file.metadata().expect("there").blocks() * 512
    }

    #[test]
    fn the_reservation_follows_the_received_bytes() {
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
    fn a_dropped_reservation_frees_its_blocks() {
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
    fn a_file_that_has_all_bytes_is_not_cut() {
        let Some((opened, file)) = file() else {
            return;
        };
        let promised = 2 * FROM_BYTES;
        let reserve = Reserve::new(&opened, 0, promised);
        let reserve = reserve.expect("room").expect("it is long");
        reserve.follow(promised).expect("room");
        file.write_all_at(&[1], promised - 1).expect("written");
        let past = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
        file.set_modified(past).expect("the file is ours");
        reserve.release().expect("nothing to do");
        // A cut to the same size would set it.
        let modified = file.metadata().expect("there").modified();
        assert_eq!(modified.expect("supported"), past);
    }

    #[test]
    fn more_than_the_disk_can_hold_is_refused() {
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
