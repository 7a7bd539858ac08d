//! Writes received bytes, and leaves holes instead of zeros.

use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::FallocateFlags;

use crate::{ChannelError, write_all_at};

/// Leaves holes in a received file instead of writing zeros.
///
/// Zeros at the end are not written, so the receiver must set the file's length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sparse {
    /// The length of the file before the transfer. Zeros before this offset replace old bytes, so a hole is punched; behind it
    /// the file has no bytes, and zeros are skipped.
    pub old_end: u64,
}

/// The granularity of holes: the block of most file systems, and the page of the page cache.
const BLOCK_BYTES: usize = 4096;

/// Shorter runs of zeros over old bytes are written: punching a hole costs more.
const PUNCH_FROM_BYTES: u64 = 64 * 1024;

impl Sparse {
    /// Writes `bytes` except zeros to a file at `offset`, and counts all of them in `moved`.
    ///
    /// # Errors
    ///
    /// [`ChannelError::File`] with the operating system's error.
    pub(crate) fn write(
        self,
        file: BorrowedFd<'_>,
        bytes: &[u8],
        offset: u64,
        moved: &AtomicU64,
    ) -> Result<(), ChannelError> {
        for run in Runs::new(bytes, offset) {
            let at = offset + run.bytes.start as u64;
            let bytes = &bytes[run.bytes];
            if !run.zeros {
                write_all_at(file, bytes, at, moved)?;
                continue;
            }
            let end = at + bytes.len() as u64;
            let old = self.old_end.clamp(at, end) - at;
            // The part before `old_end` is not longer than `bytes`.
            let (over_old, behind) = bytes.split_at(usize::try_from(old).unwrap_or(bytes.len()));
            if old >= PUNCH_FROM_BYTES && punch(file, at, old) {
                moved.fetch_add(old, Ordering::Release);
            } else {
                write_all_at(file, over_old, at, moved)?;
            }
            moved.fetch_add(behind.len() as u64, Ordering::Release);
        }
        Ok(())
    }
}

/// Punches a hole; `false` if the file system does not support it.
fn punch(file: BorrowedFd<'_>, offset: u64, length: u64) -> bool {
    // fallocate(2): partial blocks at the ends of the range are zeroed.
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::io::retry_on_intr(|| rustix::fs::fallocate(file, flags, offset, length)).is_ok()
}

/// A run of zeros, or of other bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Run {
    zeros: bool,
    bytes: Range<usize>,
}

/// Splits bytes into runs, at block boundaries of the file.
struct Runs<'a> {
    bytes: &'a [u8],
    /// The offset of the first byte in its block.
    skew: usize,
    at: usize,
}

impl<'a> Runs<'a> {
    fn new(bytes: &'a [u8], offset: u64) -> Self {
        Self {
            bytes,
            skew: usize::try_from(offset % BLOCK_BYTES as u64).unwrap_or(0),
            at: 0,
        }
    }

    /// The end of the block that contains byte `at`.
    fn block_end(&self, at: usize) -> usize {
        let next_block = (at + self.skew) / BLOCK_BYTES + 1;
        let end = next_block * BLOCK_BYTES - self.skew;
        end.min(self.bytes.len())
    }
}

impl Iterator for Runs<'_> {
    type Item = Run;

    fn next(&mut self) -> Option<Run> {
        let start = self.at;
        if start == self.bytes.len() {
            return None;
        }
        let mut end = self.block_end(start);
        let zeros = are_zeros(&self.bytes[start..end]);
        while end < self.bytes.len() {
            let next = self.block_end(end);
            if are_zeros(&self.bytes[end..next]) != zeros {
                break;
            }
            end = next;
        }
        self.at = end;
        Some(Run {
            zeros,
            bytes: start..end,
        })
    }
}

/// Compares chunks, which the compiler vectorizes; the first chunk usually decides.
fn are_zeros(bytes: &[u8]) -> bool {
    bytes
        .chunks(64)
        .all(|chunk| chunk.iter().fold(0, |sum, byte| sum | byte) == 0)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::os::unix::fs::{FileExt, MetadataExt};

    use proptest::prelude::*;

    use super::*;

    fn write(file: &File, sparse: Sparse, bytes: &[u8], offset: u64) {
        let moved = AtomicU64::new(0);
        sparse
            .write(file.as_fd(), bytes, offset, &moved)
            .expect("room");
        assert_eq!(moved.into_inner(), bytes.len() as u64);
    }

    /// The number of bytes that the file system has allocated.
    fn allocated(file: &File) -> u64 {
        file.metadata().expect("an open file").blocks() * 512
    }

    #[test]
    fn zeros_take_no_room() {
        let file = tempfile::tempfile().expect("a temporary file");
        let mut bytes = vec![0; 1 << 20];
        bytes[500_000] = 1;
        write(&file, Sparse { old_end: 0 }, &bytes, 0);
        assert!(allocated(&file) < 100_000, "{}", allocated(&file));
        assert_eq!(file.metadata().expect("open").len(), 503_808);
    }

    #[test]
    fn zeros_over_old_bytes_make_a_hole() {
        let file = tempfile::tempfile().expect("a temporary file");
        file.write_all_at(&[7; 1 << 20], 0).expect("room");
        let before = allocated(&file);
        write(&file, Sparse { old_end: 1 << 20 }, &vec![0; 900_000], 50);
        let mut content = vec![1; 1 << 20];
        file.read_exact_at(&mut content, 0).expect("all is there");
        assert!(content[..50].iter().all(|&byte| byte == 7));
        assert!(content[50..900_050].iter().all(|&byte| byte == 0));
        assert!(content[900_050..].iter().all(|&byte| byte == 7));
        assert!(allocated(&file) < before - 800_000, "{}", allocated(&file));
    }

    #[test]
    fn runs_end_where_blocks_do() {
        let mut bytes = vec![0; 10_000];
        bytes[4090] = 1;
        let runs = |offset| Runs::new(&bytes, offset).collect::<Vec<_>>();
        let run = |zeros, bytes| Run { zeros, bytes };
        assert_eq!(runs(0), [run(false, 0..4096), run(true, 4096..10_000)]);
        assert_eq!(
            runs(100),
            [
                run(true, 0..3996),
                run(false, 3996..8092),
                run(true, 8092..10_000)
            ]
        );
        assert!(Runs::new(&[], 5).next().is_none());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// The file reads as if all bytes had been written, for any old content.
        #[test]
        fn a_sparse_file_reads_the_same(
            old_end in 0_u64..200_000,
            pieces in proptest::collection::vec((0_usize..70_000, any::<bool>()), 1..6),
            offset in 0_u64..9000,
        ) {
            let file = tempfile::tempfile().expect("a temporary file");
            let old = vec![9; usize::try_from(old_end).expect("small")];
            file.write_all_at(&old, 0).expect("room");
            let bytes: Vec<u8> = pieces
                .iter()
                .flat_map(|&(length, zeros)| vec![u8::from(!zeros); length])
                .collect();
            write(&file, Sparse { old_end }, &bytes, offset);
            let end = (offset + bytes.len() as u64).max(old_end);
            file.set_len(end).expect("room");

            let mut expected = old;
            expected.resize(usize::try_from(end).expect("small"), 0);
            let start = usize::try_from(offset).expect("small");
            expected[start..start + bytes.len()].copy_from_slice(&bytes);
            let mut content = vec![1; expected.len()];
            file.read_exact_at(&mut content, 0).expect("all is there");
            prop_assert!(content == expected);
        }
    }
}
