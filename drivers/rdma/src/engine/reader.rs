//! Fetches pieces (`mode=get`).
//!
//! The sender announces pieces in its ring. The receiver READs them to the same places of its own
//! ring; a piece has arrived when its READs have completed. Credit works as with a sender that
//! writes.

use std::collections::BTreeMap;
use std::time::Duration;

use super::ring::Ring;
use super::sender::Sender;
use crate::pacing::Pacers;
use crate::provider::{RemoteRing, Request, Work};

/// The parameters of a reader.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReaderSettings {
    /// The layout of both rings.
    pub(crate) ring: Ring,
    /// Our ring, by the provider's number.
    pub(crate) region: usize,
    /// The sender's ring.
    pub(crate) remote: RemoteRing,
    pub(crate) queue_pairs: usize,
    /// READs that may be outstanding on one queue pair.
    pub(crate) depth: usize,
    /// The largest READ in bytes.
    pub(crate) message_bytes: u64,
}

/// Fetches pieces.
#[derive(Debug)]
pub(crate) struct Reader {
    settings: ReaderSettings,
    pacers: Pacers,
    /// Announced pieces that have not fully arrived, by start.
    pieces: BTreeMap<u64, Piece>,
    /// Outstanding READs of each queue pair.
    waiting: Vec<usize>,
    /// The queue pair to try first among those that are equally good.
    next: usize,
}

#[derive(Debug, Clone, Copy)]
struct Piece {
    end: u64,
    /// `None` until a queue pair has room, and again after that queue pair is lost.
    queue_pair: Option<usize>,
    /// READs were posted for everything before this position.
    requested: u64,
    /// Everything before this position has arrived: READs of one queue pair complete in order.
    here: u64,
}

impl Piece {
    /// The next READ of this piece. Its request identifier is the end of the range that it fetches.
    fn read(&mut self, settings: &ReaderSettings, queue_pair: usize) -> Request {
        let length = self.next_bytes(settings);
        let span = settings.ring.place(self.requested, length);
        self.requested += length;
        Request {
            id: READ | self.requested,
            work: Work::Read {
                region: settings.region,
                span,
                from: settings.remote.at(queue_pair, span.offset),
            },
        }
    }

    fn next_bytes(&self, settings: &ReaderSettings) -> u64 {
        (self.end - self.requested).min(settings.message_bytes)
    }
}

/// Marks READs among request identifiers. No stream is long enough for its positions to need this
/// bit.
const READ: u64 = 1 << 63;

impl Reader {
    pub(crate) fn new(settings: ReaderSettings, pacers: impl Into<Pacers>) -> Self {
        Self {
            settings,
            pacers: pacers.into(),
            pieces: BTreeMap::new(),
            waiting: vec![0; settings.queue_pairs],
            next: 0,
        }
    }

    /// Whether a request identifier is that of a READ.
    pub(crate) fn is_read(id: u64) -> bool {
        id & READ != 0
    }

    /// A piece is in the sender's ring. The caller has validated the range. A piece that is
    /// announced again, because its queue pair was lost, is fetched once.
    pub(crate) fn announced(&mut self, start: u64, length: u64) {
        self.pieces.entry(start).or_insert(Piece {
            end: start + length,
            queue_pair: None,
            requested: start,
            here: start,
        });
    }

    /// Announced pieces that have not fully arrived.
    pub(crate) fn pieces(&self) -> usize {
        self.pieces.len()
    }

    /// The next READ and its queue pair, or `None` if all announced pieces were requested, no queue pair
    /// has room, or the pacers hold READs back. The sender counts the READ, as it counts all requests.
    pub(crate) fn next(&mut self, sender: &mut Sender, now: Duration) -> Option<(usize, Request)> {
        let (start, queue_pair) = self.next_piece(sender)?;
        let piece = self.pieces.get_mut(&start)?;
        let bytes = piece.next_bytes(&self.settings);
        if !self.pacers.pass(queue_pair, bytes, now) {
            return None;
        }
        if piece.queue_pair.is_none() {
            piece.queue_pair = Some(queue_pair);
            self.next = queue_pair + 1;
        }
        self.waiting[queue_pair] += 1;
        sender.count(queue_pair, bytes, now);
        Some((queue_pair, piece.read(&self.settings, queue_pair)))
    }

    /// When to call [`Reader::next`] again if the pacers hold READs back: `now` or later.
    pub(crate) fn next_at(&self, sender: &Sender, now: Duration) -> Option<Duration> {
        let (start, queue_pair) = self.next_piece(sender)?;
        let bytes = self.pieces[&start].next_bytes(&self.settings);
        Some(self.pacers.ready_at(queue_pair, bytes, now))
    }

    /// See [`Pacers::spin_time`].
    pub(crate) fn spin_time(&self) -> Duration {
        self.pacers.spin_time(self.settings.message_bytes)
    }

    /// A READ has completed. Returns the start and length of its piece if all of that has arrived
    /// now.
    pub(crate) fn completed(&mut self, queue_pair: usize, id: u64) -> Option<(u64, u64)> {
        let end = id & !READ;
        self.waiting[queue_pair] = self.waiting[queue_pair].saturating_sub(1);
        let (&start, piece) = self.pieces.range_mut(..end).next_back()?;
        if piece.queue_pair != Some(queue_pair) || end <= piece.here || end > piece.requested {
            return None;
        }
        piece.here = end;
        if end < piece.end {
            return None;
        }
        self.pieces.remove(&start);
        Some((start, end - start))
    }

    /// A queue pair was lost. Its outstanding parts are requested again on others.
    pub(crate) fn lost(&mut self, queue_pair: usize) {
        self.waiting[queue_pair] = 0;
        for piece in self.pieces.values_mut() {
            if piece.queue_pair == Some(queue_pair) {
                piece.queue_pair = None;
                piece.requested = piece.here;
            }
        }
    }

    /// The first piece with something left to request, and its queue pair: the one it has, or the one
    /// that will deliver a message first. Few pieces are looked at, because earlier ones fill their queue pairs.
    fn next_piece(&self, sender: &Sender) -> Option<(u64, usize)> {
        let has_room =
            |number: usize| self.waiting[number] < self.settings.depth && sender.has_room(number);
        let free = sender.quickest(self.next, self.settings.message_bytes, |_| true, has_room)?;
        let unrequested = self
            .pieces
            .iter()
            .filter(|(_, piece)| piece.requested < piece.end);
        unrequested
            .filter_map(|(&start, piece)| {
                let queue_pair = piece.queue_pair.unwrap_or(free);
                has_room(queue_pair).then_some((start, queue_pair))
            })
            .next()
    }
}

#[cfg(test)]
mod tests;
