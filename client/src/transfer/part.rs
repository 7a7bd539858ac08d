//! A part of a file.

use gridhaul_protocol::command::{Command, RdmaCommand};
use gridhaul_protocol::path::PathArgument;
use gridhaul_transfer::Placement;

use crate::session::DataCommands;

/// A part of a file. It has the same place in the copy, whose other bytes stay as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilePart {
    /// Where it starts, in bytes.
    pub offset: u64,
    /// Its length at most, in bytes; `None` is to the end of the file.
    pub length: Option<u64>,
}

impl FilePart {
    /// No file is larger.
    pub const LARGEST: u64 = i64::MAX as u64;

    /// The bytes of a file of this size that belong to the part: none if the file ends before it.
    pub fn bytes_of(self, size: u64) -> u64 {
        let rest = size.saturating_sub(self.offset);
        self.length.map_or(rest, |length| length.min(rest))
    }
}

/// `RETR` or `RRTR`, or `ERET P` for a part.
pub(super) fn retrieve(
    path: PathArgument,
    part: Option<FilePart>,
    commands: DataCommands,
) -> Command {
    match part {
        None if commands == DataCommands::Rdma => Command::Rdma(RdmaCommand::Retrieve(path)),
        None => Command::Retr(path),
        Some(FilePart { offset, length }) => Command::Eret {
            offset,
            // ERET has no form for the rest of a file; servers send what there is.
            length: length.unwrap_or_else(|| FilePart::LARGEST.saturating_sub(offset)),
            path,
        },
    }
}

/// `STOR` or `RSTR`, or `ESTO A` for a part.
pub(super) fn store(path: PathArgument, part: Option<FilePart>, commands: DataCommands) -> Command {
    match part {
        None if commands == DataCommands::Rdma => Command::Rdma(RdmaCommand::Store(path)),
        None => Command::Stor(path),
        Some(FilePart { offset, .. }) => Command::Esto { offset, path },
    }
}

/// Where `size` bytes of a file, or of its part, end in it; the largest number if the size is not known.
pub(super) fn end(part: Option<FilePart>, size: Option<u64>) -> u64 {
    let start = part.map_or(0, |part| part.offset);
    size.map_or(u64::MAX, |size| start.saturating_add(size))
}

/// Whether a copy of `copied` bytes has all `expected` bytes of a file or of its part. Behind a part the copy may have more.
pub(super) fn is_whole(part: Option<FilePart>, expected: u64, copied: u64) -> bool {
    match part {
        None => copied == expected,
        Some(part) => expected == 0 || copied.saturating_sub(part.offset) >= expected,
    }
}

/// Where received bytes go on this machine.
pub(super) fn placement(part: Option<FilePart>) -> Placement {
    part.map_or(Placement::Replace, |part| Placement::At(part.offset))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_ends_with_the_file() {
        let part = |offset, length| FilePart { offset, length };
        assert_eq!(part(10, Some(5)).bytes_of(100), 5);
        assert_eq!(part(98, Some(5)).bytes_of(100), 2);
        assert_eq!(part(100, Some(5)).bytes_of(100), 0);
        assert_eq!(part(u64::MAX, Some(u64::MAX)).bytes_of(100), 0);
        assert_eq!(part(10, None).bytes_of(100), 90);
    }
}
