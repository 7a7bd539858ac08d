//! The sending end of a stream.

use std::collections::VecDeque;
use std::time::Duration;

use super::sources::Sources;
use super::{Message, Pacer, Ring, Source, immediate};
use crate::memory::Span;
use crate::provider::{Remote, Request, Work};

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
    /// What of our ring travels in the message, behind what it says.
    pub(crate) payload: Option<Span>,
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

    /// The next request, or `None` while there is nothing to post, no room, or no leave of the pacer.
    pub(crate) fn next(&mut self, now: Duration) -> Option<Post> {
        if let Some(&(on, lost)) = self.abandoned.front() {
            if self.queue_pairs[on].pending >= self.settings.depth {
                return None;
            }
            self.abandoned.pop_front();
            let message = Message::Abandon {
                queue_pair: lost,
                life: self.queue_pairs[lost].life,
            };
            return Some(self.post(on, 0, Work::Send(message.encode()), now));
        }
        self.cut_pieces();
        let Some((number, queue_pair)) = self.next_piece() else {
            return self.next_end(now);
        };
        let settings = self.settings;
        let piece = &mut self.pieces[number];
        if piece.queue_pair.is_none() {
            piece.queue_pair = Some(queue_pair);
            self.next = queue_pair + 1;
        }
        let is_short = piece.end - piece.start <= settings.inline_bytes;
        if is_short && !self.sources.any_within(piece.start, piece.end) {
            return self.next_inline(number, queue_pair, now);
        }
        if piece.posted == piece.end {
            let request = piece.announce();
            self.count_announced();
            return Some(self.post(queue_pair, request.id, request.work, now));
        }
        let most = self.pacer.message_bytes(settings.message_bytes);
        let length = (piece.end - piece.posted).min(most);
        let (source, length) = self.sources.find(piece.posted, length);
        if !self.pacer.pass(queue_pair, length, now) {
            return None;
        }
        let place = settings.ring.place(piece.posted, length);
        // A piece that was split, by the pacer or because it lies in several places, is announced by a message of its own.
        let is_whole = piece.posted == piece.start && length == piece.end - piece.start;
        let announces = is_whole && settings.immediate;
        let immediate = announces.then(|| immediate(piece.start));
        piece.posted += length;
        let id = WRITE | if announces { piece.end } else { 0 };
        (piece.announced, piece.told) = (announces, announces || piece.told);
        let ring = Source {
            region: settings.region,
            offset: place.offset,
        };
        let Source { region, offset } = source.unwrap_or(ring);
        let work = Work::Write {
            region,
            span: Span::new(offset, place.length),
            to: Remote {
                address: settings.remote.address + place.offset as u64,
                ..settings.remote
            },
            immediate,
        };
        if announces {
            self.count_announced();
        }
        Some(self.post(queue_pair, id, work, now))
    }

    /// Sends a piece in its announcement. The pacer holds it back as it does WRITEs; where pieces are fetched it is for the
    /// receiver to pace them, and these are too short for that.
    fn next_inline(&mut self, number: usize, queue_pair: usize, now: Duration) -> Option<Post> {
        let Piece { start, end, .. } = self.pieces[number];
        let is_paced = !self.settings.is_fetched;
        if is_paced && !self.pacer.pass(queue_pair, end - start, now) {
            return None;
        }
        let piece = &mut self.pieces[number];
        (piece.posted, piece.announced, piece.told) = (end, true, true);
        self.count_announced();
        let payload = self.settings.ring.place(start, end - start);
        let message = Message::Carried {
            start,
            length: payload.length,
        };
        let id = end | if is_paced { WRITE } else { 0 };
        let post = self.post(queue_pair, id, Work::Send(message.encode()), now);
        Some(Post {
            payload: Some(payload),
            ..post
        })
    }

    /// When [`Sender::next`] should be asked again, if it is the pacer that holds messages back: `now` or later.
    pub(crate) fn next_at(&self, now: Duration) -> Option<Duration> {
        let (number, _) = self.next_piece()?;
        let piece = &self.pieces[number];
        let most = self.pacer.message_bytes(self.settings.message_bytes);
        let length = (piece.end - piece.posted).min(most);
        let (_, length) = self.sources.find(piece.posted, length);
        (length > 0).then(|| self.pacer.ready_at(length, now))
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

    /// Somebody looks after it; `repeats` is [`crate::provider::Endpoint::repeats`].
    pub(crate) fn wake(&mut self, now: Duration, repeats: impl FnOnce() -> Option<u64>) {
        self.pacer.wake(now, repeats);
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

    /// Since when requests are waiting on a queue pair, without a moment in between.
    pub(crate) fn busy_since(&self, queue_pair: usize) -> Option<Duration> {
        let QueuePair { pending, busy, .. } = self.queue_pairs[queue_pair];
        (pending > 0).then_some(busy)
    }

    /// All before this place of the stream was consumed by the peer.
    pub(crate) fn credited_bytes(&self) -> u64 {
        self.credited
    }

    /// Bytes that the peer has not consumed, of all that may go.
    pub(crate) fn under_way(&self) -> u64 {
        self.cut - self.credited
    }

    /// The longest message, as it goes at present.
    pub(crate) fn message_bytes(&self) -> u64 {
        self.pacer.message_bytes(self.settings.message_bytes)
    }

    /// When a queue pair on which nothing completes is given up, if it is.
    pub(crate) fn stall(&self) -> Option<Duration> {
        self.settings.stall
    }

    /// Whether requests are waiting on a queue pair, and none has completed for too long.
    pub(crate) fn has_stalled(&self, queue_pair: usize, now: Duration) -> bool {
        self.stalls_at(queue_pair).is_some_and(|at| at <= now)
    }

    /// When one of the queue pairs will have stalled, if nothing completes until then. Where nobody is told of what
    /// completes, it is looked at in between.
    pub(crate) fn stall_at(&self, now: Duration) -> Option<Duration> {
        let at = (0..self.queue_pairs.len())
            .filter_map(|queue_pair| self.stalls_at(queue_pair))
            .min()?;
        let look_at = self.settings.stall.map(|stall| now + stall / 4);
        let look_at = look_at.filter(|_| !self.awaits_completions());
        Some(look_at.map_or(at, |look_at| at.min(look_at)))
    }

    /// Whether something waits until requests complete, and not only until the peer says something.
    pub(crate) fn awaits_completions(&self) -> bool {
        let is_full =
            |queue_pair: &QueuePair| !queue_pair.lost && queue_pair.pending >= self.settings.depth;
        let is_ending = self.is_posted() && matches!(self.end, End::Told { .. });
        is_ending || self.held > 0 || self.pacer.learns() || self.queue_pairs.iter().any(is_full)
    }

    fn stalls_at(&self, queue_pair: usize) -> Option<Duration> {
        let QueuePair {
            pending, progress, ..
        } = self.queue_pairs[queue_pair];
        let stall = self.settings.stall.filter(|_| pending > 0);
        let stalls_at = stall.map(|stall| progress.saturating_add(stall));
        let overdue_at = self.pacer.overdue_at(queue_pair);
        stalls_at.into_iter().chain(overdue_at).min()
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

    /// A queue pair is no more: what went over it and was not consumed goes again, over others, after the peer
    /// was told on each of them to throw that one away. `false` if there is no other.
    pub(crate) fn lost(&mut self, queue_pair: usize) -> bool {
        self.pacer.lost(queue_pair);
        if self.first_living() == Some(queue_pair) {
            // The peer hears of it before anything that is sent from here on.
            self.repeats.clear();
        }
        let lost = &mut self.queue_pairs[queue_pair];
        (lost.pending, lost.lost) = (0, true);
        let on_it = |piece: &&mut Piece| piece.queue_pair == Some(queue_pair);
        for piece in self.pieces.iter_mut().filter(on_it) {
            // Pieces arrive whole: one that was consumed in part is there, and need not go again.
            if piece.start < self.credited {
                (piece.announced, piece.held) = (true, false);
            } else {
                piece.queue_pair = None;
                piece.announced = false;
                if !self.settings.is_fetched {
                    piece.posted = piece.start;
                    piece.again = piece.told;
                    piece.held = piece.told || self.sources.any_within(piece.start, piece.end);
                }
            }
        }
        self.held = self.pieces.iter().filter(|piece| piece.held).count();
        self.announced = 0;
        self.count_announced();
        self.retire();
        if self.end == (End::Told { queue_pair }) {
            self.end = End::Wanted;
        }
        self.abandoned.retain(|&(on, _)| on != queue_pair);
        let living = (0..self.queue_pairs.len()).filter(|&other| !self.queue_pairs[other].lost);
        self.abandoned.extend(living.map(|on| (on, queue_pair)));
        self.queue_pairs.iter().any(|queue_pair| !queue_pair.lost)
    }

    /// A queue pair that was lost lives again, and nothing of the lost one will be delivered at either end.
    pub(crate) fn restored(&mut self, queue_pair: usize) {
        let restored = &mut self.queue_pairs[queue_pair];
        (restored.pending, restored.lost) = (0, false);
        restored.life = restored.life.saturating_add(1);
        self.abandoned.retain(|&(_, lost)| lost != queue_pair);
        // Nobody has said on this one which others are lost.
        let lost = (0..self.queue_pairs.len()).filter(|&other| self.queue_pairs[other].lost);
        self.abandoned.extend(lost.map(|lost| (queue_pair, lost)));
    }

    /// How often a queue pair was restored; `None` if there is none of this number.
    pub(crate) fn life(&self, queue_pair: usize) -> Option<u32> {
        Some(self.queue_pairs.get(queue_pair)?.life)
    }

    /// The memory of nothing before this place of the stream is needed any more. What is written for the second time
    /// is, though the peer has it: later bytes in its place would reach the peer instead.
    pub(crate) fn needed_from(&self) -> u64 {
        if self.held == 0 {
            return self.credited;
        }
        let in_use = |piece: &&Piece| piece.held && piece.start < self.credited;
        let first = self.pieces.iter().find(in_use);
        first.map_or(self.credited, |piece| piece.start)
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

    /// Cuts what is there into pieces. A piece ends where its share of the ring does, so that all have the same
    /// size while data flows, and earlier only where something is flushed.
    fn cut_pieces(&mut self) {
        let piece_bytes = self.settings.piece_bytes;
        while self.cut < self.filled && self.pieces.len() < self.settings.max_pieces {
            let whole = (piece_bytes - self.cut % self.settings.ring.bytes % piece_bytes)
                .min(self.settings.ring.contiguous(self.cut));
            let there = self.filled - self.cut;
            if there < whole && self.flush < self.filled {
                return;
            }
            let end = self.cut + whole.min(there);
            let held = self.sources.any_within(self.cut, end);
            self.held += usize::from(held);
            self.pieces.push_back(Piece {
                start: self.cut,
                end,
                queue_pair: None,
                posted: if self.settings.is_fetched {
                    end
                } else {
                    self.cut
                },
                announced: false,
                told: false,
                held,
                again: false,
            });
            self.cut = end;
        }
    }

    /// The first piece of which something can be posted, and the queue pair for it: its own, or the next in turn
    /// with room. Few have to be looked at, because those before it fill their queue pairs.
    fn next_piece(&self) -> Option<(usize, usize)> {
        let count = self.queue_pairs.len();
        let has_room = |number: &usize| self.has_room(*number);
        let mut free = (0..count)
            .map(|step| (self.next + step) % count)
            .filter(has_room)
            .peekable();
        for number in self.announced..self.pieces.len() {
            if self.pieces[number].announced {
                continue;
            }
            let own = self.pieces[number].queue_pair;
            let queue_pair = match own.or_else(|| self.bound_to(self.pieces[number])) {
                Some(own) => Some(own).filter(has_room),
                // Without room for this there is none for any other.
                None => Some(*free.peek()?),
            };
            if let Some(queue_pair) = queue_pair {
                return Some((number, queue_pair));
            }
        }
        None
    }

    /// The only queue pair that a piece may go over, if there is such.
    fn bound_to(&self, piece: Piece) -> Option<usize> {
        let (from, to) = self.settings.ring.range(piece.start, piece.end);
        let meets = |repeat: &Repeat| repeat.from < to && from < repeat.to;
        let is_bound = piece.again || self.repeats.iter().any(meets);
        (self.settings.completes_early && is_bound)
            .then(|| self.first_living())
            .flatten()
    }

    /// The peer has consumed a piece, and so has all that was sent before over the same queue pair.
    fn forget_repeats(&mut self, piece: Piece) {
        if !piece.again && !self.repeats.is_empty() && piece.queue_pair == self.first_living() {
            self.repeats.retain(|repeat| piece.start < repeat.before);
        }
    }

    fn first_living(&self) -> Option<usize> {
        self.queue_pairs
            .iter()
            .position(|queue_pair| !queue_pair.lost)
    }

    /// Tells the end, when all before it was posted.
    fn next_end(&mut self, now: Duration) -> Option<Post> {
        if self.end != End::Wanted || self.cut < self.filled {
            return None;
        }
        let queue_pair = self.reserve(now)?;
        self.end = End::Told { queue_pair };
        let message = Message::End { at: self.filled };
        let work = Work::Send(message.encode());
        Some(Post {
            queue_pair,
            request: Request { id: 0, work },
            payload: None,
        })
    }

    fn post(&mut self, queue_pair: usize, id: u64, work: Work, now: Duration) -> Post {
        self.queue_pairs[queue_pair].count(now);
        Post {
            queue_pair,
            request: Request { id, work },
            payload: None,
        }
    }
}
