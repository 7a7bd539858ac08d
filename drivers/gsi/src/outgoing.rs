//! Sealed records that are not sent yet.

/// A buffer of consecutive records. Its memory is zeroed once, and reused without zeroing.
#[derive(Default)]
pub(crate) struct Outgoing {
    buffer: Vec<u8>,
    filled: usize,
}

impl Outgoing {
    /// Space for `bytes` bytes after the records.
    pub(crate) fn space(&mut self, bytes: usize) -> &mut [u8] {
        let end = self.filled + bytes;
        if self.buffer.len() < end {
            self.buffer.resize(end, 0);
        }
        &mut self.buffer[self.filled..end]
    }

    /// Adds `count` bytes of records in the space.
    pub(crate) fn fill(&mut self, count: usize) {
        self.filled += count;
    }

    pub(crate) fn records(&self) -> &[u8] {
        &self.buffer[..self.filled]
    }

    pub(crate) fn clear(&mut self) {
        self.filled = 0;
    }
}
