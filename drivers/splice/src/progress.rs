//! How much of a range one way of moving bytes has moved.

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
