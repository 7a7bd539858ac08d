//! Reads and writes of a file.

use std::os::fd::BorrowedFd;

/// One read or write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Read or write.
    pub call: Call,
    /// Past the page cache, or through it.
    pub way: Way,
    /// The offset in the file, in bytes.
    pub offset: u64,
    /// The offset in the memory, in bytes.
    pub start: usize,
    /// The number of bytes.
    pub length: usize,
}

/// The direction of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// From the file to the memory.
    Read,
    /// From the memory to the file.
    Write,
}

/// The descriptor that a request uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// That with `O_DIRECT`, in whole blocks.
    Direct,
    /// That of the page cache.
    Cached,
}

/// The two descriptors of a file.
#[derive(Debug, Clone, Copy)]
pub struct Files<'a> {
    /// Open with `O_DIRECT`, if it can be.
    pub direct: BorrowedFd<'a>,
    /// Open without.
    pub cached: BorrowedFd<'a>,
}

impl Request {
    /// The request without its first `count` bytes, or fewer if it has fewer.
    #[must_use]
    pub fn rest(self, count: usize) -> Self {
        let count = count.min(self.length);
        Self {
            offset: self.offset + count as u64,
            start: self.start + count,
            length: self.length - count,
            ..self
        }
    }
}
