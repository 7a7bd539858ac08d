//! Asynchronous reads and writes of one file.

use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, StatxFlags, statx};
use rustix::io::Errno;

/// Asynchronous reads and writes of one file, each in its own piece of memory. All pieces have the same length.
///
/// A queue borrows the memory, and ends only after every request has completed, also when its user fails or panics.
pub(crate) trait IoQueue {
    /// The number of pieces, and so of requests that may be in flight.
    fn pieces(&self) -> usize;

    /// The memory of a piece without a request in flight.
    fn memory(&mut self, piece: usize) -> &mut [u8];

    /// Submits a request for a piece without one in flight.
    fn submit(&mut self, piece: usize, request: Request);

    /// Waits for the request of a piece, and returns the number of bytes moved.
    fn complete(&mut self, piece: usize) -> Result<usize, Errno>;
}

/// One read or write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) call: Call,
    /// The offset in the file.
    pub(crate) offset: u64,
    /// The offset in the piece.
    pub(crate) start: usize,
    /// The number of bytes.
    pub(crate) length: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    Read,
    Write,
}

/// The least length of pieces if there is enough memory: disks serve larger requests no faster.
const PIECE_BYTES: usize = 256 * 1024;

/// Requests that keep a disk busy. With fewer than two, disk and network would not work at the same time.
const MIN_PIECES: usize = 2;
pub(crate) const MAX_PIECES: usize = 8;

/// Divides memory into pieces that begin and end at multiples of `block_bytes`; none if it is too short.
pub(crate) fn pieces_of(memory: &mut [u8], block_bytes: usize) -> Vec<&mut [u8]> {
    let (skipped, count, piece_bytes) = division(memory, block_bytes);
    memory[skipped..]
        .chunks_exact_mut(piece_bytes.max(1))
        .take(count)
        .collect()
}

/// Whether the memory is long enough for pieces.
pub(crate) fn has_pieces(memory: &[u8], block_bytes: usize) -> bool {
    let (_, count, _) = division(memory, block_bytes);
    count > 0
}

/// The offset of the first piece, the number of pieces, and their length.
fn division(memory: &[u8], block_bytes: usize) -> (usize, usize, usize) {
    let skipped = memory.as_ptr().align_offset(block_bytes).min(memory.len());
    let aligned = memory.len() - skipped;
    let count = (aligned / PIECE_BYTES).clamp(MIN_PIECES, MAX_PIECES);
    match aligned / count / block_bytes {
        0 => (skipped, 0, 0),
        blocks => (skipped, count, blocks * block_bytes),
    }
}

/// The unit of direct I/O: offsets in the file, lengths and addresses must be multiples of it. `None` if the file system
/// does not support direct I/O for this file.
///
/// It is at least a page, so that no page of the page cache has bytes that are also written past it.
pub(crate) fn block_bytes(direct: BorrowedFd<'_>) -> Option<usize> {
    let page_bytes = rustix::param::page_size();
    // statx(2): STATX_DIOALIGN came with Linux 6.1, and not every file system reports it.
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

/// A simulated queue for the tests of its users.
#[cfg(test)]
pub(super) mod scripted {
    use std::collections::VecDeque;

    use super::*;

    /// Moves bytes between pieces and a file in memory, and fails as its script says.
    pub(crate) struct ScriptedQueue {
        pub(crate) file: Vec<u8>,
        /// The result of each request in the order of submission: the most bytes that it moves, or an error. Requests
        /// after the end of the list move all bytes.
        pub(crate) script: VecDeque<Result<usize, Errno>>,
        pub(crate) requests: Vec<Request>,
        memory: Vec<Vec<u8>>,
        in_flight: Vec<Option<Result<usize, Errno>>>,
    }

    impl ScriptedQueue {
        pub(crate) fn new(file: Vec<u8>, pieces: usize, piece_bytes: usize) -> Self {
            Self {
                file,
                script: VecDeque::new(),
                requests: Vec::new(),
                memory: vec![vec![0; piece_bytes]; pieces],
                in_flight: vec![None; pieces],
            }
        }
    }

    impl IoQueue for ScriptedQueue {
        fn pieces(&self) -> usize {
            self.memory.len()
        }

        fn memory(&mut self, piece: usize) -> &mut [u8] {
            assert!(self.in_flight[piece].is_none());
            &mut self.memory[piece]
        }

        fn submit(&mut self, piece: usize, request: Request) {
            self.requests.push(request);
            assert!(self.in_flight[piece].is_none());
            let memory = &mut self.memory[piece][request.start..][..request.length];
            let most = self.script.pop_front().unwrap_or(Ok(usize::MAX));
            self.in_flight[piece] = Some(most.map(|most| {
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

        fn complete(&mut self, piece: usize) -> Result<usize, Errno> {
            self.in_flight[piece]
                .take()
                .expect("a request is in flight")
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
