//! From a receiver to a file: pieces are filled one after another while earlier ones are written.
//!
//! What the file has is counted in the order of the file, so that what was counted before a failure is the
//! beginning of what was to be received.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gridhaul_stack::{ChannelError, RangeWriter, Received, Tap};
use rustix::io::Errno;

use super::lane::{Call, Lane, Request};

/// What was received is written after so long, whether it fills a piece or not: a slow peer's bytes are
/// to be seen, and to be safe.
const PATIENCE: Duration = Duration::from_secs(1);

/// Writes whole blocks of a file.
pub(crate) struct BlockWriter<'a> {
    pub(crate) lane: &'a mut dyn Lane,
    /// For what is no whole block, and for file systems that refuse direct I/O.
    pub(crate) through_cache: RangeWriter<'a>,
    /// Where the range of `through_cache` begins in the file.
    pub(crate) origin: u64,
    pub(crate) block_bytes: usize,
    pub(crate) moved: &'a AtomicU64,
    pub(crate) tap: Option<&'a dyn Tap>,
    /// What is being written, in the order of the file, with its piece.
    pub(crate) under_way: VecDeque<(usize, Request)>,
    /// What the file system said when it refused direct I/O.
    pub(crate) refused: Option<Errno>,
}

/// Why a piece is filled no further.
#[derive(Debug)]
enum Stop {
    Full,
    /// Nothing came for a while, or too slowly.
    Pause,
    EndOfStream,
    Failed(ChannelError),
}

/// How far [`BlockWriter::receive`] came.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// So many bytes; there may be more.
    Bytes(u64),
    /// So many bytes, and the stream ended.
    ToTheEnd(u64),
}

impl BlockWriter<'_> {
    /// Receives whole blocks, or fewer if the peer pauses within one or its stream ends. What is no whole
    /// block then is written through the page cache.
    ///
    /// `receive` gives up at the time that it is given, with nothing.
    ///
    /// # Errors
    ///
    /// Those of `receive`, when all that came before is in the file; and [`ChannelError::File`].
    pub(crate) fn receive(
        &mut self,
        blocks: Range<u64>,
        mut receive: impl FnMut(&mut [u8], Option<Instant>) -> Result<Option<Received>, ChannelError>,
    ) -> Result<Written, ChannelError> {
        let mut at = blocks.start;
        for piece in (0..self.lane.pieces()).cycle() {
            if self.under_way.len() == self.lane.pieces() {
                self.end_oldest()?;
            }
            let piece_bytes = self.lane.memory(piece).len();
            let room =
                usize::try_from(blocks.end - at).map_or(piece_bytes, |left| left.min(piece_bytes));
            let (filled, stop) = self.fill(piece, room, &mut receive);
            let whole = filled - filled % self.block_bytes;
            self.begin(piece, at, whole);
            if whole < filled {
                self.end_all()?;
                let bytes = &self.lane.memory(piece)[whole..filled];
                self.through_cache
                    .write(bytes, at + whole as u64 - self.origin)?;
            }
            at += filled as u64;
            let done = at - blocks.start;
            match stop {
                Stop::Full if at < blocks.end => {}
                // Whole blocks can go on from here.
                Stop::Pause if whole == filled => self.end_all()?,
                Stop::Full | Stop::Pause => {
                    self.end_all()?;
                    return Ok(Written::Bytes(done));
                }
                Stop::EndOfStream => {
                    self.end_all()?;
                    return Ok(Written::ToTheEnd(done));
                }
                Stop::Failed(error) => {
                    self.end_all()?;
                    return Err(error);
                }
            }
        }
        Ok(Written::Bytes(at - blocks.start))
    }

    /// Fills the beginning of a piece. While there is something that the file could have, it waits for
    /// more only so long.
    fn fill(
        &mut self,
        piece: usize,
        room: usize,
        mut receive: impl FnMut(&mut [u8], Option<Instant>) -> Result<Option<Received>, ChannelError>,
    ) -> (usize, Stop) {
        let limit = || Some(Instant::now() + PATIENCE);
        let mut until = if self.under_way.is_empty() {
            None
        } else {
            limit()
        };
        let mut filled = 0;
        while filled < room {
            match receive(&mut self.lane.memory(piece)[filled..room], until) {
                Ok(Some(Received::Bytes(count))) => filled += count.get(),
                Ok(Some(Received::EndOfStream)) => return (filled, Stop::EndOfStream),
                Ok(None) => return (filled, Stop::Pause),
                Err(error) => return (filled, Stop::Failed(error)),
            }
            until = until.or_else(limit);
        }
        (filled, Stop::Full)
    }

    fn begin(&mut self, piece: usize, offset: u64, length: usize) {
        if length > 0 {
            let request = Request {
                call: Call::Write,
                offset,
                start: 0,
                length,
            };
            self.lane.begin(piece, request);
            self.under_way.push_back((piece, request));
        }
    }

    fn end_all(&mut self) -> Result<(), ChannelError> {
        while !self.under_way.is_empty() {
            self.end_oldest()?;
        }
        Ok(())
    }

    /// Waits until the file has what was begun first.
    fn end_oldest(&mut self) -> Result<(), ChannelError> {
        let Some((piece, mut rest)) = self.under_way.pop_front() else {
            return Ok(());
        };
        while rest.length > 0 {
            match self.lane.end(piece) {
                Ok(0) => return Err(ChannelError::File(io::ErrorKind::WriteZero.into())),
                Ok(count) => {
                    self.count(piece, &mut rest, count);
                    if rest.length > 0 {
                        // A disk that is nearly full takes a part, and says why with the rest, which
                        // is refused if it begins within a block.
                        self.lane.begin(piece, rest);
                    }
                }
                Err(errno) if is_a_refusal(errno) => {
                    self.refused = Some(errno);
                    let bytes = &self.lane.memory(piece)[rest.start..][..rest.length];
                    return self.through_cache.write(bytes, rest.offset - self.origin);
                }
                Err(errno) => return Err(ChannelError::File(errno.into())),
            }
        }
        Ok(())
    }

    /// The file has the first bytes of a request.
    fn count(&mut self, piece: usize, request: &mut Request, count: usize) {
        self.moved.fetch_add(count as u64, Ordering::Release);
        if let Some(tap) = self.tap {
            let bytes = &self.lane.memory(piece)[request.start..][..count];
            tap.written(request.offset, bytes);
        }
        request.offset += count as u64;
        request.start += count;
        request.length -= count;
    }
}

/// Whether direct I/O is refused, and not the bytes: the page cache takes them. Kernels that have no memory for
/// a request say so with `EAGAIN`.
fn is_a_refusal(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::INVAL | Errno::OPNOTSUPP | Errno::AGAIN | Errno::INTR
    )
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::num::NonZeroUsize;
    use std::os::fd::AsFd as _;
    use std::os::unix::fs::FileExt as _;
    use std::sync::Mutex;

    use gridhaul_stack::FileRange;

    use super::super::lane::scripted::ScriptedLane;
    use super::*;

    const BLOCK: usize = 16;
    /// Where the blocks begin in the file, and how many of its bytes came before.
    const START: u64 = 32;

    /// What the peer does next.
    #[derive(Clone, Copy)]
    enum Peer {
        Sends(usize),
        Waits,
        Ends,
        Aborts,
    }

    #[derive(Debug, Default)]
    struct Seen(Mutex<Vec<(u64, Vec<u8>)>>);

    impl Tap for Seen {
        fn written(&self, offset: u64, bytes: &[u8]) {
            self.0.lock().unwrap().push((offset, bytes.to_vec()));
        }
    }

    struct Outcome {
        written: Result<Written, ChannelError>,
        moved: u64,
        refused: Option<Errno>,
        /// What went past the page cache, and what through it.
        direct: Vec<u8>,
        cached: Vec<u8>,
        seen: Vec<(u64, Vec<u8>)>,
    }

    /// Receives ten blocks in pieces of two; the bytes of the stream count up from 1.
    fn receive(peer: &[Peer], script: &[Result<usize, Errno>]) -> Outcome {
        let cache = tempfile::tempfile().unwrap();
        let mut lane = ScriptedLane::new(Vec::new(), 2, 2 * BLOCK);
        lane.script.extend(script);
        let (moved, seen) = (AtomicU64::new(0), Seen::default());
        let (mut scratch, mut next) = ([0], 0_u8);
        let mut range = FileRange::new(cache.as_fd(), START, 1000, &mut scratch, &moved);
        range.tap = Some(&seen);
        let mut writer = BlockWriter {
            through_cache: range.writer(),
            origin: START,
            lane: &mut lane,
            block_bytes: BLOCK,
            moved: &moved,
            tap: Some(&seen),
            under_way: VecDeque::new(),
            refused: None,
        };
        let mut peer = peer.iter().copied();
        let written = writer.receive(START..START + 10 * BLOCK as u64, |memory, until| match peer
            .next()
            .unwrap_or(Peer::Ends)
        {
            Peer::Sends(count) => {
                let count = count.min(memory.len());
                for byte in &mut memory[..count] {
                    next += 1;
                    *byte = next;
                }
                let count = NonZeroUsize::new(count).unwrap();
                Ok(Some(Received::Bytes(count)))
            }
            Peer::Waits => {
                assert!(until.is_some(), "nobody would wake it up");
                Ok(None)
            }
            Peer::Ends => Ok(Some(Received::EndOfStream)),
            Peer::Aborts => Err(ChannelError::Aborted),
        });
        assert!(written.is_err() || writer.under_way.is_empty());
        let refused = writer.refused;
        Outcome {
            written,
            moved: moved.into_inner(),
            refused,
            direct: lane.file,
            cached: content_of(&cache),
            seen: seen.0.into_inner().unwrap(),
        }
    }

    fn content_of(file: &File) -> Vec<u8> {
        let size = file.metadata().unwrap().len();
        let mut content = vec![0; usize::try_from(size).unwrap()];
        file.read_exact_at(&mut content, 0).unwrap();
        content
    }

    /// What a file has that got the first bytes of the stream, of which these went another way.
    fn file_with(bytes: Range<u8>) -> Vec<u8> {
        let start = usize::try_from(START).unwrap() + usize::from(bytes.start);
        let mut file = vec![0; start];
        file.extend(bytes.start + 1..=bytes.end);
        file
    }

    fn expect_seen_once(outcome: &Outcome) {
        let mut seen = outcome.seen.clone();
        seen.sort();
        let mut next = START;
        for (offset, bytes) in seen {
            assert_eq!(offset, next);
            next += bytes.len() as u64;
        }
        assert_eq!(next - START, outcome.moved);
    }

    #[test]
    fn whole_blocks_go_past_the_page_cache() {
        let outcome = receive(&[Peer::Sends(7), Peer::Sends(200)].repeat(100), &[]);
        assert_eq!(outcome.written.as_ref().unwrap(), &Written::Bytes(160));
        assert_eq!(outcome.moved, 160);
        assert_eq!(outcome.direct, file_with(0..160));
        assert!(outcome.cached.is_empty());
        expect_seen_once(&outcome);
    }

    #[test]
    fn the_end_of_the_stream_leaves_nothing_behind() {
        let outcome = receive(&[Peer::Sends(32), Peer::Sends(20), Peer::Ends], &[]);
        assert_eq!(outcome.written.as_ref().unwrap(), &Written::ToTheEnd(52));
        assert_eq!(outcome.direct, file_with(0..48));
        assert_eq!(outcome.cached, file_with(48..52));
        expect_seen_once(&outcome);
    }

    #[test]
    fn what_came_before_a_pause_is_written() {
        let peer = [Peer::Sends(32), Peer::Waits, Peer::Sends(16), Peer::Waits];
        let outcome = receive(&[&peer[..], &[Peer::Sends(17), Peer::Waits]].concat(), &[]);
        assert_eq!(outcome.written.as_ref().unwrap(), &Written::Bytes(65));
        assert_eq!(outcome.direct, file_with(0..64));
        assert_eq!(outcome.cached, file_with(64..65));
        expect_seen_once(&outcome);
    }

    #[test]
    fn what_came_before_an_abort_is_written_and_counted() {
        let outcome = receive(&[Peer::Sends(32), Peer::Sends(9), Peer::Aborts], &[]);
        assert!(matches!(outcome.written, Err(ChannelError::Aborted)));
        assert_eq!(outcome.moved, 41);
        assert_eq!(outcome.cached, file_with(32..41));
        expect_seen_once(&outcome);
    }

    #[test]
    fn a_full_disk_is_told_and_nothing_behind_it_counted() {
        let script = [Ok(usize::MAX), Err(Errno::NOSPC), Ok(usize::MAX)];
        let outcome = receive(&[Peer::Sends(200); 5], &script);
        let Err(ChannelError::File(error)) = outcome.written else {
            panic!("{:?}", outcome.written);
        };
        assert_eq!(Errno::from_io_error(&error), Some(Errno::NOSPC));
        assert_eq!(outcome.moved, 32);
    }

    #[test]
    fn what_was_not_taken_is_written_again() {
        let script = [Ok(16), Ok(usize::MAX), Ok(usize::MAX)];
        let outcome = receive(&[Peer::Sends(200); 5], &script);
        assert_eq!(outcome.written.as_ref().unwrap(), &Written::Bytes(160));
        assert_eq!(outcome.direct, file_with(0..160));
        expect_seen_once(&outcome);
    }

    #[test]
    fn what_direct_io_refuses_goes_through_the_page_cache() {
        let script = [Ok(usize::MAX), Err(Errno::INVAL)];
        let outcome = receive(&[Peer::Sends(200); 5], &script);
        assert_eq!(outcome.written.as_ref().unwrap(), &Written::Bytes(160));
        assert_eq!((outcome.moved, outcome.refused), (160, Some(Errno::INVAL)));
        assert_eq!(outcome.cached, file_with(32..64));
        expect_seen_once(&outcome);
    }
}
