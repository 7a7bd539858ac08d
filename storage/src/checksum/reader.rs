//! Reads parts of a file, with progress and cancellation.
//!
//! Files are read with `pread` and not mapped: access to a mapping beyond the end of a truncated file kills the process,
//! while a read returns 0 there.

use std::fmt;
use std::ops::Range;
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::SeekFrom;
use rustix::io::Errno;

use crate::{OpenedFile, StorageError};

/// Bytes that are read at a time: they stay in the processor's cache until they are summed.
pub(super) const READ_BYTES: usize = 512 * 1024;

/// Progress and cancellation of a long computation.
pub struct ChecksumWatch<'a> {
    /// The number of bytes that are summed.
    pub done: &'a AtomicU64,
    /// Called before each read. If it returns true, the computation ends with `ECANCELED`.
    pub cancelled: &'a (dyn Fn() -> bool + Sync),
}

impl fmt::Debug for ChecksumWatch<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ChecksumWatch")
            .field("done", self.done)
            .finish_non_exhaustive()
    }
}

/// Reads parts of a file. The parts lie within the length that the file had when the computation began.
pub(super) struct Reader<'a> {
    pub(super) file: &'a OpenedFile,
    pub(super) watch: &'a ChecksumWatch<'a>,
}

impl Reader<'_> {
    /// Passes all bytes of a part to `show`, in order.
    pub(super) fn each(
        &self,
        part: Range<u64>,
        buffer: &mut [u8],
        mut show: impl FnMut(&[u8]),
    ) -> Result<(), StorageError> {
        let mut at = part.start;
        while at < part.end {
            let length = self.read(buffer, at..part.end)?;
            show(&buffer[..length]);
            at += length as u64;
        }
        Ok(())
    }

    /// The offset of the next data at or after `start`, behind a hole: `start` itself if the file system does not report
    /// holes, and the greatest number if only a hole follows.
    pub(super) fn next_data(&self, start: u64) -> Result<u64, StorageError> {
        // Changing the file offset is harmless: all reads are positional.
        match rustix::fs::seek(self.file.as_fd(), SeekFrom::Data(start)) {
            Ok(data) => Ok(data),
            // `start` is beyond the end: the file was truncated while it was read.
            Err(Errno::NXIO) if self.file.size()? <= start => {
                Err(StorageError::new("read", Errno::IO))
            }
            Err(Errno::NXIO) => Ok(u64::MAX),
            Err(_) => Ok(start),
        }
    }

    /// Reads at least one byte from the beginning of a part, and returns their number.
    pub(super) fn read(&self, buffer: &mut [u8], part: Range<u64>) -> Result<usize, StorageError> {
        let wanted = usize::try_from(part.end - part.start)
            .map_or(buffer.len(), |length| length.min(buffer.len()));
        loop {
            if (self.watch.cancelled)() {
                return Err(StorageError::new("read", Errno::CANCELED));
            }
            match rustix::io::pread(self.file.as_fd(), &mut buffer[..wanted], part.start) {
                // The file was truncated while it was read: the sum would match no version of it.
                Ok(0) => return Err(StorageError::new("read", Errno::IO)),
                Ok(length) => {
                    self.watch.done.fetch_add(length as u64, Ordering::Relaxed);
                    return Ok(length);
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(StorageError::new("read", errno)),
            }
        }
    }
}
