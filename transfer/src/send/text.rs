//! Text that is produced while it is sent: listings, and files in TYPE A.

use std::os::fd::AsFd;

use gridhaul_storage::{OpenedFile, StorageError};
use rustix::io::Errno;

use crate::error::TransferError;
use crate::node::LineIterator;

/// Text in pieces, of a length that is unknown before the end.
pub(super) trait Text: Send {
    /// Replaces `piece` with the next piece; `false` at the end.
    fn next_piece(&mut self, piece: &mut Vec<u8>) -> Result<bool, TransferError>;
}

/// The lines of a listing, several in a piece.
pub(super) struct Lines(pub(super) LineIterator);

/// Lines are collected up to this size, to avoid a system call for each entry of a listing.
const PIECE_BYTES: usize = 64 * 1024;

impl Text for Lines {
    fn next_piece(&mut self, piece: &mut Vec<u8>) -> Result<bool, TransferError> {
        piece.clear();
        while piece.len() < PIECE_BYTES {
            match self.0.next() {
                Some(lines) if piece.is_empty() => *piece = lines?,
                Some(lines) => piece.extend_from_slice(&lines?),
                None => break,
            }
        }
        Ok(!piece.is_empty())
    }
}

/// A file with its line ends converted for the network (RFC 959 3.1.1.1: CRLF).
pub(super) struct AsciiFile {
    file: OpenedFile,
    offset: u64,
    left: u64,
    /// The last byte of the previous piece: a line end that is CRLF already is not converted.
    last: u8,
    raw: Vec<u8>,
}

impl AsciiFile {
    pub(super) fn new(file: OpenedFile, offset: u64, length: u64) -> Self {
        Self {
            file,
            offset,
            left: length,
            last: 0,
            raw: Vec::new(),
        }
    }

    fn read(&mut self) -> Result<(), TransferError> {
        let wanted = usize::try_from(self.left).map_or(PIECE_BYTES, |left| left.min(PIECE_BYTES));
        self.raw.resize(wanted, 0);
        let count = loop {
            match rustix::io::pread(self.file.as_fd(), &mut self.raw[..], self.offset) {
                Err(Errno::INTR) => {}
                other => break other.map_err(|errno| StorageError::new("read", errno))?,
            }
        };
        if count == 0 && wanted > 0 {
            return Err(gridhaul_stack::ChannelError::FileTooShort { end: self.offset }.into());
        }
        self.raw.truncate(count);
        self.offset += count as u64;
        self.left -= count as u64;
        Ok(())
    }
}

impl Text for AsciiFile {
    fn next_piece(&mut self, piece: &mut Vec<u8>) -> Result<bool, TransferError> {
        self.read()?;
        piece.clear();
        for &byte in &self.raw {
            if byte == b'\n' && self.last != b'\r' {
                piece.push(b'\r');
            }
            piece.push(byte);
            self.last = byte;
        }
        Ok(!piece.is_empty())
    }
}
