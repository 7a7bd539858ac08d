//! Writes received bytes: pieces are filled one after another while earlier ones are written.
//!
//! Bytes are counted in the order of the file, so that the bytes counted before a failure are a prefix of the range.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gridhaul_direct::{Call, PieceQueue, Request, Way};
use gridhaul_stack::{ChannelError, RangeWriter, Received, Tap};
use rustix::io::Errno;

/// Received bytes are written at least this often, even if they do not fill a piece, so that the bytes of a slow peer are
/// visible and safe.
const FLUSH_INTERVAL: Duration = Duration::from_secs(1);

/// Writes whole blocks of a file.
pub(crate) struct BlockWriter<'a> {
    pub(crate) queue: &'a mut dyn PieceQueue,
    /// For partial blocks, and for file systems that refuse direct I/O.
    pub(crate) through_cache: RangeWriter<'a>,
    /// The offset of the range of `through_cache` in the file.
    pub(crate) origin: u64,
    pub(crate) block_bytes: usize,
    pub(crate) moved: &'a AtomicU64,
    pub(crate) tap: Option<&'a dyn Tap>,
    /// Writes in flight with their pieces, in the order of the file.
    pub(crate) in_flight: VecDeque<(usize, Request)>,
    /// The error with which the file system refused direct I/O.
    pub(crate) refused: Option<Errno>,
}

/// Why the filling of a piece ended.
#[derive(Debug)]
enum Stop {
    Full,
    /// The time limit passed.
    Pause,
    EndOfStream,
    Failed(ChannelError),
}

/// The result of [`BlockWriter::receive`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// The number of bytes; the stream has not ended.
    Bytes(u64),
    /// The number of bytes; the stream has ended.
    ToTheEnd(u64),
}

impl BlockWriter<'_> {
    /// Receives whole blocks, or fewer if the peer pauses within a block or its stream ends. A partial block is then written
    /// through the page cache.
    ///
    /// `receive` returns `None` at the time that it is given.
    ///
    /// # Errors
    ///
    /// Those of `receive`, after all bytes received before are in the file; and [`ChannelError::File`].
    pub(crate) fn receive(
        &mut self,
        blocks: Range<u64>,
        mut receive: impl FnMut(&mut [u8], Option<Instant>) -> Result<Option<Received>, ChannelError>,
    ) -> Result<Written, ChannelError> {
        let mut at = blocks.start;
        for piece in (0..self.queue.slots()).cycle() {
            if self.in_flight.len() == self.queue.slots() {
                self.complete_oldest()?;
            }
            let piece_bytes = self.queue.memory(piece).len();
            let room =
                usize::try_from(blocks.end - at).map_or(piece_bytes, |left| left.min(piece_bytes));
            let (filled, stop) = self.fill(piece, room, &mut receive);
            let whole = filled - filled % self.block_bytes;
            self.submit(piece, at, whole);
            if whole < filled {
                self.complete_all()?;
                let bytes = &self.queue.memory(piece)[whole..filled];
                self.through_cache
                    .write(bytes, at + whole as u64 - self.origin)?;
            }
            at += filled as u64;
            let done = at - blocks.start;
            match stop {
                Stop::Full if at < blocks.end => {}
                // The next piece starts at a block.
                Stop::Pause if whole == filled => self.complete_all()?,
                Stop::Full | Stop::Pause => {
                    self.complete_all()?;
                    return Ok(Written::Bytes(done));
                }
                Stop::EndOfStream => {
                    self.complete_all()?;
                    return Ok(Written::ToTheEnd(done));
                }
                Stop::Failed(error) => {
                    self.complete_all()?;
                    return Err(error);
                }
            }
        }
        Ok(Written::Bytes(at - blocks.start))
    }

    /// Fills the start of a piece. While received bytes are not in the file, it waits for more for at most
    /// [`FLUSH_INTERVAL`].
    fn fill(
        &mut self,
        piece: usize,
        room: usize,
        mut receive: impl FnMut(&mut [u8], Option<Instant>) -> Result<Option<Received>, ChannelError>,
    ) -> (usize, Stop) {
        let limit = || Some(Instant::now() + FLUSH_INTERVAL);
        let mut until = if self.in_flight.is_empty() {
            None
        } else {
            limit()
        };
        let mut filled = 0;
        while filled < room {
            match receive(&mut self.queue.memory(piece)[filled..room], until) {
                Ok(Some(Received::Bytes(count))) => filled += count.get(),
                Ok(Some(Received::EndOfStream)) => return (filled, Stop::EndOfStream),
                Ok(None) => return (filled, Stop::Pause),
                Err(error) => return (filled, Stop::Failed(error)),
            }
            until = until.or_else(limit);
        }
        (filled, Stop::Full)
    }

    fn submit(&mut self, piece: usize, offset: u64, length: usize) {
        if length > 0 {
            let request = Request {
                call: Call::Write,
                way: Way::Direct,
                offset,
                start: 0,
                length,
            };
            self.queue.submit(piece, request);
            self.in_flight.push_back((piece, request));
        }
    }

    fn complete_all(&mut self) -> Result<(), ChannelError> {
        while !self.in_flight.is_empty() {
            self.complete_oldest()?;
        }
        Ok(())
    }

    /// Waits for the oldest write.
    fn complete_oldest(&mut self) -> Result<(), ChannelError> {
        let Some((piece, mut rest)) = self.in_flight.pop_front() else {
            return Ok(());
        };
        while rest.length > 0 {
            match self.queue.complete(piece) {
                Ok(0) => return Err(ChannelError::File(io::ErrorKind::WriteZero.into())),
                Ok(count) => {
                    self.count(piece, &mut rest, count);
                    if rest.length > 0 {
                        // A nearly full disk writes a part, and returns its error for the rest, which direct I/O refuses
                        // if it begins within a block.
                        self.queue.submit(piece, rest);
                    }
                }
                Err(errno) if is_refusal(errno) => {
                    self.refused = Some(errno);
                    let bytes = &self.queue.memory(piece)[rest.start..][..rest.length];
                    return self.through_cache.write(bytes, rest.offset - self.origin);
                }
                Err(errno) => return Err(ChannelError::File(errno.into())),
            }
        }
        Ok(())
    }

    /// Counts the first bytes of a request as written.
    fn count(&mut self, piece: usize, request: &mut Request, count: usize) {
        self.moved.fetch_add(count as u64, Ordering::Release);
        if let Some(tap) = self.tap {
            let bytes = &self.queue.memory(piece)[request.start..][..count];
            tap.written(request.offset, bytes);
        }
        *request = request.rest(count);
    }
}

/// Whether direct I/O was refused and the page cache should be used. `EAGAIN`: the kernel has no memory for the request.
fn is_refusal(errno: Errno) -> bool {
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

    use gridhaul_direct::scripted::ScriptedQueue;
    use gridhaul_stack::FileRange;

    use super::*;

    const BLOCK: usize = 16;
    /// The offset of the first block in the file.
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
        /// The bytes written past the page cache, and through it.
        direct: Vec<u8>,
        cached: Vec<u8>,
        seen: Vec<(u64, Vec<u8>)>,
    }

    /// Receives ten blocks in pieces of two; the bytes of the stream count up from 1.
    fn receive(peer: &[Peer], script: &[Result<usize, Errno>]) -> Outcome {
        let cache = tempfile::tempfile().unwrap();
        let mut queue = ScriptedQueue::new(Vec::new(), 2, 2 * BLOCK);
        queue.script.extend(script);
        let (moved, seen) = (AtomicU64::new(0), Seen::default());
        let (mut scratch, mut next) = ([0], 0_u8);
        let mut range = FileRange::new(cache.as_fd(), START, 1000, &mut scratch, &moved);
        range.tap = Some(&seen);
        let mut writer = BlockWriter {
            through_cache: range.writer(),
            origin: START,
            queue: &mut queue,
            block_bytes: BLOCK,
            moved: &moved,
            tap: Some(&seen),
            in_flight: VecDeque::new(),
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
                assert!(until.is_some(), "a wait without a limit");
                Ok(None)
            }
            Peer::Ends => Ok(Some(Received::EndOfStream)),
            Peer::Aborts => Err(ChannelError::Aborted),
        });
        assert!(written.is_err() || writer.in_flight.is_empty());
        let refused = writer.refused;
        Outcome {
            written,
            moved: moved.into_inner(),
            refused,
            direct: queue.file,
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

    /// The content of a file that got these bytes of the stream.
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
    fn all_bytes_before_the_end_of_the_stream_are_written() {
        let outcome = receive(&[Peer::Sends(32), Peer::Sends(20), Peer::Ends], &[]);
        assert_eq!(outcome.written.as_ref().unwrap(), &Written::ToTheEnd(52));
        assert_eq!(outcome.direct, file_with(0..48));
        assert_eq!(outcome.cached, file_with(48..52));
        expect_seen_once(&outcome);
    }

    #[test]
    fn bytes_before_a_pause_are_written() {
        let peer = [Peer::Sends(32), Peer::Waits, Peer::Sends(16), Peer::Waits];
        let outcome = receive(&[&peer[..], &[Peer::Sends(17), Peer::Waits]].concat(), &[]);
        assert_eq!(outcome.written.as_ref().unwrap(), &Written::Bytes(65));
        assert_eq!(outcome.direct, file_with(0..64));
        assert_eq!(outcome.cached, file_with(64..65));
        expect_seen_once(&outcome);
    }

    #[test]
    fn bytes_before_an_abort_are_written_and_counted() {
        let outcome = receive(&[Peer::Sends(32), Peer::Sends(9), Peer::Aborts], &[]);
        assert!(matches!(outcome.written, Err(ChannelError::Aborted)));
        assert_eq!(outcome.moved, 41);
        assert_eq!(outcome.cached, file_with(32..41));
        expect_seen_once(&outcome);
    }

    #[test]
    fn a_full_disk_is_reported_and_later_bytes_are_not_counted() {
        let script = [Ok(usize::MAX), Err(Errno::NOSPC), Ok(usize::MAX)];
        let outcome = receive(&[Peer::Sends(200); 5], &script);
        let Err(ChannelError::File(error)) = outcome.written else {
            panic!("{:?}", outcome.written);
        };
        assert_eq!(Errno::from_io_error(&error), Some(Errno::NOSPC));
        assert_eq!(outcome.moved, 32);
    }

    #[test]
    fn the_rest_of_a_short_write_is_written() {
        let script = [Ok(16), Ok(usize::MAX), Ok(usize::MAX)];
        let outcome = receive(&[Peer::Sends(200); 5], &script);
        assert_eq!(outcome.written.as_ref().unwrap(), &Written::Bytes(160));
        assert_eq!(outcome.direct, file_with(0..160));
        expect_seen_once(&outcome);
    }

    #[test]
    fn blocks_that_direct_io_refuses_go_through_the_page_cache() {
        let script = [Ok(usize::MAX), Err(Errno::INVAL)];
        let outcome = receive(&[Peer::Sends(200); 5], &script);
        assert_eq!(outcome.written.as_ref().unwrap(), &Written::Bytes(160));
        assert_eq!((outcome.moved, outcome.refused), (160, Some(Errno::INVAL)));
        assert_eq!(outcome.cached, file_with(32..64));
        expect_seen_once(&outcome);
    }
}
