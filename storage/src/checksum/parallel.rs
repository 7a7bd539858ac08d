//! Sums up pieces of a file on several threads, and combines the results.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::thread;

use rustix::io::Errno;

use super::reader::{READ_BYTES, Reader};
use super::threads::{Borrower, Lent, locked};
use super::{ChecksumPieces, PartialChecksum};
use crate::StorageError;

/// The bytes that a thread takes at a time: contiguous, for the kernel's read-ahead.
pub(super) const PIECE_BYTES: u64 = 8 * 1024 * 1024;

/// The shortest hole that is not read but appended as zeros.
pub(super) const HOLE_BYTES: u64 = 1024 * 1024;

/// Sums up a part with this thread and those that it can borrow. Every thread takes the next piece.
pub(super) fn in_pieces(
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
            // While more remains than this thread's own next piece.
            while work.has_more()
                && let Some(lent) = helpers.and_then(Borrower::borrow)
            {
                let thread = thread::Builder::new().name("checksum".to_owned());
                if thread.spawn_scoped(scope, move || help(lent)).is_err() {
                    // Without the thread the computation is only slower.
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
    // No thread has failed, so all pieces are present unless a thread has panicked.
    sum.ok_or_else(|| StorageError::new("thread", Errno::IO))
}

/// The state that the threads of a computation share.
struct Work<'a> {
    reader: &'a Reader<'a>,
    empty: &'a PartialChecksum,
    /// Where the part starts in the file.
    start: u64,
    /// The range that no thread has taken yet.
    rest: Mutex<Range<u64>>,
    sums: Mutex<ChecksumPieces>,
    failure: Mutex<Option<StorageError>>,
}

/// The unit of work of a thread.
enum Piece {
    Data(Range<u64>),
    Hole(Range<u64>),
}

impl Work<'_> {
    /// Sums up the next piece. False if none remains, or another thread has failed.
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

    /// Takes the next piece: a whole hole, or [`PIECE_BYTES`] of data.
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

    /// Whether more than one piece remains.
    fn has_more(&self) -> bool {
        let rest = locked(&self.rest);
        rest.end.saturating_sub(rest.start) > PIECE_BYTES && locked(&self.failure).is_none()
    }
}
