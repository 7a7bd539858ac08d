//! Parts of ranges, and how much of a range one way of moving bytes has moved.

use gridhaul_stack::FileRange;
use rustix::io::Errno;

/// The outcome of moving a range.
#[derive(Debug)]
pub(crate) enum Progress {
    /// All bytes.
    Complete,
    /// The number of bytes moved. The rest must go through memory, because of this error if there is one.
    Refused(u64, Option<Errno>),
}

/// The rest of a range after its first `done` bytes.
pub(crate) fn rest(range: FileRange<'_>, done: u64) -> FileRange<'_> {
    FileRange {
        offset: range.offset + done,
        length: range.length - done,
        ..range
    }
}

/// A part of a range, at this offset in the file.
pub(crate) fn part_of<'a>(range: &'a mut FileRange<'_>, offset: u64, length: u64) -> FileRange<'a> {
    FileRange {
        file: range.file,
        direct: range.direct,
        offset,
        length,
        scratch: range.scratch,
        moved: range.moved,
        tap: range.tap,
        sparse: range.sparse,
    }
}
