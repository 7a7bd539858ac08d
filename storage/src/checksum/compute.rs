//! Reads a file for its checksum.
//!
//! Files are read with `pread` and not mapped: reading a mapping beyond the end of a truncated file kills the
//! process, while a read reports the end. Where parts can be put together, several
//! threads take pieces of the file in turn; where they cannot, one thread reads ahead of the one that
//! hashes.

use std::fmt;
use std::ops::Range;
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;

use rustix::fs::SeekFrom;
use rustix::io::Errno;

use super::threads::{Borrower, Lent, SpareThreads};
use super::{Checksum, ChecksumAlgorithm, ChecksumPieces, PartialChecksum};
use crate::{OpenedFile, StorageError};

/// Bytes that are read at a time: they stay in a processor's own cache until they are summed.
const READ_BYTES: usize = 512 * 1024;

/// Bytes that a thread takes for itself at a time, in a row for the kernel's read-ahead.
const PIECE_BYTES: u64 = 8 * 1024 * 1024;

/// A hole of so many bytes is not read where zeros can be put to a sum at once; a file of smaller ones is read as
/// any other.
const HOLE_BYTES: u64 = 1024 * 1024;

/// Buffers that the reader may be ahead of the hash.
const READ_AHEAD: usize = 2;

/// What the caller of a long computation watches, and how it ends it.
pub struct ChecksumWatch<'a> {
    /// Counts the bytes that are done.
    pub done: &'a AtomicU64,
    /// Asked before each read; the computation ends with `ECANCELED` when it says so.
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

/// The checksum of `part`, which lies within the file.
pub(super) fn compute(
    file: &OpenedFile,
    algorithm: ChecksumAlgorithm,
    part: Range<u64>,
    spare: &SpareThreads,
    watch: &ChecksumWatch<'_>,
) -> Result<String, StorageError> {
    let reader = Reader { file, watch };
    // A computation of one piece needs no thread more, and takes none from the shares of others.
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

/// Every thread takes the next free piece.
fn in_pieces(
    reader: &Reader<'_>,
    empty: &PartialChecksum,
    part: Range<u64>,
    helpers: Option<&Borrower<'_>>,
) -> Result<String, StorageError> {
    let work = Work {
        reader,
        empty,
        start: part.start,
        rest: Mutex::new(part.clone()),
        sums: Mutex::new(ChecksumPieces::new()),
        failure: Mutex::new(None),
    };
    thread::scope(|scope| {
        let work = &work;
        let help = |mut lent: Lent<'_>| {
            let mut buffer = vec![0; READ_BYTES];
            while work.take_piece(&mut buffer) {
                match lent.keep() {
                    Some(kept) => lent = kept,
                    None => return,
                }
            }
        };
        let mut buffer = vec![0; READ_BYTES];
        loop {
            // As long as there is more than this thread has to do.
            while work.has_more()
                && let Some(lent) = helpers.and_then(Borrower::borrow)
            {
                let thread = thread::Builder::new().name("checksum".to_owned());
                if thread.spawn_scoped(scope, move || help(lent)).is_err() {
                    // Without the thread it takes longer, and that is all.
                    break;
                }
            }
            if !work.take_piece(&mut buffer) {
                break;
            }
        }
    });
    if let Some(error) = locked(&work.failure).take() {
        return Err(error);
    }
    let length = part.end - part.start;
    let sum = if length == 0 {
        Some(empty.finish())
    } else {
        locked(&work.sums).whole(length)
    };
    // No thread failed, so all pieces are there unless one of them has panicked.
    sum.ok_or_else(|| StorageError::new("thread", Errno::IO))
}

/// What the threads of one computation share.
struct Work<'a> {
    reader: &'a Reader<'a>,
    empty: &'a PartialChecksum,
    /// Where the part starts in the file.
    start: u64,
    /// What no thread has taken yet.
    rest: Mutex<Range<u64>>,
    sums: Mutex<ChecksumPieces>,
    failure: Mutex<Option<StorageError>>,
}

/// What a thread takes.
enum Piece {
    Data(Range<u64>),
    Hole(Range<u64>),
}

impl Work<'_> {
    /// Sums up the next piece; false when there is none, or it is of no use any more.
    fn take_piece(&self, buffer: &mut [u8]) -> bool {
        if locked(&self.failure).is_some() {
            return false;
        }
        let taken = self.next_piece().and_then(|piece| {
            let Some(piece) = piece else {
                return Ok(false);
            };
            let mut sum = self.empty.clone();
            let start = match piece {
                Piece::Data(piece) => {
                    let start = piece.start;
                    self.reader.each(piece, buffer, |bytes| sum.update(bytes))?;
                    start
                }
                Piece::Hole(hole) => {
                    let length = hole.end - hole.start;
                    sum.append_zeros(length);
                    self.reader.watch.done.fetch_add(length, Ordering::Relaxed);
                    hole.start
                }
            };
            locked(&self.sums).insert(start - self.start, sum);
            Ok(true)
        });
        taken.unwrap_or_else(|error| {
            locked(&self.failure).get_or_insert(error);
            false
        })
    }

    /// Takes what is next: a hole as a whole, however long it is, or as much data as a thread reads at a time.
    fn next_piece(&self) -> Result<Option<Piece>, StorageError> {
        let mut rest = locked(&self.rest);
        let Range { start, end } = *rest;
        if start >= end {
            return Ok(None);
        }
        let data = self.reader.next_data(start)?.min(end);
        if data - start >= HOLE_BYTES {
            rest.start = data;
            return Ok(Some(Piece::Hole(start..data)));
        }
        let piece = start..end.min(start + PIECE_BYTES);
        rest.start = piece.end;
        Ok(Some(Piece::Data(piece)))
    }

    /// Whether there is more than a piece left.
    fn has_more(&self) -> bool {
        let rest = locked(&self.rest);
        rest.end.saturating_sub(rest.start) > PIECE_BYTES && locked(&self.failure).is_none()
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

/// A thread reads while this one hashes; buffers go round between them.
fn in_order_reading_ahead(
    reader: &Reader<'_>,
    algorithm: ChecksumAlgorithm,
    part: Range<u64>,
) -> Result<String, StorageError> {
    let (full, filled) = mpsc::sync_channel::<(Vec<u8>, usize)>(READ_AHEAD);
    let (empty, emptied) = mpsc::channel();
    for _ in 0..READ_AHEAD {
        // The other end is held below.
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
            // The reader has ended when all is read.
            let _ = empty.send(buffer);
        }
        reading
            .join()
            .unwrap_or_else(|_| Err(StorageError::new("thread", Errno::IO)))?;
        Ok(checksum.finish())
    })
}

/// Reads parts of a file that was as long as they reach when its length was asked.
struct Reader<'a> {
    file: &'a OpenedFile,
    watch: &'a ChecksumWatch<'a>,
}

impl Reader<'_> {
    /// Shows all bytes of a part, in order.
    fn each(
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

    /// Where the next bytes from `start` on are that the file system has stored: `start` itself where it
    /// cannot say, and the greatest number if there are none.
    fn next_data(&self, start: u64) -> Result<u64, StorageError> {
        // Nothing else looks at the place where the descriptor stands: all reads say where.
        match rustix::fs::seek(self.file.as_fd(), SeekFrom::Data(start)) {
            Ok(data) => Ok(data),
            // Beyond the end: the file was truncated while it was read.
            Err(Errno::NXIO) if self.file.size()? <= start => {
                Err(StorageError::new("read", Errno::IO))
            }
            Err(Errno::NXIO) => Ok(u64::MAX),
            Err(_) => Ok(start),
        }
    }

    /// Reads the beginning of a part; at least one byte.
    fn read(&self, buffer: &mut [u8], part: Range<u64>) -> Result<usize, StorageError> {
        let wanted = usize::try_from(part.end - part.start)
            .map_or(buffer.len(), |length| length.min(buffer.len()));
        loop {
            if (self.watch.cancelled)() {
                return Err(StorageError::new("read", Errno::CANCELED));
            }
            match rustix::io::pread(self.file.as_fd(), &mut buffer[..wanted], part.start) {
                // The file was truncated while it was read: the sum belongs to no version of it.
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

/// What the locks guard is valid after every statement.
fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write as _;
    use std::sync::atomic::AtomicUsize;

    use proptest::prelude::*;

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

    /// Two computations of a file of fifteen terabytes without content would keep every processor for an hour.
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
    fn holes_of_any_size_sum_up_as_the_zeros_that_they_are() {
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
