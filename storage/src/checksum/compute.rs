//! Computes the checksum of a part of a file.
//!
//! If the values of parts can be combined, several threads sum up pieces of the file (`parallel`). Otherwise one thread
//! hashes the bytes in order, and a second one reads ahead.

use std::ops::Range;
use std::sync::mpsc;
use std::thread;

use rustix::io::Errno;

use super::parallel::{PIECE_BYTES, in_pieces};
use super::reader::{ChecksumWatch, READ_BYTES, Reader};
use super::threads::{Borrower, SpareThreads};
use super::{Checksum, ChecksumAlgorithm, PartialChecksum};
use crate::{OpenedFile, StorageError};

/// The number of buffers by which the reading thread may be ahead of the hash.
const READ_AHEAD: usize = 2;

/// The checksum of `part`, which must lie within the file.
pub(super) fn compute(
    file: &OpenedFile,
    algorithm: ChecksumAlgorithm,
    part: Range<u64>,
    spare: &SpareThreads,
    watch: &ChecksumWatch<'_>,
) -> Result<String, StorageError> {
    let reader = Reader { file, watch };
    // A computation of one piece needs no further thread, and must not reduce the shares of other computations.
    let helpers = if part.end - part.start > PIECE_BYTES {
        Some(spare.borrower())
    } else {
        None
    };
    match PartialChecksum::new(algorithm) {
        Some(empty) => in_pieces(&reader, &empty, part, helpers.as_ref()),
        None => match helpers.as_ref().and_then(Borrower::borrow) {
            Some(_helper) => in_order_reading_ahead(&reader, algorithm, part),
            None => in_order(&reader, algorithm, part),
        },
    }
}

fn in_order(
    reader: &Reader<'_>,
    algorithm: ChecksumAlgorithm,
    part: Range<u64>,
) -> Result<String, StorageError> {
    let mut checksum = Checksum::new(algorithm);
    let mut buffer = vec![0; READ_BYTES];
    reader.each(part, &mut buffer, |bytes| checksum.update(bytes))?;
    Ok(checksum.finish())
}

/// A thread reads while this one hashes. Buffers circulate between them.
fn in_order_reading_ahead(
    reader: &Reader<'_>,
    algorithm: ChecksumAlgorithm,
    part: Range<u64>,
) -> Result<String, StorageError> {
    let (full, filled) = mpsc::sync_channel::<(Vec<u8>, usize)>(READ_AHEAD);
    let (empty, emptied) = mpsc::channel();
    for _ in 0..READ_AHEAD {
        // Cannot fail: `emptied` still exists.
        let _ = empty.send(vec![0; READ_BYTES]);
    }
    thread::scope(|scope| {
        let rest = part.clone();
        let read = move || {
            let mut at = rest.start;
            while at < rest.end {
                let Ok(mut buffer) = emptied.recv() else {
                    break;
                };
                let length = reader.read(&mut buffer, at..rest.end)?;
                at += length as u64;
                if full.send((buffer, length)).is_err() {
                    break;
                }
            }
            Ok(())
        };
        let thread = thread::Builder::new().name("checksum".to_owned());
        let Ok(reading) = thread.spawn_scoped(scope, read) else {
            return in_order(reader, algorithm, part);
        };
        let mut checksum = Checksum::new(algorithm);
        for (buffer, length) in filled {
            checksum.update(&buffer[..length]);
            // Fails once the reading thread has ended.
            let _ = empty.send(buffer);
        }
        reading
            .join()
            .unwrap_or_else(|_| Err(StorageError::new("thread", Errno::IO)))?;
        Ok(checksum.finish())
    })
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write as _;
    use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

    use proptest::prelude::*;

    use super::super::parallel::HOLE_BYTES;
    use super::super::tests::whole;
    use super::*;

    fn file(bytes: &[u8]) -> (File, OpenedFile) {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        let opened = OpenedFile::new(file.try_clone().unwrap().into(), bytes.len() as u64);
        (file, opened)
    }

    fn sum(
        file: &OpenedFile,
        algorithm: ChecksumAlgorithm,
        part: Range<u64>,
        threads: usize,
        cancelled: &(dyn Fn() -> bool + Sync),
    ) -> (Result<String, StorageError>, u64) {
        let (spare, done) = (SpareThreads::new(threads), AtomicU64::new(0));
        let watch = ChecksumWatch {
            done: &done,
            cancelled,
        };
        let sum = compute(file, algorithm, part, &spare, &watch);
        (sum, done.into_inner())
    }

    #[test]
    fn long_files_are_summed_in_pieces_and_in_order() {
        let length = PIECE_BYTES + 7;
        let taken = usize::try_from(length).unwrap();
        let bytes: Vec<u8> = (0..251).cycle().take(taken).collect();
        let (_, file) = file(&bytes);
        for algorithm in [ChecksumAlgorithm::Adler32, ChecksumAlgorithm::Sha1] {
            for threads in [0, 3] {
                let (sum, done) = sum(&file, algorithm, 1..length - 2, threads, &|| false);
                let slice = &bytes[1..taken - 2];
                assert_eq!(sum.unwrap(), whole(algorithm, slice), "{algorithm}");
                assert_eq!(done, length - 3);
            }
        }
    }

    /// Reading a sparse file of 15 TB twice would occupy every processor for an hour.
    #[test]
    fn holes_are_not_read() {
        const LENGTH: u64 = 15 << 40;
        let (sparse, file) = file(b"content");
        sparse.set_len(LENGTH).unwrap();
        rustix::io::pwrite(&sparse, b"in the middle", LENGTH / 2).unwrap();
        for algorithm in [
            ChecksumAlgorithm::Adler32,
            ChecksumAlgorithm::Crc32,
            ChecksumAlgorithm::Crc32c,
        ] {
            let mut expected = PartialChecksum::new(algorithm).unwrap();
            expected.update(b"content");
            expected.append_zeros(LENGTH / 2 - 7);
            expected.update(b"in the middle");
            expected.append_zeros(LENGTH / 2 - 13);
            for threads in [0, 3] {
                let (sum, done) = sum(&file, algorithm, 0..LENGTH, threads, &|| false);
                assert_eq!(sum.unwrap(), expected.finish(), "{algorithm}");
                assert_eq!(done, LENGTH);
            }
        }
    }

    #[test]
    fn holes_of_any_size_count_as_zeros() {
        let length = 3 * PIECE_BYTES + 5;
        let (sparse, file) = file(b"");
        sparse.set_len(length).unwrap();
        let hole = usize::try_from(HOLE_BYTES).unwrap();
        let mut bytes = vec![0; usize::try_from(length).unwrap()];
        for at in [hole / 2, 2 * hole, 5 * hole - 1, 12 * hole, 23 * hole] {
            rustix::io::pwrite(&sparse, b"data", at as u64).unwrap();
            bytes[at..at + 4].copy_from_slice(b"data");
        }
        for algorithm in [ChecksumAlgorithm::Adler32, ChecksumAlgorithm::Crc32c] {
            for part in [0..length, 3..length - 3, HOLE_BYTES..2 * HOLE_BYTES + 2] {
                let range =
                    usize::try_from(part.start).unwrap()..usize::try_from(part.end).unwrap();
                let (sum, _) = sum(&file, algorithm, part, 2, &|| false);
                assert_eq!(sum.unwrap(), whole(algorithm, &bytes[range]));
            }
        }
    }

    #[test]
    fn a_computation_is_cancelled_between_two_reads() {
        let length = 4 * PIECE_BYTES;
        let (_, file) = file(&vec![1; usize::try_from(length).unwrap()]);
        for algorithm in [ChecksumAlgorithm::Adler32, ChecksumAlgorithm::Md5] {
            for threads in [0, 3] {
                let asked = AtomicUsize::new(0);
                let at_fifth = || asked.fetch_add(1, Ordering::Relaxed) >= 4;
                let (sum, done) = sum(&file, algorithm, 0..length, threads, &at_fifth);
                let error = sum.unwrap_err();
                assert_eq!((error.call, error.errno), ("read", Errno::CANCELED));
                assert_eq!(done, 4 * READ_BYTES as u64);
            }
        }
    }

    #[test]
    fn a_file_that_is_cut_while_it_is_read_has_no_checksum() {
        let length = 2 * PIECE_BYTES;
        for algorithm in [ChecksumAlgorithm::Adler32, ChecksumAlgorithm::Md5] {
            for threads in [0, 3] {
                let (written, file) = file(&vec![1; usize::try_from(length).unwrap()]);
                let asked = AtomicUsize::new(0);
                let cut = || {
                    if asked.fetch_add(1, Ordering::Relaxed) == 3 {
                        written.set_len(9).unwrap();
                    }
                    false
                };
                let (sum, _) = sum(&file, algorithm, 0..length, threads, &cut);
                let error = sum.unwrap_err();
                assert_eq!((error.call, error.errno), ("read", Errno::IO));
            }
        }
    }

    #[test]
    fn read_errors_are_reported() {
        let directory = OpenedFile::new(File::open("/").unwrap().into(), 4096);
        for algorithm in [ChecksumAlgorithm::Adler32, ChecksumAlgorithm::Md5] {
            for threads in [0, 3] {
                let (sum, _) = sum(&directory, algorithm, 0..3 * PIECE_BYTES, threads, &|| {
                    false
                });
                let error = sum.unwrap_err();
                assert_eq!(error.to_string(), "System error in read: Is a directory");
            }
        }
    }

    proptest! {
        #[test]
        fn parts_are_slices(
            bytes in prop::collection::vec(any::<u8>(), 0..300),
            ends in any::<(usize, usize)>(),
        ) {
            let (one, other) = (ends.0 % (bytes.len() + 1), ends.1 % (bytes.len() + 1));
            let part = one.min(other)..one.max(other);
            let (_, file) = file(&bytes);
            for algorithm in ChecksumAlgorithm::ALL {
                let range = part.start as u64..part.end as u64;
                let (sum, _) = sum(&file, algorithm, range, 1, &|| false);
                prop_assert_eq!(sum.unwrap(), whole(algorithm, &bytes[part.clone()]));
            }
        }
    }
}
