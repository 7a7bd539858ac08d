//! From a file to a sender: whole blocks are read ahead of the pieces that are passed on in order.

use std::ops::Range;

use gridhaul_stack::ChannelError;

use super::lane::{Call, Lane, Request};
use crate::channel::Part;

/// Takes what was read.
pub(crate) trait Sink {
    /// Takes the next piece, behind which so many follow.
    fn send(&mut self, bytes: &[u8], left: u64) -> Result<(), ChannelError>;

    /// Whether the memory of a sent piece, by its number, is free again. With `must_be` it waits until it is.
    fn is_free(&mut self, index: u64, must_be: bool) -> Result<bool, ChannelError>;
}

/// Reads a range of a file and gives its bytes to `sink` in order. The blocks at its ends are read whole; what of them
/// lies outside is not given on.
///
/// What cannot be read is left to the page cache, which then says why.
///
/// # Errors
///
/// Those of `sink`.
pub(crate) fn read(
    lane: &mut dyn Lane,
    range: Range<u64>,
    block_bytes: usize,
    sink: &mut impl Sink,
) -> Result<Part, ChannelError> {
    let piece_bytes = lane.memory(0).len();
    let start = range.start - range.start % block_bytes as u64;
    let pieces = (range.end - start).div_ceil(piece_bytes as u64);
    // The last piece is as long as there are blocks to read.
    let ask = |lane: &mut dyn Lane, index: u64| {
        let offset = start + index * piece_bytes as u64;
        let left = usize::try_from(range.end - offset).unwrap_or(usize::MAX);
        let request = Request {
            call: Call::Read,
            offset,
            start: 0,
            length: left.min(piece_bytes).next_multiple_of(block_bytes),
        };
        lane.begin(place(lane, index), request);
    };
    let ahead = lane.pieces() as u64;
    let mut asked = 0;
    for index in 0..pieces {
        while asked < pieces.min(index + ahead) {
            let is_free = asked < ahead || sink.is_free(asked - ahead, asked == index)?;
            if !is_free {
                break;
            }
            ask(lane, asked);
            asked += 1;
        }
        let piece = place(lane, index);
        let offset = start + index * piece_bytes as u64;
        // Both are within the piece.
        let within = |end: u64| usize::try_from(end - offset).unwrap_or(piece_bytes);
        let from = within(range.start.max(offset));
        let to = within(range.end.min(offset + piece_bytes as u64));
        let read = match lane.end(piece) {
            Ok(read) if read >= to => to,
            // The file has ended, or a file system has given less than it was asked for.
            Ok(read) => read.max(from),
            Err(errno) => {
                let done = (offset + from as u64) - range.start;
                return Ok(Part::Refused(done, Some(errno)));
            }
        };
        if from < read {
            let is_last = offset + read as u64 == range.end;
            let left = if is_last {
                0
            } else {
                (pieces - index).max(2) - 1
            };
            sink.send(&lane.memory(piece)[from..read], left)?;
        }
        if read < to {
            return Ok(Part::Refused(offset + read as u64 - range.start, None));
        }
    }
    Ok(Part::Whole)
}

/// Pieces take turns.
fn place(lane: &dyn Lane, index: u64) -> usize {
    usize::try_from(index % lane.pieces() as u64).expect("less than the number of pieces")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rustix::io::Errno;

    use super::super::lane::scripted::ScriptedLane;
    use super::*;

    const BLOCK: usize = 16;

    fn content(length: usize) -> Vec<u8> {
        (0..)
            .map(|index: u32| index.to_le_bytes()[0])
            .take(length)
            .collect()
    }

    /// Keeps the bytes. The network holds on to the memory of so many pieces, as long as it may.
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

    fn read_all(lane: &mut ScriptedLane, range: Range<u64>) -> (Part, Vec<u8>, usize) {
        read_held(lane, range, 0)
    }

    fn read_held(lane: &mut ScriptedLane, range: Range<u64>, held: u64) -> (Part, Vec<u8>, usize) {
        let mut kept = Kept {
            held,
            ..Kept::default()
        };
        let part = read(lane, range, BLOCK, &mut kept);
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
            let mut lane = ScriptedLane::new(file.clone(), pieces, blocks * BLOCK);
            let end = offset + length;
            let (part, sent, last) = read_held(&mut lane, offset as u64..end as u64, held);
            let there = &file[offset.min(size)..end.min(size)];
            prop_assert_eq!(&sent, there);
            if end <= size {
                prop_assert!(matches!(part, Part::Whole));
                prop_assert_eq!(last, 1);
            } else {
                let done = there.len() as u64;
                prop_assert!(matches!(part, Part::Refused(bytes, None) if bytes == done), "{:?}", part);
            }
            for request in lane.requests {
                prop_assert_eq!(request.offset % BLOCK as u64, 0);
                prop_assert_eq!(request.length % BLOCK, 0);
            }
        }
    }

    #[test]
    fn what_cannot_be_read_is_left_to_others() {
        let file = content(200);
        let mut lane = ScriptedLane::new(file.clone(), 2, 2 * BLOCK);
        lane.script.extend([Ok(usize::MAX), Ok(20), Ok(usize::MAX)]);
        let (part, sent, _) = read_all(&mut lane, 5..190);
        assert!(matches!(part, Part::Refused(47, None)), "{part:?}");
        assert_eq!(sent, file[5..52]);
        let mut lane = ScriptedLane::new(file.clone(), 2, 2 * BLOCK);
        lane.script.extend([Ok(usize::MAX), Err(Errno::INVAL)]);
        let (part, sent, _) = read_all(&mut lane, 5..190);
        assert!(
            matches!(part, Part::Refused(27, Some(Errno::INVAL))),
            "{part:?}"
        );
        assert_eq!(sent, file[5..32]);
    }
}
