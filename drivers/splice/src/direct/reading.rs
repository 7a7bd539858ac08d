//! Reads a range ahead, in whole blocks, and passes the pieces on in order.

use std::ops::Range;

use gridhaul_direct::{Call, PieceQueue, Request, Way};
use gridhaul_stack::ChannelError;

use crate::progress::Progress;

/// The receiver of pieces that were read.
pub(crate) trait Sink {
    /// Sends the next piece; `left` more pieces follow.
    fn send(&mut self, bytes: &[u8], left: u64) -> Result<(), ChannelError>;

    /// Whether the memory of the sent piece `index` is free again. With `must_be`, waits until it is.
    fn is_free(&mut self, index: u64, must_be: bool) -> Result<bool, ChannelError>;
}

/// Reads a range of a file and passes its bytes to `sink` in order. The blocks at its ends are read whole, and the bytes
/// outside of the range are dropped.
///
/// After a failed read the caller reads the rest through the page cache, which returns the actual error if it fails too.
///
/// # Errors
///
/// Those of `sink`.
pub(crate) fn read(
    queue: &mut dyn PieceQueue,
    range: Range<u64>,
    block_bytes: usize,
    sink: &mut impl Sink,
) -> Result<Progress, ChannelError> {
    let piece_bytes = queue.memory(0).len();
    let start = range.start - range.start % block_bytes as u64;
    let pieces = (range.end - start).div_ceil(piece_bytes as u64);
    // The last piece ends with the last block of the range.
    let submit = |queue: &mut dyn PieceQueue, index: u64| {
        let offset = start + index * piece_bytes as u64;
        let left = usize::try_from(range.end - offset).unwrap_or(usize::MAX);
        let request = Request {
            call: Call::Read,
            way: Way::Direct,
            offset,
            start: 0,
            length: left.min(piece_bytes).next_multiple_of(block_bytes),
        };
        queue.submit(place(queue, index), request);
    };
    let ahead = queue.slots() as u64;
    let mut asked = 0;
    for index in 0..pieces {
        while asked < pieces.min(index + ahead) {
            let is_free = asked < ahead || sink.is_free(asked - ahead, asked == index)?;
            if !is_free {
                break;
            }
            submit(queue, asked);
            asked += 1;
        }
        let piece = place(queue, index);
        let offset = start + index * piece_bytes as u64;
        // Both are within the piece.
        let within = |end: u64| usize::try_from(end - offset).unwrap_or(piece_bytes);
        let from = within(range.start.max(offset));
        let to = within(range.end.min(offset + piece_bytes as u64));
        let read = match queue.complete(piece) {
            Ok(read) if read >= to => to,
            // The end of the file, or a short read.
            Ok(read) => read.max(from),
            Err(errno) => {
                let done = (offset + from as u64) - range.start;
                return Ok(Progress::Refused(done, Some(errno)));
            }
        };
        if from < read {
            let is_last = offset + read as u64 == range.end;
            let left = if is_last {
                0
            } else {
                (pieces - index).max(2) - 1
            };
            sink.send(&queue.memory(piece)[from..read], left)?;
        }
        if read < to {
            return Ok(Progress::Refused(offset + read as u64 - range.start, None));
        }
    }
    Ok(Progress::Complete)
}

/// Piece `index` of the range uses the pieces of memory in rotation.
fn place(queue: &dyn PieceQueue, index: u64) -> usize {
    usize::try_from(index % queue.slots() as u64).expect("less than the number of pieces")
}

#[cfg(test)]
mod tests {
    use gridhaul_direct::scripted::ScriptedQueue;
    use proptest::prelude::*;
    use rustix::io::Errno;

    use super::*;

    const BLOCK: usize = 16;

    fn content(length: usize) -> Vec<u8> {
        (0..)
            .map(|index: u32| index.to_le_bytes()[0])
            .take(length)
            .collect()
    }

    /// Keeps the bytes. The memory of the last `held` pieces stays in use as long as allowed.
    #[derive(Default)]
    struct Kept {
        bytes: Vec<u8>,
        pieces: u64,
        last: usize,
        held: u64,
    }

    impl Sink for Kept {
        fn send(&mut self, bytes: &[u8], left: u64) -> Result<(), ChannelError> {
            assert!(!bytes.is_empty());
            self.bytes.extend_from_slice(bytes);
            self.pieces += 1;
            self.last += usize::from(left == 0);
            Ok(())
        }

        fn is_free(&mut self, index: u64, must_be: bool) -> Result<bool, ChannelError> {
            assert!(index < self.pieces, "it was not sent");
            Ok(must_be || index + self.held < self.pieces)
        }
    }

    fn read_all(queue: &mut ScriptedQueue, range: Range<u64>) -> (Progress, Vec<u8>, usize) {
        read_held(queue, range, 0)
    }

    fn read_held(
        queue: &mut ScriptedQueue,
        range: Range<u64>,
        held: u64,
    ) -> (Progress, Vec<u8>, usize) {
        let mut kept = Kept {
            held,
            ..Kept::default()
        };
        let part = read(queue, range, BLOCK, &mut kept);
        (part.unwrap(), kept.bytes, kept.last)
    }

    proptest! {
        #[test]
        fn a_range_is_read_as_it_is(
            size in 0..400_usize,
            offset in 0..400_usize,
            length in 1..400_usize,
            pieces in 2..5_usize,
            blocks in 1..4_usize,
            held in 0..4_u64,
        ) {
            let file = content(size);
            let mut queue = ScriptedQueue::new(file.clone(), pieces, blocks * BLOCK);
            let end = offset + length;
            let (part, sent, last) = read_held(&mut queue, offset as u64..end as u64, held);
            let there = &file[offset.min(size)..end.min(size)];
            prop_assert_eq!(&sent, there);
            if end <= size {
                prop_assert!(matches!(part, Progress::Complete));
                prop_assert_eq!(last, 1);
            } else {
                let done = there.len() as u64;
                prop_assert!(matches!(part, Progress::Refused(bytes, None) if bytes == done), "{:?}", part);
            }
            for request in queue.requests {
                prop_assert_eq!(request.offset % BLOCK as u64, 0);
                prop_assert_eq!(request.length % BLOCK, 0);
            }
        }
    }

    #[test]
    fn after_a_failed_read_the_rest_is_left_to_the_caller() {
        let file = content(200);
        let mut queue = ScriptedQueue::new(file.clone(), 2, 2 * BLOCK);
        queue
            .script
            .extend([Ok(usize::MAX), Ok(20), Ok(usize::MAX)]);
        let (part, sent, _) = read_all(&mut queue, 5..190);
        assert!(matches!(part, Progress::Refused(47, None)), "{part:?}");
        assert_eq!(sent, file[5..52]);
        let mut queue = ScriptedQueue::new(file.clone(), 2, 2 * BLOCK);
        queue.script.extend([Ok(usize::MAX), Err(Errno::INVAL)]);
        let (part, sent, _) = read_all(&mut queue, 5..190);
        assert!(
            matches!(part, Progress::Refused(27, Some(Errno::INVAL))),
            "{part:?}"
        );
        assert_eq!(sent, file[5..32]);
    }
}
