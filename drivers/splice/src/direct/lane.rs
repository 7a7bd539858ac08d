//! What moves bytes between memory and a file beside its caller.

use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, StatxFlags, statx};
use rustix::io::Errno;

/// Reads and writes of one file, each in a piece of memory of its own. All pieces are equally long.
///
/// Who lends memory to a lane gets it back when nothing is under way in it any more, however the work
/// on the lane ends.
pub(crate) trait Lane {
    /// How many pieces there are: so many reads and writes may be under way.
    fn pieces(&self) -> usize;

    /// The memory of a piece in which nothing is under way.
    fn memory(&mut self, piece: usize) -> &mut [u8];

    /// Begins to read or write, in a piece in which nothing is under way.
    fn begin(&mut self, piece: usize, request: Request);

    /// Waits for what was begun in a piece; returns how many bytes were moved.
    fn end(&mut self, piece: usize) -> Result<usize, Errno>;
}

/// One read or write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) call: Call,
    /// Where the bytes are in the file.
    pub(crate) offset: u64,
    /// Where they are in the piece.
    pub(crate) start: usize,
    /// How many they are.
    pub(crate) length: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    Read,
    Write,
}

/// Bytes of a piece, if memory is plentiful: disks move larger requests no faster.
const PIECE_BYTES: usize = 256 * 1024;

/// Requests that keep a disk busy. Fewer than two would not move bytes beside anything.
const FEWEST_PIECES: usize = 2;
pub(crate) const MOST_PIECES: usize = 8;

/// Divides memory into pieces that begin and end at multiples of `block_bytes`; none if it is too short.
pub(crate) fn pieces_of(memory: &mut [u8], block_bytes: usize) -> Vec<&mut [u8]> {
    let (skipped, count, piece_bytes) = division(memory, block_bytes);
    memory[skipped..]
        .chunks_exact_mut(piece_bytes.max(1))
        .take(count)
        .collect()
}

/// Whether there is room for pieces.
pub(crate) fn has_pieces(memory: &[u8], block_bytes: usize) -> bool {
    let (_, count, _) = division(memory, block_bytes);
    count > 0
}

/// Where pieces begin, how many there are, and how long each of them is.
fn division(memory: &[u8], block_bytes: usize) -> (usize, usize, usize) {
    let skipped = memory.as_ptr().align_offset(block_bytes).min(memory.len());
    let aligned = memory.len() - skipped;
    let count = (aligned / PIECE_BYTES).clamp(FEWEST_PIECES, MOST_PIECES);
    match aligned / count / block_bytes {
        0 => (skipped, 0, 0),
        blocks => (skipped, count, blocks * block_bytes),
    }
}

/// The unit of direct I/O: offsets in the file, lengths and addresses are multiples of it. `None` if the
/// file system says that this file cannot be moved so.
///
/// It is a whole page at least, so that no page of the page cache has bytes that are also written
/// past it.
pub(crate) fn block_bytes(direct: BorrowedFd<'_>) -> Option<usize> {
    let page_bytes = rustix::param::page_size();
    // statx(2): since Linux 6.1, and not from every file system.
    let facts = statx(direct, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok();
    let facts = facts.filter(|facts| {
        StatxFlags::from_bits_retain(facts.stx_mask).contains(StatxFlags::DIOALIGN)
    });
    let Some(facts) = facts else {
        return Some(page_bytes);
    };
    let bytes = facts.stx_dio_offset_align.max(facts.stx_dio_mem_align);
    let bytes = usize::try_from(bytes)
        .ok()
        .filter(|bytes| bytes.is_power_of_two())?;
    Some(bytes.max(page_bytes))
}

/// Lanes for the tests of those who use them.
#[cfg(test)]
pub(super) mod scripted {
    use std::collections::VecDeque;

    use super::*;

    /// Moves bytes between pieces and a file in memory. What is to go wrong is said beforehand.
    pub(crate) struct ScriptedLane {
        pub(crate) file: Vec<u8>,
        /// What comes of each request, in the order in which they are begun: it moves so many bytes at
        /// most, or fails. Requests behind the end of the list are carried out.
        pub(crate) script: VecDeque<Result<usize, Errno>>,
        pub(crate) requests: Vec<Request>,
        memory: Vec<Vec<u8>>,
        under_way: Vec<Option<Result<usize, Errno>>>,
    }

    impl ScriptedLane {
        pub(crate) fn new(file: Vec<u8>, pieces: usize, piece_bytes: usize) -> Self {
            Self {
                file,
                script: VecDeque::new(),
                requests: Vec::new(),
                memory: vec![vec![0; piece_bytes]; pieces],
                under_way: vec![None; pieces],
            }
        }
    }

    impl Lane for ScriptedLane {
        fn pieces(&self) -> usize {
            self.memory.len()
        }

        fn memory(&mut self, piece: usize) -> &mut [u8] {
            assert!(self.under_way[piece].is_none());
            &mut self.memory[piece]
        }

        fn begin(&mut self, piece: usize, request: Request) {
            self.requests.push(request);
            assert!(self.under_way[piece].is_none());
            let memory = &mut self.memory[piece][request.start..][..request.length];
            let most = self.script.pop_front().unwrap_or(Ok(usize::MAX));
            self.under_way[piece] = Some(most.map(|most| {
                let offset = usize::try_from(request.offset).unwrap();
                let count = most.min(memory.len());
                match request.call {
                    Call::Read => {
                        let there = self.file.get(offset..).unwrap_or(&[]);
                        let count = count.min(there.len());
                        memory[..count].copy_from_slice(&there[..count]);
                        count
                    }
                    Call::Write => {
                        let size = self.file.len().max(offset + count);
                        self.file.resize(size, 0);
                        self.file[offset..][..count].copy_from_slice(&memory[..count]);
                        count
                    }
                }
            }));
        }

        fn end(&mut self, piece: usize) -> Result<usize, Errno> {
            self.under_way[piece].take().expect("something was begun")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_whole_blocks_within_the_memory() {
        const BLOCK: usize = 4096;
        let mut memory = vec![0; (16 << 20) + BLOCK];
        let start = memory.as_ptr().align_offset(BLOCK);
        for (from, length, count, bytes) in [
            (0, 2 * BLOCK - 1, 0, 0),
            (0, 2 * BLOCK, 2, BLOCK),
            (1, 3 * BLOCK - 2, 0, 0),
            (1, 3 * BLOCK - 1, 2, BLOCK),
            (0, 5 * BLOCK, 2, 2 * BLOCK),
            (0, 1 << 20, 4, 256 << 10),
            (0, 16 << 20, 8, 2 << 20),
        ] {
            let pieces = pieces_of(&mut memory[start + from..start + from + length], BLOCK);
            assert_eq!(pieces.len(), count, "{from} {length}");
            for piece in pieces {
                assert_eq!(piece.len(), bytes);
                assert_eq!(piece.as_ptr().align_offset(BLOCK), 0);
            }
        }
        assert!(pieces_of(&mut [], BLOCK).is_empty() && !has_pieces(&[], BLOCK));
    }
}
