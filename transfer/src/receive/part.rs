//! The file that receives: where the transfer's bytes go in it, and how safe they are there.

use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};

use gridhaul_protocol::ranges::RangeSet;
use gridhaul_stack::{FileRange, RangeWriter, Sparse, Tap};
use gridhaul_storage::{ChecksumAlgorithm, OpenedFile, StorageError, StoredFile, Writing};
use rustix::io::Errno;

use super::reserve::Reserve;
use crate::checksums::{Arrival, Watcher};
use crate::error::TransferError;
use crate::node::{Handling, Placement, SyncPolicy};
use crate::running::Running;

/// Where a file shall be on the disk at the end, the kernel is told to write whenever so much has come:
/// often enough that little is left for the end, and seldom enough for large writes.
const WRITE_BACK_BYTES: u64 = 16 * 1024 * 1024;

/// A file that receives, and where the transfer's offsets begin in it.
#[derive(Debug)]
pub(super) struct Part {
    file: OpenedFile,
    base: u64,
    sync: SyncPolicy,
    sparse: Option<Sparse>,
    /// Blocks for what was announced.
    reserve: Option<Reserve>,
    /// Bytes that the file has got.
    stored: AtomicU64,
    /// Where what arrives is summed up.
    arrival: Option<Arrival>,
}

impl Part {
    pub(super) fn new(file: OpenedFile, placement: Placement, handling: &Handling) -> Self {
        let base = match placement {
            Placement::Replace => 0,
            Placement::At(offset) => offset,
            Placement::Append => file.size_at_open(),
        };
        let old_end = file.size_at_open();
        Self {
            file,
            base,
            sync: handling.sync,
            sparse: handling.sparse.then_some(Sparse { old_end }),
            reserve: None,
            stored: AtomicU64::new(0),
            arrival: None,
        }
    }

    /// Sums up what arrives.
    pub(super) fn summed(self, arrival: Option<Arrival>) -> Self {
        Self { arrival, ..self }
    }

    /// What a worker shows its bytes to.
    pub(super) fn watch(&self) -> Option<Watcher<'_>> {
        self.arrival.as_ref().map(Arrival::watch)
    }

    /// The checksums of the whole file, of which all has arrived. From here on they are remembered.
    pub(super) fn sum_up(
        &self,
        arrived: &RangeSet,
        writing: Writing,
        stored: &StoredFile<'_>,
    ) -> Vec<(ChecksumAlgorithm, String)> {
        let length = arrived.end();
        let Some(arrival) = self
            .arrival
            .as_ref()
            .filter(|_| arrived.covered() == length)
        else {
            return Vec::new();
        };
        let sums = arrival.finish(length);
        writing.remember(&self.file, stored, length, sums.clone());
        sums
    }

    /// A range of the file that receives.
    pub(super) fn range<'a>(
        &'a self,
        offset: u64,
        length: u64,
        scratch: &'a mut [u8],
        moved: &'a AtomicU64,
        watcher: Option<&'a Watcher<'_>>,
    ) -> FileRange<'a> {
        FileRange {
            tap: watcher.map(|watcher| watcher as &dyn Tap),
            // Holes come of what is not written, and past the page cache all of a block is.
            direct: self.file.direct().filter(|_| self.sparse.is_none()),
            sparse: self.sparse,
            ..FileRange::new(self.file.as_fd(), offset, length, scratch, moved)
        }
    }

    /// Writes to the file from `offset` on.
    pub(super) fn writer<'a>(
        &'a self,
        offset: u64,
        moved: &'a AtomicU64,
        watcher: Option<&'a Watcher<'_>>,
    ) -> RangeWriter<'a> {
        self.range(offset, 0, &mut [], moved, watcher).writer()
    }

    /// Whether a block of the transfer has a place in the largest file there can be.
    pub(super) fn place(&self, block: &Range<u64>) -> Result<u64, TransferError> {
        let fits = |offset: u64| {
            self.base
                .checked_add(offset)
                .filter(|&end| i64::try_from(end).is_ok())
        };
        match (fits(block.start), fits(block.end)) {
            (Some(start), Some(_)) => Ok(start),
            _ => Err(StorageError::new("write", Errno::FBIG).into()),
        }
    }

    /// Refuses what was announced if the disk cannot hold it, and reserves blocks from here on as bytes come.
    /// Where holes shall stay, it is not known how much room is needed.
    pub(super) fn reserve(&mut self, promised: Option<u64>) -> Result<(), TransferError> {
        if let Some(bytes) = promised.filter(|_| self.sparse.is_none()) {
            self.place(&(0..bytes))?;
            self.reserve = Reserve::new(&self.file, self.base, bytes)?;
        }
        Ok(())
    }

    /// Gives back the reserved blocks behind the end of the file.
    pub(super) fn release_reserve(&self) -> Result<(), TransferError> {
        if let Some(reserve) = &self.reserve {
            reserve.release()?;
        }
        Ok(())
    }

    /// To be told of bytes that were written: of any that shall be on the disk at the end, the kernel
    /// begins to write while others still come.
    pub(super) fn note_stored(&self, bytes: u64) -> Result<(), TransferError> {
        if self.sync == SyncPolicy::None && self.reserve.is_none() {
            return Ok(());
        }
        let before = self.stored.fetch_add(bytes, Ordering::Relaxed);
        if let Some(reserve) = &self.reserve {
            reserve.follow(before + bytes)?;
        }
        if self.sync == SyncPolicy::None {
            return Ok(());
        }
        if before / WRITE_BACK_BYTES != (before + bytes) / WRITE_BACK_BYTES {
            self.file.begin_write_back()?;
        }
        Ok(())
    }

    /// Makes the file as long as it must be for what it has, where zeros at its end were not written.
    /// After a failure as well: a peer that was told of them does not send them again.
    pub(super) fn lengthen(&self, present: &RangeSet) -> Result<(), TransferError> {
        let needed = self.base.saturating_add(present.end());
        if self.sparse.is_some() && self.file.size()? < needed {
            self.file.truncate(needed)?;
        }
        Ok(())
    }

    /// The last doubts: the file is as long as it must be, as safe as was asked for, and closing it
    /// reports no error.
    pub(super) fn close(self, arrived: &RangeSet, running: &Running) -> Result<(), TransferError> {
        let needed = if arrived.is_empty() {
            0
        } else {
            self.base + arrived.end()
        };
        if self.file.size()? < needed {
            // The file was truncated while it was received.
            return Err(StorageError::new("write", Errno::IO).into());
        }
        match self.sync {
            SyncPolicy::None => {}
            SyncPolicy::Close => self.file.begin_write_back()?,
            SyncPolicy::Data => {
                running.settle();
                self.file.sync_data()?;
            }
        }
        Ok(self.file.close()?)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    /// A device that takes everything, and that cannot be put on a disk.
    fn nothing(sync: SyncPolicy) -> Part {
        let device = File::options().write(true).open("/dev/null");
        let file = OpenedFile::new(device.expect("every system has it").into(), 0);
        let handling = Handling {
            sync,
            ..Handling::default()
        };
        Part::new(file, Placement::Replace, &handling)
    }

    #[test]
    fn a_file_that_is_not_on_the_disk_is_an_error_where_that_was_asked_for() {
        let running = Running::new(1, Box::new(|_| {}));
        let close = |sync| nothing(sync).close(&RangeSet::new(), &running);
        close(SyncPolicy::None).expect("nobody asked");
        close(SyncPolicy::Close).expect("a device writes when it likes");
        let error = close(SyncPolicy::Data).expect_err("fdatasync is refused");
        assert!(error.to_string().contains("Invalid argument"), "{error}");
    }

    #[test]
    fn parts_begin_where_they_were_placed() {
        let file = || OpenedFile::new(File::open("/dev/null").expect("there").into(), 70);
        let place = |placement, block| {
            let part = Part::new(file(), placement, &Handling::default());
            part.place(&block)
        };
        assert_eq!(place(Placement::Replace, 5..6).expect("room"), 5);
        assert_eq!(place(Placement::At(100), 5..6).expect("room"), 105);
        assert_eq!(place(Placement::Append, 5..6).expect("room"), 75);
        let last = i64::MAX as u64;
        place(Placement::At(last), 1..2).expect_err("no file is so long");
        place(Placement::At(u64::MAX), 5..6).expect_err("no number is so large");
    }
}
