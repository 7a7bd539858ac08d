//! The sending end of a stream: what is in its ring, what of it has gone, and what of that the peer has consumed.

mod posting;
mod recovery;
mod waiting;

use std::collections::VecDeque;
use std::time::Duration;

use super::sources::Sources;
use super::{Message, Pacer, Ring, Source};
use crate::memory::Span;
use crate::provider::{Endpoint, Remote, Request, Work};

/// What a sender is told when the channel opens.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SenderSettings {
    /// Of both ends.
    pub(crate) ring: Ring,
    /// Our ring, as the provider knows it.
    pub(crate) region: usize,
    /// The peer's ring.
    pub(crate) remote: Remote,
    pub(crate) queue_pairs: usize,
    /// Requests of one queue pair that may be waiting.
    pub(crate) depth: usize,
    /// The largest WRITE, in bytes.
    pub(crate) message_bytes: u64,
    /// The longest piece, in bytes.
    pub(crate) piece_bytes: u64,
    /// Pieces that the peer takes beyond what it has consumed.
    pub(crate) max_pieces: usize,
    /// The peer fetches pieces that are announced to it, and nothing is written.
    pub(crate) is_fetched: bool,
    /// Pieces of so many bytes travel in the message that announces them; 0 for none.
    pub(crate) inline_bytes: u64,
    /// A piece that is one WRITE is announced by a number in it.
    pub(crate) immediate: bool,
    /// Requests complete before they have arrived (iWARP).
    pub(crate) completes_early: bool,
    /// A queue pair on which nothing completes for so long is given up, unless a provider's requests may wait.
    pub(crate) stall: Option<Duration>,
}

/// Marks WRITEs among the names of requests; the rest is the end of the piece that they announce, 0 if there is none. No
/// stream is so long that its places need the bit.
const WRITE: u64 = 1 << 62;

/// The sending end of a stream.
#[derive(Debug)]
pub(crate) struct Sender {
    settings: SenderSettings,
    pacer: Pacer,
    /// All before this place is in our ring.
    filled: u64,
    /// All before this place was cut into pieces.
    cut: u64,
    /// All before this place was consumed by the peer.
    credited: u64,
    /// Up to here pieces may be shorter than they could be.
    flush: u64,
    end: End,
    /// Pieces that the peer has not consumed, in order.
    pieces: VecDeque<Piece>,
    /// So many of them, the first ones, are announced.
    announced: usize,
    /// Of so many, the first ones, the peer may have heard.
    told: usize,
    /// So many, wherever they are, are held.
    held: usize,
    /// What is not in our ring.
    sources: Sources,
    queue_pairs: Vec<QueuePair>,
    /// What was sent again, where requests complete before they have arrived.
    repeats: Vec<Repeat>,
    /// Queue pairs on which the peer is still to hear that another was lost, and that one: before anything else.
    abandoned: VecDeque<(usize, usize)>,
    /// Whose turn it is.
    next: usize,
    /// Requests that have completed.
    completed: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Open,
    /// The stream ends with what is filled; the peer does not know.
    Wanted,
    Told {
        queue_pair: usize,
    },
}

/// A part of the stream that goes over one queue pair.
#[derive(Debug, Clone, Copy)]
struct Piece {
    start: u64,
    end: u64,
    /// `None` until there is one with room, and again when it is lost.
    queue_pair: Option<usize>,
    /// All before this place was posted.
    posted: u64,
    /// The peer was told, on this queue pair.
    announced: bool,
    /// The peer was told, on this one or on one that is lost: it may have the piece.
    told: bool,
    /// Its memory is needed until it has completed: it may be on its way when the peer has consumed it already, because
    /// it goes over a second queue pair, or the memory is not in our ring and goes away.
    held: bool,
    /// It goes for the second time, and the first may have arrived.
    again: bool,
}

/// A piece that was sent for the second time over the first queue pair that lives. Nobody knows when it has arrived, and
/// what is written to its place over another queue pair may be there before it, to be overwritten. So that goes over
/// the same one.
#[derive(Debug, Clone, Copy)]
struct Repeat {
    /// Its place in the ring.
    from: u64,
    to: u64,
    /// It has arrived when anything after this has that goes over the same queue pair.
    before: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct QueuePair {
    /// Requests without completion.
    pending: usize,
    /// When one completed last, or the first of them was posted.
    progress: Duration,
    /// Since when there is always one without completion, if there is.
    busy: Duration,
    lost: bool,
    /// How often it was restored.
    life: u32,
}

impl QueuePair {
    /// Counts a request.
    fn count(&mut self, now: Duration) {
        if self.pending == 0 {
            (self.progress, self.busy) = (now, now);
        }
        self.pending += 1;
    }
}

impl Piece {
    /// Tells the peer that it is there.
    fn announce(&mut self) -> Request {
        (self.announced, self.told) = (true, true);
        let length = self.end - self.start;
        let message = Message::Arrived {
            start: self.start,
            length: u32::try_from(length)
                .expect("a piece is no longer than SenderSettings::piece_bytes"),
        };
        Request {
            id: self.end,
            work: Work::Send(message.encode()),
        }
    }
}

/// What is to be posted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Post {
    pub(crate) queue_pair: usize,
    pub(crate) request: Request,
}

/// How the peer lied, or what is no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SenderError {
    #[error("the peer says that it consumed {said} bytes, and {sent} were sent")]
    Credit { said: u64, sent: u64 },
}

impl Sender {
    pub(crate) fn new(settings: SenderSettings, pacer: Pacer) -> Self {
        Self {
            settings,
            pacer,
            filled: 0,
            cut: 0,
            credited: 0,
            flush: 0,
            end: End::Open,
            pieces: VecDeque::new(),
            announced: 0,
            told: 0,
            held: 0,
            sources: Sources::default(),
            repeats: Vec::new(),
            queue_pairs: vec![QueuePair::default(); settings.queue_pairs],
            abandoned: VecDeque::new(),
            next: 0,
            completed: 0,
        }
    }

    /// Where the next bytes of the stream go in our ring; empty while the ring is full.
    pub(crate) fn room(&self) -> Span {
        let ring = self.settings.ring;
        let free = self.needed_from() + ring.bytes() - self.filled;
        ring.place(self.filled, free.min(ring.contiguous(self.filled)))
    }

    /// The first `count` bytes of [`Sender::room`] are there.
    pub(crate) fn fill(&mut self, count: usize) {
        self.filled += count as u64;
    }

    /// The next `count` bytes, no more than there is room for, are elsewhere, and stay there while they are needed.
    pub(crate) fn fill_from(&mut self, source: Source, count: usize) {
        let start = self.filled;
        self.filled += count as u64;
        self.sources.forget(self.needed_from());
        self.sources.add(start, self.filled, source);
    }

    /// How long the stream is, so far.
    pub(crate) fn filled(&self) -> u64 {
        self.filled
    }

    /// What is there goes without waiting for more.
    pub(crate) fn flush(&mut self) {
        self.flush = self.filled;
    }

    /// The stream ends with what is there.
    pub(crate) fn finish(&mut self) {
        self.flush();
        if self.end == End::Open {
            self.end = End::Wanted;
        }
    }

    /// Whether everything that may go was posted, its announcements included.
    pub(crate) fn is_posted(&self) -> bool {
        self.cut >= self.flush && self.end != End::Wanted && self.announced == self.pieces.len()
    }

    /// Whether the peer is still to fetch something.
    pub(crate) fn has_unfetched(&self) -> bool {
        self.settings.is_fetched && !self.pieces.is_empty()
    }

    /// A number that changes whenever something of the stream has gone or was consumed.
    pub(crate) fn progress(&self) -> u64 {
        self.completed + self.credited
    }

    /// Whether every request has completed.
    pub(crate) fn is_idle(&self) -> bool {
        self.queue_pairs
            .iter()
            .all(|queue_pair| queue_pair.pending == 0)
    }

    /// A request of ours has completed, and with it all that were posted before on the queue pair.
    pub(crate) fn completed(&mut self, queue_pair: usize, id: u64, now: Duration) {
        let on = &mut self.queue_pairs[queue_pair];
        on.pending = on.pending.saturating_sub(1);
        on.progress = now;
        self.completed += 1;
        if id & WRITE != 0 {
            self.pacer.completed(queue_pair, now);
        }
        if self.held == 0 {
            return;
        }
        // Announcements have the end of their piece for a name.
        let end = id & !WRITE;
        let ended = |piece: &&mut Piece| piece.held && piece.end == end;
        if let Some(piece) = self.pieces.iter_mut().find(ended) {
            piece.held = false;
            self.held -= 1;
            if piece.again && self.settings.completes_early {
                let (from, to) = self.settings.ring.range(piece.start, piece.end);
                let before = self.cut;
                self.repeats.push(Repeat { from, to, before });
            }
            self.retire();
        }
    }

    /// Somebody looks after it, and `endpoint` can be asked what the device counts.
    pub(crate) fn wake(&mut self, now: Duration, endpoint: &dyn Endpoint) {
        self.pacer.wake(now, endpoint);
    }

    /// How fast messages leave, in bytes per second, if they are held back.
    pub(crate) fn rate(&self) -> Option<u64> {
        self.pacer.rate()
    }

    /// Finds a queue pair with room for a request that somebody else posts, and counts that.
    pub(crate) fn reserve(&mut self, now: Duration) -> Option<usize> {
        let queue_pair = (0..self.queue_pairs.len()).find(|&number| self.has_room(number))?;
        self.count(queue_pair, now);
        Some(queue_pair)
    }

    /// Whether a queue pair lives and takes another request.
    pub(crate) fn has_room(&self, queue_pair: usize) -> bool {
        let queue_pair = self.queue_pairs[queue_pair];
        !queue_pair.lost && queue_pair.pending < self.settings.depth
    }

    /// Counts a request that somebody else posts on a queue pair with room.
    pub(crate) fn count(&mut self, queue_pair: usize, now: Duration) {
        self.queue_pairs[queue_pair].count(now);
    }

    /// Bytes that the device has to bring to the peer, and bytes that have arrived there. What is fetched, the peer's
    /// device brings.
    pub(crate) fn brought(&self) -> (u64, u64) {
        if self.settings.is_fetched {
            (self.cut - self.credited, self.credited)
        } else {
            self.pacer.progress()
        }
    }

    /// The longest message, as it goes at present.
    pub(crate) fn message_bytes(&self) -> u64 {
        self.pacer.message_bytes(self.settings.message_bytes)
    }

    /// The peer returned credit.
    ///
    /// # Errors
    ///
    /// When it cannot have consumed so much.
    pub(crate) fn credited(&mut self, consumed: u64) -> Result<(), SenderError> {
        let last_told = self.told.checked_sub(1).map(|last| self.pieces[last]);
        let sent = last_told.map_or(self.credited, |piece| piece.end);
        if consumed < self.credited {
            // Credit takes any queue pair, and one may be slower than another.
            return Ok(());
        }
        if consumed > sent {
            return Err(SenderError::Credit {
                said: consumed,
                sent,
            });
        }
        self.credited = consumed;
        if self.held > 0 {
            let consumed = |piece: &&mut Piece| piece.start < consumed;
            for piece in self.pieces.iter_mut().take_while(consumed) {
                if piece.held && piece.posted == piece.start {
                    // It had arrived before its queue pair was lost, and need not go again.
                    (piece.announced, piece.held) = (true, false);
                    self.held -= 1;
                }
            }
            self.count_announced();
        }
        self.retire();
        Ok(())
    }

    /// Forgets pieces that nobody needs.
    fn retire(&mut self) {
        let credited = self.credited;
        let is_done = |piece: &Piece| piece.end <= credited && !piece.held;
        while let Some(piece) = self.pieces.pop_front_if(|piece| is_done(piece)) {
            self.forget_repeats(piece);
            self.announced = self.announced.saturating_sub(1);
            self.told = self.told.saturating_sub(1);
        }
    }

    /// Counts the first pieces of each kind, after some may have become such.
    fn count_announced(&mut self) {
        let count = |from: usize, is: fn(&Piece) -> bool| {
            let further = self.pieces.iter().skip(from);
            from + further.take_while(|piece| is(piece)).count()
        };
        self.announced = count(self.announced, |piece| piece.announced);
        self.told = count(self.told, |piece| piece.told);
    }
}
