//! Fetches pieces (`mode=get`).
//!
//! The sender announces pieces in its ring. The receiver READs them to their places in its own
//! ring; a piece has arrived when its READs have completed. Credit works as with a sender that
//! writes. Where the stream moves to other rings, the places in both change.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::time::Duration;

use super::receiver::{Receiver, ReceiverError};
use super::ring::{Ring, Rings};
use super::sender::Sender;
use crate::pacing::Pacers;
use crate::provider::{RemoteRing, Request, Work};

/// The parameters of a reader.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReaderSettings {
    /// The layout of the sender's first ring.
    pub(crate) ring: Ring,
    /// That ring.
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
    /// The sender's rings.
    from: Rings<RemoteRing>,
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

/// A ring of the sender that a stream moves to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NextSource {
    /// From this position on the stream is there.
    pub(crate) at: u64,
    /// Its length in bytes.
    pub(crate) bytes: NonZeroU64,
    pub(crate) remote: RemoteRing,
}

/// Marks READs among request identifiers. No stream is long enough for its positions to need this
/// bit.
const READ: u64 = 1 << 63;

impl Reader {
    pub(crate) fn new(settings: ReaderSettings, pacers: impl Into<Pacers>) -> Self {
        Self {
            from: Rings::new(settings.ring, settings.remote),
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
    ///
    /// # Errors
    ///
    /// When it overlaps with another one.
    pub(crate) fn announced(&mut self, start: u64, length: u64) -> Result<(), ReceiverError> {
        let end = start + length;
        match self.pieces.range(..end).next_back() {
            Some((&other, piece)) if (other, piece.end) == (start, end) => return Ok(()),
            Some((_, piece)) if piece.end > start => {
                return Err(ReceiverError::Overlap { start, end });
            }
            _ => {}
        }
        let piece = Piece {
            end,
            queue_pair: None,
            requested: start,
            here: start,
        };
        self.pieces.insert(start, piece);
        Ok(())
    }

    /// Whether an announced piece that has not fully arrived reaches beyond a position.
    pub(crate) fn reaches_beyond(&self, at: u64) -> bool {
        let last = self.pieces.values().next_back();
        last.is_some_and(|piece| piece.end > at)
    }

    /// Announced pieces that have not fully arrived.
    pub(crate) fn pieces(&self) -> usize {
        self.pieces.len()
    }

    /// The next READ and its queue pair, or `None` if all announced pieces were requested, no queue pair
    /// has room, or the pacers hold READs back. The sender counts the READ, as it counts all requests.
    pub(crate) fn next(
        &mut self,
        sender: &mut Sender,
        receiver: &Receiver,
        now: Duration,
    ) -> Option<(usize, Request)> {
        let (start, queue_pair) = self.next_piece(sender)?;
        let length = self.next_bytes(&self.pieces[&start], receiver);
        if !self.pacers.pass(queue_pair, length, now) {
            return None;
        }
        let piece = self.pieces.get_mut(&start)?;
        if piece.queue_pair.is_none() {
            piece.queue_pair = Some(queue_pair);
            self.next = queue_pair + 1;
        }
        self.waiting[queue_pair] += 1;
        sender.count(queue_pair, length, now);
        let (remote, there) = self.from.place(piece.requested, length);
        let (region, span) = receiver.place(piece.requested, length);
        piece.requested += length;
        // The identifier is the end of the range that it fetches.
        let request = Request {
            id: READ | piece.requested,
            work: Work::Read {
                region,
                span,
                from: remote.at(queue_pair, there.offset),
            },
        };
        Some((queue_pair, request))
    }

    /// The length of the next READ of a piece: what is contiguous in both rings.
    fn next_bytes(&self, piece: &Piece, receiver: &Receiver) -> u64 {
        let from = piece.requested;
        let there = self.from.contiguous_in_one(from);
        let contiguous = there.min(receiver.contiguous(from));
        (piece.end - from)
            .min(self.settings.message_bytes)
            .min(contiguous)
    }

    /// When to call [`Reader::next`] again if the pacers hold READs back: `now` or later.
    pub(crate) fn next_at(
        &self,
        sender: &Sender,
        receiver: &Receiver,
        now: Duration,
    ) -> Option<Duration> {
        let (start, queue_pair) = self.next_piece(sender)?;
        let bytes = self.next_bytes(&self.pieces[&start], receiver);
        Some(self.pacers.ready_at(queue_pair, bytes, now))
    }

    /// The ring of the sender that the newest part of the stream is in.
    pub(crate) fn remote(&self) -> RemoteRing {
        self.from.at(u64::MAX).1
    }

    /// The stream moves. `source` is the sender's next ring, if that is another one; READs have up to so many bytes from now on.
    pub(crate) fn move_to(&mut self, source: Option<NextSource>, message_bytes: u64) {
        self.settings.message_bytes = message_bytes;
        if let Some(NextSource { at, bytes, remote }) = source {
            self.from.move_to(at, bytes, remote);
        }
    }

    /// The stream has left the earlier rings.
    pub(crate) fn leave(&mut self) {
        self.from.leave();
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
