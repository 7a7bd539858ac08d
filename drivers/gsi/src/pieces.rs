//! The contents of opened records, which are scattered in memory and written to a file with one call.

use std::io::IoSlice;
use std::ops::Range;

use gridhaul_stack::{ChannelError, RangeWriter};

/// The most records that one call writes: a mebibyte if they are full.
const MAX_PIECES: usize = 64;

/// Places in one buffer.
pub(crate) struct Pieces {
    places: [(usize, usize); MAX_PIECES],
    count: usize,
}

impl Pieces {
    pub(crate) fn new() -> Self {
        Self {
            places: [(0, 0); MAX_PIECES],
            count: 0,
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.count == MAX_PIECES
    }

    /// Adds a place, unless it is empty.
    ///
    /// # Panics
    ///
    /// When it is full: see [`Pieces::is_full`].
    pub(crate) fn add(&mut self, place: Range<usize>) {
        if !place.is_empty() {
            self.places[self.count] = (place.start, place.end);
            self.count += 1;
        }
    }

    /// Writes the bytes at the places, `done` bytes after the start of a range, and clears the places. Returns the number of
    /// bytes.
    ///
    /// # Errors
    ///
    /// As [`RangeWriter::write_pieces`].
    pub(crate) fn write(
        &mut self,
        buffer: &[u8],
        writer: &RangeWriter<'_>,
        done: u64,
    ) -> Result<u64, ChannelError> {
        let count = std::mem::take(&mut self.count);
        if count == 0 {
            return Ok(0);
        }
        let mut contents = [IoSlice::new(&[]); MAX_PIECES];
        for (content, &(start, end)) in contents.iter_mut().zip(&self.places[..count]) {
            *content = IoSlice::new(&buffer[start..end]);
        }
        writer.write_pieces(&contents[..count], done)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::AsFd;
    use std::sync::atomic::AtomicU64;

    use gridhaul_stack::FileRange;

    use super::*;

    #[test]
    fn pieces_are_contiguous_in_the_file() {
        let mut file = tempfile::tempfile().unwrap();
        let handle = file.try_clone().unwrap();
        let moved = AtomicU64::new(1);
        let mut pieces = Pieces::new();
        for place in [1..3, 4..4, 5..8] {
            pieces.add(place);
        }
        let range = FileRange::new(handle.as_fd(), 2, 100, &mut [], &moved);
        let writer = range.writer();
        let count = pieces.write(b"-ab-x:cde", &writer, 0);
        assert_eq!(count.unwrap(), 5);
        pieces.add(0..1);
        pieces.write(b"!", &writer, 5).unwrap();
        assert_eq!(pieces.write(b"", &writer, 7).unwrap(), 0);
        assert_eq!(moved.into_inner(), 7);
        let mut content = Vec::new();
        file.read_to_end(&mut content).unwrap();
        assert_eq!(content, b"\0\0ab:cd!");
    }
}
