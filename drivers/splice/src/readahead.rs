//! Reads files ahead of `sendfile`, so that it seldom waits for a disk.
//!
//! The kernel reads ahead only for sequential reads through one descriptor. The channels of a transfer share a descriptor
//! and send blocks alternately, which the kernel takes for random access. Pages that are cached already are skipped; a
//! read with `RWF_NOWAIT` shows whether they are.

use std::io::IoSliceMut;
use std::num::NonZeroU64;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use rustix::fs::{Advice, fadvise};
use rustix::io::{Errno, ReadWriteFlags, preadv2};

/// The unit of read-ahead. Two steps are requested from the disk at a time.
const STEP_BYTES: u64 = 4 * 1024 * 1024;

/// The read-ahead state of one channel.
#[derive(Debug, Default)]
pub(crate) struct ReadAhead {
    /// The file. A reused descriptor number costs only speed.
    file: Option<RawFd>,
    /// The start of the last range in bytes, and the end of the part that was prepared, in steps.
    last: u64,
    prepared: u64,
}

impl ReadAhead {
    /// Requests a range, and the bytes that probably follow it, from the disk.
    pub(crate) fn prepare(&mut self, file: BorrowedFd<'_>, offset: u64) {
        let step = offset / STEP_BYTES;
        // Files are sent from start to end; a smaller offset is another file or another transfer.
        if self.file != Some(file.as_raw_fd()) || offset <= self.last {
            self.prepared = step;
        }
        (self.file, self.last) = (Some(file.as_raw_fd()), offset);
        self.prepared = self.prepared.max(step);
        while self.prepared < step + 2 {
            let start = self.prepared * STEP_BYTES;
            if !is_cached(file, start.max(offset)) {
                // Only advice: without it the kernel reads when the bytes are sent.
                let _ = fadvise(file, start, NonZeroU64::new(STEP_BYTES), Advice::WillNeed);
            }
            self.prepared += 1;
        }
    }
}

/// Whether a byte can be read without waiting. True at the end of the file.
fn is_cached(file: BorrowedFd<'_>, offset: u64) -> bool {
    let mut byte = [0];
    let outcome = preadv2(
        file,
        &mut [IoSliceMut::new(&mut byte)],
        offset,
        ReadWriteFlags::NOWAIT,
    );
    // EOPNOTSUPP: the file system, or a kernel before 4.14, does not support the flag (preadv2(2)).
    !matches!(outcome, Err(Errno::AGAIN | Errno::OPNOTSUPP))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;

    use super::*;

    /// The prepared part after each of these ranges, in steps.
    fn prepared(offsets: &[u64]) -> Vec<u64> {
        let file = File::open("/proc/self/exe").unwrap();
        let mut ahead = ReadAhead::default();
        let prepare = |offset: &u64| {
            ahead.prepare(file.as_fd(), *offset);
            ahead.prepared
        };
        offsets.iter().map(prepare).collect()
    }

    #[test]
    fn looks_two_steps_ahead_once_for_each_step() {
        assert_eq!(
            prepared(&[0, 1 << 20, STEP_BYTES - 1, STEP_BYTES, 9 * STEP_BYTES]),
            [2, 2, 2, 3, 11]
        );
    }

    #[test]
    fn starts_again_with_another_transfer() {
        assert_eq!(prepared(&[9 * STEP_BYTES, 0, 0]), [11, 2, 2]);
    }
}
