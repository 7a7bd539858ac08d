//! The contents of opened records, which lie apart in memory and go to a file together.

use std::io::IoSlice;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use gridhaul_stack::{ChannelError, write_all_at};
use rustix::io::Errno;

/// Records that are written with one call: a mebibyte if they are full.
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
    /// When there is no room: see [`Pieces::is_full`].
    pub(crate) fn add(&mut self, place: Range<usize>) {
        if !place.is_empty() {
            self.places[self.count] = (place.start, place.end);
            self.count += 1;
        }
    }

    /// Writes what is at the places to `file` at `offset`, counts it in `moved`, and forgets the places.
    /// Returns how much it was.
    ///
    /// # Errors
    ///
    /// [`ChannelError::File`] with the kernel's word.
    pub(crate) fn write(
        &mut self,
        buffer: &[u8],
        file: BorrowedFd<'_>,
        offset: u64,
        moved: &AtomicU64,
    ) -> Result<u64, ChannelError> {
        let count = std::mem::take(&mut self.count);
        if count == 0 {
            return Ok(0);
        }
        let mut contents = [IoSlice::new(&[]); MAX_PIECES];
        for (content, &(start, end)) in contents.iter_mut().zip(&self.places[..count]) {
            *content = IoSlice::new(&buffer[start..end]);
        }
        let contents = &contents[..count];
        let mut written = loop {
            match rustix::io::pwritev(file, contents, offset) {
                Ok(written) => break written,
                Err(Errno::INTR) => {}
                Err(error) => return Err(ChannelError::File(error.into())),
            }
        };
        moved.fetch_add(written as u64, Ordering::Release);
        // The kernel may take less, at the end of a disk for example.
        let mut at = offset;
        for content in contents {
            let done = written.min(content.len());
            written -= done;
            write_all_at(file, &content[done..], at + done as u64, moved)?;
            at += content.len() as u64;
        }
        Ok(at - offset)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn pieces_lie_behind_each_other_in_the_file() {
        let mut file = tempfile::tempfile().unwrap();
        let moved = AtomicU64::new(1);
        let mut pieces = Pieces::new();
        for place in [1..3, 4..4, 5..8] {
            pieces.add(place);
        }
        let count = pieces.write(b"-ab-x:cde", file.as_fd(), 2, &moved);
        assert_eq!(count.unwrap(), 5);
        pieces.add(0..1);
        pieces.write(b"!", file.as_fd(), 7, &moved).unwrap();
        assert_eq!(pieces.write(b"", file.as_fd(), 9, &moved).unwrap(), 0);
        assert_eq!(moved.into_inner(), 7);
        let mut content = Vec::new();
        file.read_to_end(&mut content).unwrap();
        assert_eq!(content, b"\0\0ab:cd!");
    }
}
