//! Ranges of files, which channels send from and receive into.

use std::fmt;
use std::io::IoSlice;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;

use crate::{ChannelError, Sparse, WriteLock, write_all_at};

/// A range of an open file.
#[derive(Debug)]
pub struct FileRange<'a> {
    /// The file, open for reading or writing as the call needs it.
    pub file: BorrowedFd<'a>,
    /// The same file opened with `O_DIRECT`, if the driver requested it ([`crate::Transport::wants_direct`]) and the storage
    /// supports it.
    pub direct: Option<BorrowedFd<'a>>,
    /// The start of the range, in bytes.
    pub offset: u64,
    /// The length of the range, in bytes.
    pub length: u64,
    /// Memory for a driver that moves the range by reading and writing; not empty. Its content is undefined before and after
    /// the call. Longer memory means fewer system calls.
    pub scratch: &'a mut [u8],
    /// Counts moved bytes while the call runs, also if it fails later: received bytes once they are written to the file, sent
    /// bytes once they are passed to the network.
    pub moved: &'a AtomicU64,
    /// Called with received bytes.
    pub tap: Option<&'a dyn Tap>,
    /// Set if received zeros should become holes.
    pub sparse: Option<Sparse>,
}

/// A callback for received bytes, while they are in the CPU cache; for checksums.
pub trait Tap: Sync + fmt::Debug {
    /// `bytes` were written at `offset`. Called by the writing thread, once for each byte.
    fn written(&self, offset: u64, bytes: &[u8]);
}

impl<'a> FileRange<'a> {
    /// A range without a tap, holes or `O_DIRECT`.
    pub fn new(
        file: BorrowedFd<'a>,
        offset: u64,
        length: u64,
        scratch: &'a mut [u8],
        moved: &'a AtomicU64,
    ) -> Self {
        Self {
            file,
            direct: None,
            offset,
            length,
            scratch,
            moved,
            tap: None,
            sparse: None,
        }
    }

    /// Whether received bytes must pass through the process's memory.
    pub fn goes_through_memory(&self) -> bool {
        self.tap.is_some() || self.sparse.is_some()
    }

    /// A writer to the range, for drivers that receive through memory.
    pub fn writer(&self) -> RangeWriter<'a> {
        RangeWriter {
            file: self.file,
            offset: self.offset,
            moved: self.moved,
            tap: self.tap,
            sparse: self.sparse,
        }
    }

    /// The error for a file that ends before byte `offset`.
    pub fn too_short(&self, offset: u64) -> ChannelError {
        // The file may end far before the offset of the failed read.
        let size =
            rustix::fs::fstat(self.file).map_or(offset, |facts| facts.st_size.unsigned_abs());
        ChannelError::FileTooShort {
            end: size.min(offset),
        }
    }

    /// Reads the next piece of the range into `scratch`, for drivers that send files through memory: at least one byte after the
    /// first `done` ones. `done` must be less than the length.
    ///
    /// # Errors
    ///
    /// [`ChannelError::FileTooShort`] if the file ends before, [`ChannelError::File`] if it cannot be read.
    pub fn read_piece(&mut self, done: u64) -> Result<&[u8], ChannelError> {
        let offset = self.offset.saturating_add(done);
        let wanted = usize::try_from(self.length - done)
            .map_or(self.scratch.len(), |left| left.min(self.scratch.len()));
        loop {
            match rustix::io::pread(self.file, &mut self.scratch[..wanted], offset) {
                Ok(0) => return Err(self.too_short(offset)),
                Ok(count) => return Ok(&self.scratch[..count]),
                Err(Errno::INTR) => {}
                Err(error) => return Err(ChannelError::File(error.into())),
            }
        }
    }
}

/// Writes received bytes to their range of a file.
#[derive(Debug, Clone, Copy)]
pub struct RangeWriter<'a> {
    file: BorrowedFd<'a>,
    offset: u64,
    moved: &'a AtomicU64,
    tap: Option<&'a dyn Tap>,
    sparse: Option<Sparse>,
}

impl RangeWriter<'_> {
    /// Writes all of `bytes`, `done` bytes after the start of the range.
    ///
    /// # Errors
    ///
    /// [`ChannelError::File`] with the operating system's error.
    pub fn write(&self, bytes: &[u8], done: u64) -> Result<(), ChannelError> {
        let offset = self.offset + done;
        match self.sparse {
            Some(sparse) => sparse.write(self.file, bytes, offset, self.moved)?,
            None => write_all_at(self.file, bytes, offset, self.moved)?,
        }
        if let Some(tap) = self.tap {
            tap.written(offset, bytes);
        }
        Ok(())
    }

    /// Writes several pieces contiguously, `done` bytes after the start of the range, with one system call if possible. Returns
    /// their total length.
    ///
    /// # Errors
    ///
    /// [`ChannelError::File`] with the operating system's error.
    pub fn write_pieces(&self, pieces: &[IoSlice<'_>], done: u64) -> Result<u64, ChannelError> {
        let offset = self.offset + done;
        if self.sparse.is_some() {
            let mut at = done;
            for piece in pieces {
                self.write(piece, at)?;
                at += piece.len() as u64;
            }
            return Ok(at - done);
        }
        let mut written = loop {
            let _lock = WriteLock::acquire(self.file);
            match rustix::io::pwritev(self.file, pieces, offset) {
                Ok(written) => break written,
                Err(Errno::INTR) => {}
                Err(error) => return Err(ChannelError::File(error.into())),
            }
        };
        self.moved.fetch_add(written as u64, Ordering::Release);
        // The write may be short, on a nearly full disk for example.
        let mut at = offset;
        for piece in pieces {
            let gone = written.min(piece.len());
            written -= gone;
            write_all_at(self.file, &piece[gone..], at + gone as u64, self.moved)?;
            if let Some(tap) = self.tap {
                tap.written(at, piece);
            }
            at += piece.len() as u64;
        }
        Ok(at - offset)
    }
}
