//! The file that a transfer writes to: offsets, reservation, write-back, and closing.

use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use gridhaul_protocol::ranges::RangeSet;
use gridhaul_stack::{FileRange, RangeWriter, Sparse, Tap};
use gridhaul_storage::{ChecksumAlgorithm, OpenedFile, StorageError, StoredFile, Writing};
use rustix::io::Errno;

use super::limit::Limit;
use super::reserve::Reserve;
use crate::checksums::{Arrival, Watcher};
use crate::error::TransferError;
use crate::node::{Handling, Placement, SyncPolicy};
use crate::running::Running;

/// How often write-back is started for a file that must be on disk at the end: often enough to leave little for
/// the end, and seldom enough for large writes.
const WRITE_BACK_BYTES: u64 = 16 * 1024 * 1024;

/// The file that a transfer writes to, and where the transfer's offsets begin in it.
#[derive(Debug)]
pub(super) struct Part {
    file: OpenedFile,
    base: u64,
    limit: Limit,
    sync: SyncPolicy,
    sparse: Option<Sparse>,
    /// The reserved blocks for the announced bytes.
    reserve: Option<Reserve>,
    /// Bytes written by this transfer.
    stored: AtomicU64,
    /// Computes checksums of the arriving bytes.
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
            limit: Limit::of(handling),
            sync: handling.sync,
            sparse: handling.sparse.then_some(Sparse { old_end }),
            reserve: None,
            stored: AtomicU64::new(0),
            arrival: None,
        }
    }

    /// Adds checksums of the arriving bytes.
    pub(super) fn with_checksums(self, arrival: Option<Arrival>) -> Self {
        Self { arrival, ..self }
    }

    /// A tap for the bytes that one worker receives.
    pub(super) fn watch(&self) -> Option<Watcher<'_>> {
        self.arrival.as_ref().map(Arrival::watch)
    }

    /// The checksums of a file that has arrived as a whole; caches them.
    pub(super) fn finish_checksums(
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
        self.remember(writing, stored, length, sums.clone());
        sums
    }

    /// Caches the checksums of a file that is complete with `length` bytes.
    pub(super) fn remember(
        &self,
        writing: Writing,
        stored: &StoredFile<'_>,
        length: u64,
        sums: Vec<(ChecksumAlgorithm, String)>,
    ) {
        writing.remember(&self.file, stored, length, sums);
    }

    /// A range of the file to receive into.
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
            direct: self.direct(),
            sparse: self.sparse,
            ..FileRange::new(self.file.as_fd(), offset, length, scratch, moved)
        }
    }

    /// Whether ranges may go past the page cache.
    pub(super) fn is_direct(&self) -> bool {
        self.direct().is_some()
    }

    /// The descriptor past the page cache. Direct I/O writes whole blocks, and would fill the holes.
    fn direct(&self) -> Option<BorrowedFd<'_>> {
        self.file.direct().filter(|_| self.sparse.is_none())
    }

    /// A writer to the file from `offset` on.
    pub(super) fn writer<'a>(
        &'a self,
        offset: u64,
        moved: &'a AtomicU64,
        watcher: Option<&'a Watcher<'_>>,
    ) -> RangeWriter<'a> {
        self.range(offset, 0, &mut [], moved, watcher).writer()
    }

    /// The end of the part.
    pub(super) fn limit(&self) -> Limit {
        self.limit
    }

    /// The offset in the file of a block of the transfer; an error if it exceeds the part, or the largest possible file.
    pub(super) fn place(&self, block: &Range<u64>) -> Result<u64, TransferError> {
        let count = block.end.saturating_sub(block.start);
        self.limit.check(block.start, count)?;
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

    /// Checks that the announced bytes fit on the disk, and reserves blocks as bytes arrive. Not for sparse
    /// files, whose disk usage is unknown. For a file that is `divided` among nodes only the check: unused blocks are freed by
    /// cutting the file to its size, which another node may be changing.
    pub(super) fn reserve(
        &mut self,
        promised: Option<u64>,
        divided: bool,
    ) -> Result<(), TransferError> {
        if let Some(bytes) = promised.filter(|_| self.sparse.is_none()) {
            self.place(&(0..bytes))?;
            let reserve = Reserve::new(&self.file, self.base, bytes)?;
            self.reserve = reserve.filter(|_| !divided);
        }
        Ok(())
    }

    /// Frees the reserved blocks behind the end of the file.
    pub(super) fn release_reserve(&self) -> Result<(), TransferError> {
        if let Some(reserve) = &self.reserve {
            reserve.release()?;
        }
        Ok(())
    }

    /// Records written bytes. Extends the reservation, and starts write-back if the file must be on disk
    /// at the end.
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

    /// Extends a sparse file over zeros at its end that were not written. Also after a
    /// failure: the restart markers included them, so the peer does not send them again.
    ///
    /// No single call does that: ftruncate also cuts, and fallocate and a write at the end take a block. So what another program
    /// appends between both calls is lost, as it would be if it came before the zeros.
    pub(super) fn lengthen(&self, present: &RangeSet) -> Result<(), TransferError> {
        let needed = self.base.saturating_add(present.end());
        if self.sparse.is_some() && self.file.size()? < needed {
            self.file.truncate(needed)?;
        }
        Ok(())
    }

    /// As [`Self::lengthen`], while other nodes may be lengthening the file: it is never cut. `arrived` was received by this
    /// node.
    pub(super) fn reach(&self, arrived: &RangeSet) -> Result<(), TransferError> {
        let needed = self.base.saturating_add(arrived.end());
        if self.sparse.is_some() && !arrived.is_empty() && self.file.size()? < needed {
            // The last byte is one of the zeros that were not written, and belongs to no other node.
            rustix::io::retry_on_intr(|| rustix::io::pwrite(&self.file, &[0], needed - 1))
                .map_err(|errno| StorageError::new("write", errno))?;
        }
        Ok(())
    }

    /// Checks the length of the file, syncs it as configured, and closes it. An error of any step fails the
    /// transfer.
    pub(super) fn close(self, arrived: &RangeSet, running: &Running) -> Result<(), TransferError> {
        let needed = if arrived.is_empty() {
            0
        } else {
            self.base + arrived.end()
        };
        if self.file.ends_before(needed)? {
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

    /// A device that accepts all writes and does not support fdatasync.
    fn null_device(sync: SyncPolicy) -> Part {
        let device = File::options().write(true).open("/dev/null");
        let file = OpenedFile::new(device.expect("every system has it").into(), 0);
        let handling = Handling {
            sync,
            ..Handling::default()
        };
        Part::new(file, Placement::Replace, &handling)
    }

    #[test]
    fn a_failed_sync_is_an_error_if_sync_is_configured() {
        let running = Running::new(1, Box::new(|_| {}));
        let close = |sync| null_device(sync).close(&RangeSet::new(), &running);
        close(SyncPolicy::None).expect("no sync configured");
        close(SyncPolicy::Close).expect("write-back is optional");
        let error = close(SyncPolicy::Data).expect_err("fdatasync is refused");
        assert!(error.to_string().contains("Invalid argument"), "{error}");
    }

    #[test]
    fn the_placement_determines_the_offset() {
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
