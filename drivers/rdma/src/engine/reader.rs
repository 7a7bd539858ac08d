//! Fetches pieces (`mode=get`).
//!
//! The sender announces pieces in its ring. The receiver READs them to the same places of its own
//! ring; a piece has arrived when its READs have completed. Credit works as with a sender that
//! writes.

use std::collections::BTreeMap;
use std::time::Duration;

use super::ring::Ring;
use super::sender::Sender;
use crate::pacing::Pacer;
use crate::provider::{Remote, Request, Work};

/// The parameters of a reader.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReaderSettings {
    /// The layout of both rings.
    pub(crate) ring: Ring,
    /// Our ring, by the provider's number.
    pub(crate) region: usize,
    /// The sender's ring.
    pub(crate) remote: Remote,
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
    pacer: Pacer,
    /// Announced pieces that have not fully arrived, by start.
    pieces: BTreeMap<u64, Piece>,
    /// Outstanding READs of each queue pair.
    waiting: Vec<usize>,
    /// The queue pair to try next (round-robin).
    next: usize,
}

#[derive(Debug, Clone, Copy)]
struct Piece {
    end: u64,
    /// `None` until a queue pair has room, and again after that queue pair is lost.
    queue_pair: Option<usize>,
    /// READs were posted for everything before this position.
    asked: u64,
    /// Everything before this position has arrived: READs of one queue pair complete in order.
    here: u64,
}

impl Piece {
    /// The next READ of this piece. Its request identifier is the end of the range that it fetches.
    fn read(&mut self, settings: &ReaderSettings) -> Request {
        let length = self.next_bytes(settings);
        let span = settings.ring.place(self.asked, length);
        self.asked += length;
        Request {
            id: READ | self.asked,
            work: Work::Read {
                region: settings.region,
                span,
                from: Remote {
                    address: settings.remote.address + span.offset as u64,
                    ..settings.remote
                },
            },
        }
    }

    fn next_bytes(&self, settings: &ReaderSettings) -> u64 {
        (self.end - self.asked).min(settings.message_bytes)
    }
}

/// Marks READs among request identifiers. No stream is long enough for its positions to need this
/// bit.
const READ: u64 = 1 << 63;

impl Reader {
    pub(crate) fn new(settings: ReaderSettings, pacer: Pacer) -> Self {
        Self {
            settings,
            pacer,
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
            asked: start,
            here: start,
        });
    }

    /// Announced pieces that have not fully arrived.
    pub(crate) fn pieces(&self) -> usize {
        self.pieces.len()
    }

    /// The next READ and its queue pair, or `None` if there is nothing to fetch, no room, or the
    /// pacer holds READs back. The sender counts the READ, as it counts all requests.
    pub(crate) fn next(&mut self, sender: &mut Sender, now: Duration) -> Option<(usize, Request)> {
        let (start, queue_pair) = self.next_piece(sender)?;
        let piece = self.pieces.get_mut(&start)?;
        let bytes = piece.next_bytes(&self.settings);
        if !self.pacer.pass(queue_pair, bytes, now) {
            return None;
        }
        if piece.queue_pair.is_none() {
            piece.queue_pair = Some(queue_pair);
            self.next = queue_pair + 1;
        }
        self.waiting[queue_pair] += 1;
        sender.count(queue_pair, now);
        Some((queue_pair, piece.read(&self.settings)))
    }

    /// When to call [`Reader::next`] again if the pacer holds READs back: `now` or later.
    pub(crate) fn next_at(&self, sender: &Sender, now: Duration) -> Option<Duration> {
        let (start, _) = self.next_piece(sender)?;
        let bytes = self.pieces[&start].next_bytes(&self.settings);
        Some(self.pacer.ready_at(bytes, now))
    }

    /// A READ has completed. Returns the start and length of its piece if all of that has arrived
    /// now.
    pub(crate) fn completed(&mut self, queue_pair: usize, id: u64) -> Option<(u64, u64)> {
        let end = id & !READ;
        self.waiting[queue_pair] = self.waiting[queue_pair].saturating_sub(1);
        let (&start, piece) = self.pieces.range_mut(..end).next_back()?;
        if piece.queue_pair != Some(queue_pair) || end <= piece.here || end > piece.asked {
            return None;
        }
        piece.here = end;
        if end < piece.end {
            return None;
        }
        self.pieces.remove(&start);
        Some((start, end - start))
    }

    /// A queue pair was lost. What was requested on it is requested again on others.
    pub(crate) fn lost(&mut self, queue_pair: usize) {
        self.waiting[queue_pair] = 0;
        for piece in self.pieces.values_mut() {
            if piece.queue_pair == Some(queue_pair) {
                piece.queue_pair = None;
                piece.asked = piece.here;
            }
        }
    }

    /// The first piece with something left to request, and its queue pair: the one it has, or the
    /// next one with room. Few pieces are looked at, because earlier ones fill their queue pairs.
    fn next_piece(&self, sender: &Sender) -> Option<(u64, usize)> {
        let count = self.waiting.len();
        let has_room =
            |&number: &usize| self.waiting[number] < self.settings.depth && sender.has_room(number);
        let free = (0..count)
            .map(|step| (self.next + step) % count)
            .find(has_room)?;
        let unasked = self
            .pieces
            .iter()
            .filter(|(_, piece)| piece.asked < piece.end);
        unasked
            .filter_map(|(&start, piece)| {
                let queue_pair = piece.queue_pair.unwrap_or(free);
                has_room(&queue_pair).then_some((start, queue_pair))
            })
            .next()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::num::NonZeroU64;

    use proptest::prelude::*;

    use super::*;
    use crate::engine::{Message, Receiver, SenderSettings};
    use crate::pacing::{Path, Rate};

    const QUEUE_PAIRS: usize = 2;
    const RING: u64 = 240;
    const INLINE: u64 = 12;

    /// A sender whose pieces are fetched, and the end that fetches them.
    struct Ends {
        sender: Sender,
        receiver: Receiver,
        reader: Reader,
        /// Counts the requests of the fetching end.
        other: Sender,
        /// Announcements and READs in flight.
        announced: [VecDeque<Request>; QUEUE_PAIRS],
        asked: [VecDeque<Request>; QUEUE_PAIRS],
        lost: [bool; QUEUE_PAIRS],
        /// How many times each byte of the ring was fetched since it was consumed.
        fetched: Vec<u64>,
    }

    impl Ends {
        fn new() -> Self {
            let ring = Ring::new(NonZeroU64::new(RING).unwrap());
            let remote = Remote { address: 0, key: 0 };
            let settings = SenderSettings {
                ring,
                region: 0,
                remote,
                queue_pairs: QUEUE_PAIRS,
                depth: 4,
                message_bytes: 16,
                piece_bytes: 48,
                max_pieces: 20,
                is_fetched: true,
                inline_bytes: INLINE,
                immediate: true,
                completes_early: false,
                stall: None,
            };
            let reader = ReaderSettings {
                ring,
                region: 0,
                remote,
                queue_pairs: QUEUE_PAIRS,
                depth: 3,
                message_bytes: 16,
            };
            let mut receiver = Receiver::new(ring, 20);
            receiver.acknowledge_end();
            receiver.take_inline(INLINE);
            Self {
                sender: Sender::new(settings, Pacer::new(Path::new(Rate::Any, 0), 0)),
                receiver,
                reader: Reader::new(reader, Pacer::new(Path::new(Rate::Any, 0), 0)),
                other: Sender::new(settings, Pacer::new(Path::new(Rate::Any, 0), 0)),
                announced: Default::default(),
                asked: Default::default(),
                lost: [false; QUEUE_PAIRS],
                fetched: vec![0; usize::try_from(RING).unwrap()],
            }
        }

        fn post(&mut self) {
            while let Some(post) = self.sender.next(Duration::ZERO) {
                self.announced[post.queue_pair].push_back(post.request);
            }
            while let Some((queue_pair, request)) =
                self.reader.next(&mut self.other, Duration::ZERO)
            {
                assert!(!self.lost[queue_pair]);
                self.asked[queue_pair].push_back(request);
                assert!(self.asked[queue_pair].len() <= 3, "the depth holds");
            }
        }

        fn hear(&mut self, queue_pair: usize) {
            let Some(Request { id, work }) = self.announced[queue_pair].pop_front() else {
                return;
            };
            let message = match work {
                Work::Send(message) => message.as_bytes().to_vec(),
                Work::Carry { message, span, .. } => {
                    [message.as_bytes(), &vec![0; span.length]].concat()
                }
                Work::Write { .. } | Work::Read { .. } => panic!("nothing is written"),
            };
            match Message::decode(&message).unwrap() {
                Message::Arrived { start, length } => {
                    let pieces = self.reader.pieces();
                    let length = u64::from(length);
                    if self.receiver.wants(start, length, pieces).unwrap() {
                        self.reader.announced(start, length);
                    }
                }
                Message::Carried { start, length } => {
                    if let Some(place) = self.receiver.carried(start, length as u64).unwrap() {
                        for count in &mut self.fetched[place.offset..][..length] {
                            *count += 1;
                        }
                    }
                }
                Message::End { at } => self.receiver.ended(at).unwrap(),
                Message::Abandon { .. } => {}
                Message::Credit { .. } => panic!("a sender gives no credit"),
            }
            self.sender.completed(queue_pair, id, Duration::ZERO);
        }

        fn fetch(&mut self, queue_pair: usize) {
            let Some(Request { id, work }) = self.asked[queue_pair].pop_front() else {
                return;
            };
            let Work::Read { span, from, .. } = work else {
                panic!("a reader reads");
            };
            assert_eq!(from.address, span.offset as u64);
            for count in &mut self.fetched[span.offset..span.offset + span.length] {
                *count += 1;
            }
            assert!(Reader::is_read(id));
            self.other.completed(queue_pair, id, Duration::ZERO);
            if let Some((start, length)) = self.reader.completed(queue_pair, id) {
                self.receiver.arrived(start, length).unwrap();
            }
        }

        fn take(&mut self, most: usize) -> u64 {
            let ready = self.receiver.ready().first(most);
            for count in &mut self.fetched[ready.offset..ready.offset + ready.length] {
                assert_eq!(std::mem::take(count), 1, "each byte is fetched once");
            }
            self.receiver.consume(ready.length);
            if self.receiver.owes_credit()
                && let Message::Credit { consumed } = self.receiver.credit()
            {
                self.sender.credited(consumed).unwrap();
            }
            ready.length as u64
        }

        /// Loses a queue pair, or restores it.
        fn lose(&mut self, queue_pair: usize) {
            self.announced[queue_pair].clear();
            self.asked[queue_pair].clear();
            self.lost[queue_pair] = !self.lost[queue_pair];
            for sender in [&mut self.sender, &mut self.other] {
                if self.lost[queue_pair] {
                    sender.lost(queue_pair);
                } else {
                    sender.restored(queue_pair);
                }
            }
            if self.lost[queue_pair] {
                self.reader.lost(queue_pair);
                self.receiver.lost();
            }
        }
    }

    proptest! {
        /// In any order and with any loss, each byte is fetched once and the sender learns that it
        /// was consumed.
        #[test]
        fn pieces_are_fetched_once(
            events in proptest::collection::vec((0..6_u8, 0..QUEUE_PAIRS, 1..100_usize), 0..300),
        ) {
            let mut ends = Ends::new();
            let (mut filled, mut taken) = (0, 0);
            for (event, queue_pair, count) in events {
                match event {
                    0 => {
                        let room = ends.sender.room().first(count).length;
                        ends.sender.fill(room);
                        ends.sender.flush();
                        filled += room as u64;
                    }
                    1 | 2 => ends.hear(queue_pair),
                    3 => ends.fetch(queue_pair),
                    4 => taken += ends.take(count),
                    _ => ends.lose(queue_pair),
                }
                ends.post();
            }
            ends.sender.finish();
            for queue_pair in 0..QUEUE_PAIRS {
                if ends.lost[queue_pair] {
                    ends.lose(queue_pair);
                }
            }
            for _ in 0..10_000 {
                ends.post();
                for queue_pair in 0..QUEUE_PAIRS {
                    ends.hear(queue_pair);
                    ends.fetch(queue_pair);
                }
                taken += ends.take(usize::MAX);
            }
            prop_assert!(ends.receiver.is_finished(), "it stalls: {:?}", ends.reader);
            prop_assert_eq!(taken, filled);
            prop_assert!(!ends.sender.has_unfetched());
        }
    }
}
