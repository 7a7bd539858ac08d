//! The sending end of a stream: the filled, the sent and the consumed part of its ring.

mod credit;
mod load;
mod moving;
mod posting;
mod recovery;
mod room;
mod waiting;

use std::collections::VecDeque;
use std::time::Duration;

use self::load::QueuePair;
pub(crate) use self::moving::{Destination, OwnRing, Shape};
use self::moving::{Left, Moving, Notice};
use super::message::Message;
use super::ring::{Ring, Rings};
use super::sources::{Source, Sources};
use crate::pacing::Pacers;
use crate::provider::{Endpoint, RemoteRing, Request, Work};

/// The parameters of a sender.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SenderSettings {
    /// The layout of the first rings of both ends.
    pub(crate) ring: Ring,
    /// Our ring, by the provider's number.
    pub(crate) region: usize,
    /// The peer's ring.
    pub(crate) remote: RemoteRing,
    pub(crate) queue_pairs: usize,
    /// Requests that may be outstanding on one queue pair.
    pub(crate) depth: usize,
    /// The largest WRITE in bytes.
    pub(crate) message_bytes: u64,
    /// The longest piece in bytes.
    pub(crate) piece_bytes: u64,
    /// Pieces that the peer accepts beyond the consumed ones.
    pub(crate) max_pieces: usize,
    /// The peer fetches announced pieces, and this end does not write (`mode=get`).
    pub(crate) is_fetched: bool,
    /// Pieces of up to this many bytes travel inside the message that announces them; 0 for none.
    pub(crate) inline_bytes: u64,
    /// A piece that fits into one WRITE is announced by immediate data.
    pub(crate) immediate: bool,
    /// Requests complete before their data has arrived (iWARP).
    pub(crate) completes_early: bool,
    /// A queue pair is given up after this time without a completion. `None` for a provider whose
    /// requests may wait.
    pub(crate) stall: Option<Duration>,
}

/// Marks WRITEs among request identifiers. The other bits are the end of the piece that the request
/// announces, or 0. No stream is long enough for its positions to need this bit.
const WRITE: u64 = 1 << 62;

/// The sending end of a stream.
#[derive(Debug)]
pub(crate) struct Sender {
    settings: SenderSettings,
    pacers: Pacers,
    /// Our rings, by the provider's numbers of their regions.
    own: Rings<usize>,
    /// The peer's rings.
    theirs: Rings<RemoteRing>,
    /// The stream is in two rings.
    moving: Option<Moving>,
    /// The last move that is complete.
    left: Option<Left>,
    /// Everything before this position is in our ring.
    filled: u64,
    /// Places for so many bytes after the filled part were given away, and are being filled.
    promised: u64,
    /// Everything before this position was cut into pieces.
    cut: u64,
    /// Positions that hold no bytes and were not cut: start and end, in order.
    padding: VecDeque<(u64, u64)>,
    /// The peer has consumed everything before this position.
    credited: u64,
    /// Up to this position, pieces may be shorter than the maximum.
    flush: u64,
    end: End,
    /// Pieces that the peer has not consumed, in order.
    pieces: VecDeque<Piece>,
    /// How many of them, from the front, were announced.
    announced: usize,
    /// How many of them, from the front, the peer may have: they were announced at least once.
    announced_once: usize,
    /// How many of them are held, anywhere in the queue.
    held: usize,
    /// Data that is sent from memory outside our ring.
    sources: Sources,
    queue_pairs: Vec<QueuePair>,
    /// Pieces that were sent a second time, where requests complete before their data has arrived.
    repeats: Vec<Repeat>,
    /// Notices to send before other messages, with the queue pair of each.
    notices: VecDeque<(usize, Notice)>,
    /// The queue pair to try first among those that are equally good.
    next: usize,
    /// Completed requests.
    completed: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Open,
    /// The stream ends with the filled part; that was not announced yet.
    Wanted,
    Announced {
        queue_pair: usize,
    },
}

/// A part of the stream that is sent over one queue pair.
#[derive(Debug, Clone, Copy)]
struct Piece {
    start: u64,
    /// The positions from here to the end hold no bytes; none unless the piece is padded.
    bytes_end: u64,
    end: u64,
    /// `None` until a queue pair has room, and again after that queue pair is lost.
    queue_pair: Option<usize>,
    /// Everything before this position was posted.
    posted: u64,
    /// The announcement was posted on this queue pair.
    announced: bool,
    /// The announcement was posted on this queue pair or a lost one: the peer may have the piece.
    announced_once: bool,
    /// Its memory is needed until its requests complete. The data may still be in flight although
    /// the peer has consumed it already, because it was sent over two queue pairs, or the memory is
    /// outside our ring and will be released.
    held: bool,
    /// It is sent for the second time, and the first copy may have arrived.
    again: bool,
}

/// A piece that was sent a second time over the first queue pair that works. On iWARP its arrival
/// is unknown. Data that is written to its place over another queue pair could arrive first and be
/// overwritten, so the next data for this place uses the same queue pair.
#[derive(Debug, Clone, Copy)]
struct Repeat {
    /// The place in the ring with this base.
    base: u64,
    from: u64,
    to: u64,
    /// It has arrived as soon as any later request on the same queue pair has.
    before: u64,
}

impl Piece {
    /// Whether positions without bytes belong to it. Then its bytes, if it has some, travel inside the message that announces it.
    fn is_padded(&self) -> bool {
        self.bytes_end < self.end
    }

    /// The request that announces this piece to the peer.
    fn announce(&mut self) -> Request {
        (self.announced, self.announced_once) = (true, true);
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

/// The next request to post.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Post {
    pub(crate) queue_pair: usize,
    pub(crate) request: Request,
}

/// How the peer violated the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SenderError {
    #[error("the peer claims to have consumed {claimed} bytes, and {sent} were sent")]
    Credit { claimed: u64, sent: u64 },
}

impl Sender {
    pub(crate) fn new(settings: SenderSettings, pacers: impl Into<Pacers>) -> Self {
        Self {
            settings,
            pacers: pacers.into(),
            own: Rings::new(settings.ring, settings.region),
            theirs: Rings::new(settings.ring, settings.remote),
            moving: None,
            left: None,
            filled: 0,
            promised: 0,
            cut: 0,
            padding: VecDeque::new(),
            credited: 0,
            flush: 0,
            end: End::Open,
            pieces: VecDeque::new(),
            announced: 0,
            announced_once: 0,
            held: 0,
            sources: Sources::default(),
            repeats: Vec::new(),
            queue_pairs: vec![QueuePair::new(&settings); settings.queue_pairs],
            notices: VecDeque::new(),
            next: 0,
            completed: 0,
        }
    }

    /// The first `count` bytes of [`Sender::room`] are filled.
    pub(crate) fn fill(&mut self, count: usize) {
        self.filled += count as u64;
        self.promised = self.promised.saturating_sub(count as u64);
    }

    /// The next `count` bytes, at most the room, are in other memory and stay there until they are
    /// released.
    pub(crate) fn fill_from(&mut self, source: Source, count: usize) {
        let start = self.filled;
        self.filled += count as u64;
        self.sources.forget(self.needed_from());
        self.sources.add(start, self.filled, source);
    }

    /// How much of the stream the peer has taken.
    pub(crate) fn taken(&self) -> u64 {
        self.credited
    }

    /// The length of the stream so far.
    pub(crate) fn filled(&self) -> u64 {
        self.filled
    }

    /// Sends the filled part without waiting for more.
    pub(crate) fn flush(&mut self) {
        self.flush = self.filled;
    }

    /// Ends the stream with the filled part.
    pub(crate) fn finish(&mut self) {
        self.flush();
        if self.end == End::Open {
            self.end = End::Wanted;
        }
    }

    /// Whether all pieces were posted, with their announcements.
    pub(crate) fn is_posted(&self) -> bool {
        self.cut >= self.flush && self.end != End::Wanted && self.announced == self.pieces.len()
    }

    /// Whether the peer must still fetch something.
    pub(crate) fn has_unfetched(&self) -> bool {
        self.settings.is_fetched && !self.pieces.is_empty()
    }

    /// A number that changes whenever part of the stream was sent or consumed.
    pub(crate) fn progress(&self) -> u64 {
        self.completed + self.credited
    }

    /// Whether every request has completed.
    pub(crate) fn is_idle(&self) -> bool {
        self.queue_pairs
            .iter()
            .all(|queue_pair| queue_pair.pending() == 0)
    }

    /// A request has completed, and with it all earlier ones of the queue pair.
    pub(crate) fn completed(&mut self, queue_pair: usize, id: u64, now: Duration) {
        let on = &mut self.queue_pairs[queue_pair];
        if on.lost {
            // The completion was read together with the notice of the loss. Its piece is already being sent again, and needed until
            // that has completed.
            return;
        }
        on.load.completed(now);
        on.progress = now;
        self.completed += 1;
        if id & WRITE != 0 {
            self.pacers.completed(queue_pair, now);
        }
        if self.held == 0 {
            return;
        }
        // The identifier of an announcement is the end of its piece.
        let end = id & !WRITE;
        let ended = |piece: &&mut Piece| piece.held && piece.end == end;
        if let Some(piece) = self.pieces.iter_mut().find(ended) {
            piece.held = false;
            self.held -= 1;
            if piece.again && self.settings.completes_early {
                let (ring, _) = self.theirs.at(piece.start);
                let from = ring.offset(piece.start);
                self.repeats.push(Repeat {
                    base: ring.base(),
                    from,
                    to: from + (piece.end - piece.start),
                    before: self.cut,
                });
            }
            self.retire();
        }
    }

    /// Updates the pacers. `endpoint` reads the counters of the devices, and sets their limits.
    pub(crate) fn wake(&mut self, now: Duration, endpoint: &mut dyn Endpoint) {
        self.pacers.wake(now, endpoint);
    }

    /// The paced rate in bytes per second; `None` if messages are not paced.
    pub(crate) fn rate(&self) -> Option<u64> {
        self.pacers.rate()
    }

    /// Finds a queue pair with room for a message that the caller posts, and counts it.
    pub(crate) fn reserve(&mut self, now: Duration) -> Option<usize> {
        let queue_pair = self.least_cost(0, 0, |number| self.has_room(number))?;
        self.count(queue_pair, 0, now);
        Some(queue_pair)
    }

    /// Whether a queue pair is connected and has room for another request.
    pub(crate) fn has_room(&self, queue_pair: usize) -> bool {
        let queue_pair = &self.queue_pairs[queue_pair];
        !queue_pair.lost && queue_pair.pending() < self.settings.depth
    }

    /// Counts a request that the caller posts on a queue pair with room.
    pub(crate) fn count(&mut self, queue_pair: usize, bytes: u64, now: Duration) {
        self.queue_pairs[queue_pair].count(bytes, now);
    }

    /// Bytes that the device of a rail has to deliver, and bytes that were delivered. In `mode=get` the
    /// peer's devices deliver, each its part.
    pub(crate) fn delivery(&self, rail: usize) -> (u64, u64) {
        if self.settings.is_fetched {
            let rails = self.pacers.rails() as u64;
            ((self.cut - self.credited) / rails, self.credited / rails)
        } else {
            self.pacers.progress(rail)
        }
    }

    /// The longest message at present, in bytes.
    pub(crate) fn message_bytes(&self) -> u64 {
        self.pacers.longest_message(self.settings.message_bytes)
    }
}
