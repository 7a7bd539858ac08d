//! The data and the holes of a file that is sent.
//!
//! Reading a hole would fill the page cache with zeros. Instead, zeros are sent from memory; the peer sees no
//! difference.

use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use gridhaul_stack::{Body, Channel, ChannelError, FileRange, Operation};
use rustix::fs::SeekFrom;
use rustix::io::Errno;

use crate::sync::lock;

/// The cached extents of a file, shared by all workers of a transfer.
///
/// Finding the end of an extent may take time in proportion to its length (tmpfs checks each page), so the last
/// data extent is cached: a file without holes is searched once, and not for every block.
#[derive(Debug, Default)]
pub(super) struct Extents {
    data: Mutex<Range<u64>>,
}

impl Extents {
    /// Sends `head` and a range of the file without reading its holes.
    ///
    /// # Errors
    ///
    /// As [`Channel::send`].
    pub(super) fn send(
        &self,
        channel: &mut dyn Channel,
        mut head: &[u8],
        range: FileRange<'_>,
        operation: &Operation<'_>,
    ) -> Result<(), ChannelError> {
        let end = range.offset + range.length;
        let mut offset = range.offset;
        while offset < end {
            let extent = self.next(range.file, offset, end);
            let length = extent.length();
            match extent {
                Extent::Data(length) => {
                    let data = FileRange {
                        offset,
                        length,
                        scratch: &mut *range.scratch,
                        ..range
                    };
                    channel.send(head, Body::File(data), operation)?;
                }
                Extent::Hole(length) => send_zeros(channel, head, length, range.moved, operation)?,
            }
            head = &[];
            offset += length;
        }
        channel.send(head, Body::Memory(&[]), operation)
    }

    /// The extent that begins at `offset`, cut off at `end`; at least one byte long.
    fn next(&self, file: BorrowedFd<'_>, offset: u64, end: u64) -> Extent {
        let mut data = lock(&self.data);
        if !data.contains(&offset) {
            match find(file, offset, end) {
                Found::Hole(length) => return Extent::Hole(length),
                Found::DataUntil(until) => *data = offset..until.max(offset + 1),
                Found::Unknown => return Extent::Data(end - offset),
            }
        }
        Extent::Data(data.end.min(end) - offset)
    }
}

/// A number of bytes of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Extent {
    Data(u64),
    Hole(u64),
}

impl Extent {
    fn length(self) -> u64 {
        match self {
            Self::Data(length) | Self::Hole(length) => length,
        }
    }
}

/// Shorter holes are read, which costs less than skipping them.
const LEAST_HOLE_BYTES: u64 = 64 * 1024;

/// The result of a search for an extent.
enum Found {
    /// A hole of this length.
    Hole(u64),
    /// Data up to this offset, which may lie behind the end of the search.
    DataUntil(u64),
    /// The file system gives no answer, so the bytes have to be read.
    Unknown,
}

/// Finds the extent that begins at `offset`; a hole is cut off at `end`.
fn find(file: BorrowedFd<'_>, offset: u64, end: u64) -> Found {
    let all = end - offset;
    let data = match rustix::fs::seek(file, SeekFrom::Data(offset)) {
        Ok(data) => data.min(end),
        // lseek(2): from `offset` on there is a hole up to the end of the file. If the file is too short,
        // reading it reports that.
        Err(Errno::NXIO) if size(file) >= end => end,
        Err(_) => return Found::Unknown,
    };
    if data - offset >= LEAST_HOLE_BYTES.min(all) {
        return Found::Hole(data - offset);
    }
    let mut at = data;
    loop {
        let Ok(hole) = rustix::fs::seek(file, SeekFrom::Hole(at)) else {
            return Found::Unknown;
        };
        if hole >= end {
            return Found::DataUntil(hole);
        }
        match rustix::fs::seek(file, SeekFrom::Data(hole)) {
            Ok(data) if data < end && data - hole < LEAST_HOLE_BYTES => at = data,
            _ => return Found::DataUntil(hole),
        }
    }
}

fn size(file: BorrowedFd<'_>) -> u64 {
    rustix::fs::fstat(file).map_or(0, |facts| facts.st_size.unsigned_abs())
}

/// Sends zeros in place of a hole.
fn send_zeros(
    channel: &mut dyn Channel,
    mut head: &[u8],
    mut length: u64,
    moved: &AtomicU64,
    operation: &Operation<'_>,
) -> Result<(), ChannelError> {
    static ZEROS: [u8; 64 * 1024] = [0; 64 * 1024];
    while length > 0 {
        let count = usize::try_from(length).map_or(ZEROS.len(), |length| length.min(ZEROS.len()));
        channel.send(head, Body::Memory(&ZEROS[..count]), operation)?;
        head = &[];
        moved.fetch_add(count as u64, Ordering::Release);
        length -= count as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;

    use super::*;

    const UNIT: u64 = LEAST_HOLE_BYTES;

    /// A file with bytes in some units and holes in the others.
    fn file(units: u64, data: &[u64]) -> File {
        let file = tempfile::tempfile().expect("a temporary file");
        file.set_len(units * UNIT).expect("a length");
        for unit in data {
            file.write_all_at(&[1; 64 * 1024], unit * UNIT)
                .expect("room");
        }
        file
    }

    fn extents(file: &File, start: u64, end: u64) -> Vec<Extent> {
        let known = Extents::default();
        let mut extents = Vec::new();
        let mut at = start;
        while at < end {
            let extent = known.next(file.as_fd(), at, end);
            at += extent.length();
            extents.push(extent);
        }
        assert_eq!(at, end);
        extents
    }

    #[test]
    fn holes_are_found() {
        let file = file(12, &[0, 1, 5, 11]);
        assert_eq!(
            extents(&file, 0, 12 * UNIT),
            [
                Extent::Data(2 * UNIT),
                Extent::Hole(3 * UNIT),
                Extent::Data(UNIT),
                Extent::Hole(5 * UNIT),
                Extent::Data(UNIT),
            ]
        );
        assert_eq!(extents(&file, 3 * UNIT, 4 * UNIT), [Extent::Hole(UNIT)]);
        assert_eq!(extents(&file, 0, UNIT), [Extent::Data(UNIT)]);
    }

    #[test]
    fn an_extent_is_searched_once() {
        let file = file(8, &[0, 1, 2, 3, 6]);
        let known = Extents::default();
        let next = |unit| known.next(file.as_fd(), unit * UNIT, (unit + 1) * UNIT);
        assert_eq!(next(0), Extent::Data(UNIT));
        assert_eq!(*lock(&known.data), 0..4 * UNIT);
        // A new hole is read: its extent is still cached as data.
        file.set_len(2 * UNIT).expect("shorter");
        file.set_len(8 * UNIT).expect("longer");
        assert_eq!(next(3), Extent::Data(UNIT));
        assert_eq!(next(4), Extent::Hole(UNIT));
    }

    #[test]
    fn bytes_cut_from_a_file_count_as_data_so_that_reading_fails() {
        let file = file(8, &[0, 1, 2, 3, 4, 5, 6, 7]);
        let known = Extents::default();
        assert_eq!(known.next(file.as_fd(), 0, UNIT), Extent::Data(UNIT));
        file.set_len(UNIT).expect("shorter");
        assert_eq!(extents_of(&known, &file, 2 * UNIT, 9 * UNIT), 9 * UNIT);
    }

    /// Where the extents from `start` on end: each has at least a byte.
    fn extents_of(known: &Extents, file: &File, start: u64, end: u64) -> u64 {
        let mut at = start;
        while at < end {
            let length = known.next(file.as_fd(), at, end).length();
            assert!(length > 0, "at {at}");
            at += length;
        }
        at
    }

    #[test]
    fn a_hole_at_the_end_ends_with_the_file() {
        let file = file(4, &[0]);
        assert_eq!(
            extents(&file, 0, 4 * UNIT),
            [Extent::Data(UNIT), Extent::Hole(3 * UNIT)]
        );
        // Bytes past the end count as data, so that reading them fails.
        assert_eq!(
            extents(&file, 0, 5 * UNIT),
            [Extent::Data(UNIT), Extent::Data(4 * UNIT)]
        );
    }
}
