//! Reads files ahead of `sendfile`, so that it seldom sleeps for a disk.
//!
//! The kernel reads ahead by itself where a file is read in order, through one descriptor, by one reader. The
//! channels of a transfer share the descriptor and take blocks in turn, which looks like jumping about. What
//! is in the page cache already is left alone: a read that must not wait tells.

use std::io::IoSliceMut;
use std::num::NonZeroU64;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use rustix::fs::{Advice, fadvise};
use rustix::io::{Errno, ReadWriteFlags, preadv2};

/// Looks at a file in steps of this size: two of them are on their way from a disk.
const STEP_BYTES: u64 = 4 * 1024 * 1024;

/// What one channel has seen to.
#[derive(Debug, Default)]
pub(crate) struct ReadAhead {
    /// Names the file, as far as that matters: taking another for it costs speed only.
    file: Option<RawFd>,
    /// Where the last range began, and up to where the file was looked at, in steps.
    last: u64,
    prepared: u64,
}

impl ReadAhead {
    /// Sees to it that a range, and what probably follows it, is on its way from the disk.
    pub(crate) fn prepare(&mut self, file: BorrowedFd<'_>, offset: u64) {
        let step = offset / STEP_BYTES;
        // Files are sent from the start to the end; going back is another file, or another transfer.
        if self.file != Some(file.as_raw_fd()) || offset <= self.last {
            self.prepared = step;
        }
        (self.file, self.last) = (Some(file.as_raw_fd()), offset);
        self.prepared = self.prepared.max(step);
        while self.prepared < step + 2 {
            let start = self.prepared * STEP_BYTES;
            if !is_cached(file, start.max(offset)) {
                // It is only advice; what it does not do, the kernel does when the bytes are sent.
                let _ = fadvise(file, start, NonZeroU64::new(STEP_BYTES), Advice::WillNeed);
            }
            self.prepared += 1;
        }
    }
}

/// Whether a byte can be had without waiting. The end of the file can.
fn is_cached(file: BorrowedFd<'_>, offset: u64) -> bool {
    let mut byte = [0];
    let outcome = preadv2(
        file,
        &mut [IoSliceMut::new(&mut byte)],
        offset,
        ReadWriteFlags::NOWAIT,
    );
    // EOPNOTSUPP where a file system, or a kernel before 4.14, cannot tell (preadv2(2)).
    !matches!(outcome, Err(Errno::AGAIN | Errno::OPNOTSUPP))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;

    use super::*;

    /// Up to where the channel has looked after these ranges began, in steps.
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
    fn begins_again_with_another_transfer() {
        assert_eq!(prepared(&[9 * STEP_BYTES, 0, 0]), [11, 2, 2]);
    }
}
