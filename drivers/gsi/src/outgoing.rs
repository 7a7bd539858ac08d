//! Records that wait to be sent.

/// Records behind each other. Their memory is cleared when it is made, and used again as it is.
#[derive(Default)]
pub(crate) struct Outgoing {
    buffer: Vec<u8>,
    filled: usize,
}

impl Outgoing {
    /// Room for so many bytes behind the records.
    pub(crate) fn room(&mut self, bytes: usize) -> &mut [u8] {
        let end = self.filled + bytes;
        if self.buffer.len() < end {
            self.buffer.resize(end, 0);
        }
        &mut self.buffer[self.filled..end]
    }

    /// Says that so many bytes of the room have records in them.
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
