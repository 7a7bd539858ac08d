//! Two engines with a wire between them; a seed chooses order and losses.

mod script;

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroU64;
use std::time::Duration;

use proptest::prelude::*;

use super::receiver::ReceiverError;
use super::ring::place_of_immediate;
use super::sender::{Destination, Post, SenderError};
use super::*;
use crate::memory::Span;
use crate::pacing::{Pacer, Pacers, Path, Rate};
use crate::provider::{MAX_RAILS, RemoteRing, Request, Work, rail_of};

/// Further rings have greater numbers of regions than memory outside of rings.
const RINGS: usize = 1 << 20;

/// The keys of a further ring are greater by this number.
const RING_KEYS: u32 = 16;

const ADDRESS: u64 = 0x1000;

/// The queue pairs of a channel are on as many rails as possible.
fn rails(queue_pairs: usize) -> usize {
    queue_pairs.min(MAX_RAILS)
}

/// The key of the peer's ring on a rail.
fn key(rail: usize) -> u32 {
    u32::try_from(rail).unwrap() + 7
}

fn remote(queue_pairs: usize) -> RemoteRing {
    let keys: Vec<_> = (0..rails(queue_pairs)).map(key).collect();
    RemoteRing::over(keys.len(), ADDRESS, &keys).unwrap()
}

fn pacers(queue_pairs: usize) -> Pacers {
    let paths: Vec<_> = (0..rails(queue_pairs))
        .map(|_| Path::new(Rate::Any, 0))
        .collect();
    Pacers::new(&paths, 0)
}

/// A sender, a receiver, their rings, and queue pairs that advance step by step.
struct Fabric {
    sender: Sender,
    receiver: Receiver,
    /// The rings that are sent from, by region; `None` if they were left.
    sent: BTreeMap<usize, Option<Vec<u8>>>,
    /// The region of the present one.
    sends_from: usize,
    /// Memory outside the ring, each with its end in the stream; cleared when it is no longer
    /// needed.
    elsewhere: Vec<(Vec<u8>, u64)>,
    /// The rings that are received into, by number, which is also their region; `None` if they were left.
    received: Vec<Option<Vec<u8>>>,
    /// The ring that was offered last, and the one that the stream has moved to.
    offered: usize,
    moved_to: usize,
    queue_pairs: Vec<VecDeque<OnTheWay>>,
    /// Requests complete when they were sent, as over TCP, and not when they have arrived.
    completes_early: bool,
    lost: Vec<bool>,
    /// How many times each was restored.
    lives: Vec<u32>,
    delivered: Vec<u8>,
    now: Duration,
}

/// A request, with its payload if that is fixed already.
#[derive(Debug, Clone)]
struct OnTheWay {
    request: Request,
    bytes: Option<Vec<u8>>,
}

/// The properties of a provider.
#[derive(Debug, Clone, Copy, Default)]
struct Nature {
    /// See [`Fabric::completes_early`].
    completes_early: bool,
    /// WRITEs carry immediate data.
    immediate: bool,
    /// Pieces of up to this many bytes travel inside messages.
    inline_bytes: u64,
}

impl Fabric {
    fn new(ring: u64, piece: u64, message: u64, queue_pairs: usize, pieces: usize) -> Self {
        Self::with(ring, piece, message, queue_pairs, pieces, Nature::default())
    }

    fn with(
        ring: u64,
        piece: u64,
        message: u64,
        queue_pairs: usize,
        pieces: usize,
        nature: Nature,
    ) -> Self {
        let Nature {
            completes_early,
            immediate,
            inline_bytes,
        } = nature;
        let ring = Ring::new(NonZeroU64::new(ring).unwrap());
        let settings = SenderSettings {
            ring,
            region: 0,
            remote: remote(queue_pairs),
            queue_pairs,
            depth: 5,
            message_bytes: message,
            piece_bytes: piece,
            max_pieces: pieces,
            is_fetched: false,
            inline_bytes,
            immediate,
            completes_early,
            stall: None,
        };
        let bytes = usize::try_from(ring.bytes()).unwrap();
        let mut receiver = Receiver::new(ring, pieces);
        receiver.take_immediates();
        receiver.take_inline(inline_bytes);
        Self {
            sender: Sender::new(settings, pacers(queue_pairs)),
            receiver,
            sent: BTreeMap::from([(0, Some(vec![0; bytes]))]),
            sends_from: 0,
            elsewhere: Vec::new(),
            received: vec![Some(vec![0; bytes])],
            offered: 0,
            moved_to: 0,
            queue_pairs: vec![VecDeque::new(); queue_pairs],
            completes_early,
            lost: vec![false; queue_pairs],
            lives: vec![0; queue_pairs],
            delivered: Vec::new(),
            now: Duration::ZERO,
        }
    }

    /// Fills the sender's ring from `bytes` as far as there is room; returns the count.
    fn fill(&mut self, bytes: &[u8]) -> usize {
        let room = self.sender.room();
        let count = room.length.min(bytes.len());
        let ring = self.sent.get_mut(&self.sends_from).unwrap();
        let ring = ring.as_mut().expect("the present ring is there");
        ring[room.offset..room.offset + count].copy_from_slice(&bytes[..count]);
        self.sender.fill(count);
        count
    }

    /// Sends the next of `bytes`, as far as there is room, from memory outside the ring; returns
    /// the count.
    fn fill_from(&mut self, bytes: &[u8]) -> usize {
        let count = self.sender.room().length.min(bytes.len());
        self.elsewhere.push((bytes[..count].to_vec(), 0));
        let source = Source {
            region: self.elsewhere.len(),
            offset: 0,
        };
        self.sender.fill_from(source, count);
        self.elsewhere[source.region - 1].1 = self.sender.filled();
        count
    }

    /// The receiver offers another ring, and the sender moves to it, with a ring of its own of the same
    /// length or not, unless the stream is still moving.
    fn change(&mut self, ring: u64, has_own: bool) {
        let bytes = NonZeroU64::new(ring).unwrap();
        if self.offered != self.moved_to || self.receiver.is_moving() {
            return;
        }
        if !self.sender.can_move(bytes) {
            return;
        }
        self.offered += 1;
        let length = usize::try_from(ring).unwrap();
        self.received.push(Some(vec![0; length]));
        let own = has_own.then_some((RINGS + self.offered, bytes));
        if has_own {
            self.sends_from = RINGS + self.offered;
            self.sent.insert(self.sends_from, Some(vec![0; length]));
        }
        let number = u32::try_from(self.offered).unwrap();
        let keys = (0..rails(self.queue_pairs.len())).map(|rail| key(rail) + number * RING_KEYS);
        let keys: Vec<u32> = keys.collect();
        let remote = RemoteRing::over(keys.len(), ADDRESS, &keys).unwrap();
        let to = Destination {
            number: u32::try_from(self.offered).unwrap(),
            theirs: (remote, bytes),
            own,
        };
        let window = self.sender.ring_length().get().min(ring);
        let shape = Shape {
            message_bytes: 1 + window / 5,
            piece_bytes: 1 + window / 3,
            immediate: self.offered.is_multiple_of(2),
        };
        self.sender.move_to(to, shape);
    }

    /// Clears memory that is no longer needed.
    fn take_away(&mut self) {
        let needed_from = self.sender.needed_from();
        for (bytes, end) in &mut self.elsewhere {
            if *end <= needed_from {
                bytes.clear();
            }
        }
    }

    fn post(&mut self) {
        if let Some(Some(left)) = self.sender.leave() {
            self.sent.insert(left, None);
        }
        while let Some(post) = self.sender.next(self.now) {
            assert!(
                !self.lost[post.queue_pair],
                "a lost queue pair takes nothing"
            );
            let Post {
                queue_pair,
                request,
            } = post;
            let bytes = self.completes_early.then(|| self.source(request)).flatten();
            self.queue_pairs[queue_pair].push_back(OnTheWay { request, bytes });
            if self.completes_early {
                self.sender.completed(queue_pair, request.id, self.now);
            } else {
                assert!(self.queue_pairs[queue_pair].len() <= 5, "the depth holds");
            }
        }
    }

    /// The payload of a request.
    fn source(&self, request: Request) -> Option<Vec<u8>> {
        let (Work::Write { region, span, .. } | Work::Carry { region, span, .. }) = request.work
        else {
            return None;
        };
        let from = span.offset..span.offset + span.length;
        let bytes = match self.sent.get(&region) {
            None => self.elsewhere[region - 1].0.get(from),
            Some(ring) => ring.as_ref().and_then(|ring| ring.get(from)),
        };
        bytes.map(<[u8]>::to_vec)
    }

    /// Carries out the first request of a queue pair.
    fn step(&mut self, queue_pair: usize) {
        let Some(OnTheWay { request, bytes }) = self.queue_pairs[queue_pair].pop_front() else {
            return;
        };
        match request.work {
            Work::Write {
                span,
                to,
                immediate,
                ..
            } => {
                let rail = rail_of(queue_pair, rails(self.queue_pairs.len()));
                let ring = (to.key - key(0)) / RING_KEYS;
                assert_eq!(
                    to.key,
                    key(rail) + ring * RING_KEYS,
                    "the key of the queue pair's adapter"
                );
                let place = usize::try_from(to.address - ADDRESS).unwrap();
                match bytes.or_else(|| self.source(request)) {
                    Some(bytes) => {
                        let ring = self.received[ring as usize].as_mut();
                        let ring = ring.expect("no WRITE comes after its ring was left");
                        ring[place..][..span.length].copy_from_slice(&bytes);
                    }
                    // Requests of a lost queue pair have no effect.
                    None => assert!(self.lost[queue_pair], "memory is needed until it has gone"),
                }
                if let Some(immediate) = immediate {
                    let length = span.length as u64;
                    self.receiver.written(immediate, length).unwrap();
                }
                self.complete(queue_pair, request.id);
            }
            Work::Send(message) | Work::Carry { message, .. } => {
                // A repeated piece whose place holds later data, or is gone, was consumed. The receiver ignores it.
                let payload = bytes.or_else(|| self.source(request));
                let payload = payload.unwrap_or_else(|| match request.work {
                    Work::Carry { span, .. } => vec![0xdd; span.length],
                    _ => Vec::new(),
                });
                let message = [message.as_bytes(), &payload].concat();
                match Message::decode(&message).unwrap() {
                    Message::Arrived { start, length } => {
                        self.receiver.arrived(start, u64::from(length)).unwrap();
                    }
                    Message::Carried { start, length } => {
                        let place = self.receiver.carried(start, length as u64).unwrap();
                        if let Some((region, place)) = place {
                            let ring = self.received[region].as_mut().unwrap();
                            ring[place.offset..][..length].copy_from_slice(&payload);
                        }
                    }
                    Message::Padded {
                        start,
                        padding,
                        length,
                    } => {
                        let place = self.receiver.padded(start, length as u64, padding.into());
                        if let Some((region, place)) = place.unwrap() {
                            let ring = self.received[region].as_mut().unwrap();
                            ring[place.offset..][..length].copy_from_slice(&payload);
                        }
                    }
                    Message::End { at } => self.receiver.ended(at).unwrap(),
                    Message::Abandon {
                        queue_pair,
                        generation,
                    } if generation == self.lives[queue_pair] => {
                        self.queue_pairs[queue_pair].clear();
                    }
                    Message::Abandon { .. } => {}
                    Message::Switch { number, at, window } => {
                        let number = usize::try_from(number).unwrap();
                        if number > self.moved_to {
                            self.moved_to = number;
                            let length = self.received[number].as_ref().unwrap().len();
                            let bytes = NonZeroU64::new(length as u64).unwrap();
                            self.receiver.switch(at, (bytes, number), window).unwrap();
                        }
                    }
                    Message::Left { number } => {
                        let number = usize::try_from(number).unwrap();
                        assert!(number <= self.moved_to, "the peer knows of the move");
                        let is_new = number == self.moved_to;
                        if is_new && self.receiver.is_moving() {
                            let left = self.receiver.leave().unwrap();
                            self.received[left] = None;
                        }
                    }
                    other => panic!("a sender says {other:?}"),
                }
                self.complete(queue_pair, request.id);
            }
            Work::Read { .. } => panic!("a sender does not read"),
        }
    }

    /// Requests of a lost queue pair do not complete, although the peer may have received some.
    fn complete(&mut self, queue_pair: usize, id: u64) {
        if !self.lost[queue_pair] && !self.completes_early {
            self.sender.completed(queue_pair, id, self.now);
        }
    }

    fn take(&mut self, most: usize) {
        let ready = self.receiver.ready().first(most);
        let range = ready.offset..ready.offset + ready.length;
        let ring = self.received[self.receiver.region()].as_mut().unwrap();
        self.delivered.extend_from_slice(&ring[range.clone()]);
        // The sender may overwrite consumed bytes at any time.
        ring[range].fill(0xee);
        self.receiver.consume(ready.length);
        if self.receiver.owes_credit()
            && let Message::Credit { consumed } = self.receiver.credit()
        {
            self.sender.credited(consumed).unwrap();
        }
    }

    fn lose(&mut self, queue_pair: usize) {
        // Over TCP, queue pairs are not restored.
        let is_last = self.lost.iter().filter(|&&lost| !lost).count() == 1;
        if !(self.lost[queue_pair] || is_last && self.completes_early) {
            self.lost[queue_pair] = true;
            self.sender.lost(queue_pair);
        }
    }

    /// Requests in flight on the lost queue pair are discarded.
    fn restore(&mut self, queue_pair: usize) {
        if self.lost[queue_pair] && !self.completes_early {
            self.lost[queue_pair] = false;
            self.lives[queue_pair] += 1;
            self.queue_pairs[queue_pair].clear();
            self.sender.restored(queue_pair);
        }
    }
}

#[derive(Debug, Clone)]
enum Event {
    Fill(usize),
    FillFrom(usize),
    /// Positions without bytes.
    Pad(usize),
    Flush,
    Step(usize),
    Take(usize),
    Lose(usize),
    Restore(usize),
    Change(u64, bool),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        4 => (0..300_usize).prop_map(Event::Fill),
        2 => (0..300_usize).prop_map(Event::FillFrom),
        2 => (0..60_usize).prop_map(Event::Pad),
        1 => Just(Event::Flush),
        8 => (0..3_usize).prop_map(Event::Step),
        3 => (0..200_usize).prop_map(Event::Take),
        1 => (0..3_usize).prop_map(Event::Lose),
        1 => (0..3_usize).prop_map(Event::Restore),
        1 => (16_u64..600, any::<bool>()).prop_map(|(ring, own)| Event::Change(ring, own)),
    ];
    proptest::collection::vec(event, 0..400)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// In any order, with any loss and any changes of rings, the stream arrives once, whole and in order. No
    /// place is written to before its bytes were taken, and none of a ring that was left.
    #[test]
    fn the_stream_arrives(
        events in events(),
        ring in 16_u64..300,
        piece in 1_u64..100,
        message in 1_u64..50,
        pieces in 1_usize..20,
        completes_early: bool,
        immediate: bool,
        inline_bytes in 0_u64..200,
    ) {
        let nature = Nature { completes_early, immediate, inline_bytes };
        let mut fabric = Fabric::with(ring, piece.min(ring), message, 3, pieces, nature);
        let stream: Vec<u8> = (0..20_000_u32).map(|n| (n % 251) as u8).collect();
        let mut filled = 0;
        for event in events {
            match event {
                Event::Fill(count) => filled += fabric.fill(&stream[filled..filled + count]),
                Event::FillFrom(count) => {
                    filled += fabric.fill_from(&stream[filled..filled + count]);
                }
                Event::Pad(count) => {
                    let room = fabric.sender.room().first(count);
                    fabric.sender.pad(room.length);
                }
                Event::Flush => fabric.sender.flush(),
                Event::Step(queue_pair) => fabric.step(queue_pair),
                Event::Take(count) => fabric.take(count),
                Event::Lose(queue_pair) => fabric.lose(queue_pair),
                Event::Restore(queue_pair) => fabric.restore(queue_pair),
                Event::Change(ring, has_own) => fabric.change(ring, has_own),
            }
            fabric.take_away();
            fabric.post();
        }
        fabric.sender.finish();
        fabric.restore(0);
        // Each round makes progress, so the number of rounds is bounded.
        for _ in 0..100_000 {
            if fabric.receiver.is_finished() {
                break;
            }
            fabric.post();
            for queue_pair in 0..3 {
                fabric.step(queue_pair);
            }
            fabric.take(usize::MAX);
            fabric.take_away();
        }
        prop_assert!(fabric.receiver.is_finished(), "it stalls: {:?}", fabric.sender);
        prop_assert!(fabric.delivered == stream[..filled]);
    }

    /// Any message of a peer is either applied or refused, without another effect.
    #[test]
    fn a_receiver_validates_every_message(
        messages in proptest::collection::vec((0_u64..200, 0_u64..120, 0..5_u8), 0..40),
    ) {
        let ring = Ring::new(NonZeroU64::new(100).unwrap());
        let mut receiver = Receiver::new(ring, 8);
        receiver.take_immediates();
        receiver.take_inline(50);
        for (start, length, kind) in messages {
            let _ = match kind {
                0 => receiver.ended(start),
                2 => receiver.carried(start, length).map(|_| ()),
                3 => receiver.padded(start, length / 2, length / 3).map(|_| ()),
                1 => receiver.written(immediate(start.wrapping_sub(50)), length),
                _ => receiver.arrived(start, length),
            };
            let ready = receiver.ready();
            prop_assert!(ready.offset + ready.length <= 100);
            receiver.consume(ready.length / 2);
            if receiver.owes_credit() {
                receiver.credit();
            }
        }
    }
}

/// Each loss takes the notice with it that was sent last.
#[test]
fn a_ring_is_not_left_before_the_peer_knows_of_the_next_one() {
    let mut fabric = Fabric::new(100, 50, 50, 1, 8);
    fabric.change(200, true);
    for _ in 0..4 {
        // The first notice is posted, then the rings can be left.
        fabric.post();
        fabric.post();
        fabric.lose(0);
        fabric.restore(0);
    }
    let stream = [7; 150];
    assert_eq!(fabric.fill(&stream), 150);
    fabric.sender.finish();
    for _ in 0..100 {
        fabric.post();
        fabric.step(0);
        fabric.take(usize::MAX);
    }
    assert!(fabric.receiver.is_finished());
    assert_eq!(fabric.delivered, stream);
    assert!(!fabric.receiver.is_moving());
}

#[test]
fn violations_are_named() {
    let ring = Ring::new(NonZeroU64::new(100).unwrap());
    let mut receiver = Receiver::new(ring, 2);
    assert_eq!(receiver.arrived(0, 0), Err(ReceiverError::Empty));
    let beyond = ReceiverError::BeyondCredit {
        end: 101,
        limit: 100,
    };
    assert_eq!(receiver.arrived(1, 100), Err(beyond));
    receiver.arrived(50, 10).unwrap();
    receiver.arrived(50, 10).unwrap();
    let overlap = ReceiverError::Overlap { start: 55, end: 56 };
    assert_eq!(receiver.arrived(55, 1), Err(overlap));
    receiver.arrived(70, 10).unwrap();
    assert_eq!(
        receiver.arrived(90, 10),
        Err(ReceiverError::TooManyPieces(2))
    );
    assert_eq!(receiver.ended(60), Err(ReceiverError::End { at: 60 }));
    assert_eq!(receiver.written(10, 10), Err(ReceiverError::Immediate));
    let inline = ReceiverError::Inline {
        length: 10,
        most: 0,
    };
    assert_eq!(receiver.carried(10, 10), Err(inline));
}

/// The head of a block travels with the announcement of the padding, and the block begins at a multiple.
#[test]
fn the_bytes_after_padding_begin_where_the_sender_wants_them() {
    let nature = Nature {
        inline_bytes: 20,
        ..Nature::default()
    };
    let mut fabric = Fabric::with(1024, 256, 256, 1, 8, nature);
    let stream: Vec<u8> = (0..217).collect();
    fabric.fill(&stream[..17]);
    fabric.sender.pad(64 - 17);
    fabric.fill(&stream[17..]);
    fabric.sender.flush();
    fabric.post();
    let requests = fabric.queue_pairs[0].iter().map(|one| one.request.work);
    let requests: Vec<Work> = requests.collect();
    assert!(matches!(requests[0], Work::Carry { span, .. } if span == Span::new(0, 17)));
    assert!(matches!(requests[1], Work::Write { span, .. } if span == Span::new(64, 192)));
    fabric.step(0);
    let stretch = fabric.receiver.ready_from(0);
    assert_eq!((stretch.span, stretch.is_whole), (Span::new(0, 17), true));
    fabric.step(0);
    fabric.step(0);
    // The bytes after the padding are seen before those before it were taken out.
    let stretch = fabric.receiver.ready_from(17);
    assert_eq!((stretch.position, stretch.span), (64, Span::new(64, 192)));
    fabric.take(17);
    assert_eq!(fabric.receiver.consumed(), 64);
    fabric.take(usize::MAX);
    assert_eq!(fabric.delivered, stream[..17 + 192]);
}

#[test]
fn a_peer_cannot_make_a_receiver_remember_more_padding_than_pieces() {
    let ring = Ring::new(NonZeroU64::new(1000).unwrap());
    let mut receiver = Receiver::new(ring, 3);
    assert_eq!(receiver.padded(0, 0, 0), Err(ReceiverError::Empty));
    let inline = ReceiverError::Inline { length: 1, most: 0 };
    assert_eq!(receiver.padded(0, 1, 5), Err(inline));
    // The first byte is not taken out, so nothing is passed.
    receiver.arrived(0, 1).unwrap();
    for start in [1, 2, 3] {
        receiver.padded(start, 0, 1).unwrap();
    }
    let refused = receiver.padded(4, 0, 1);
    assert_eq!(refused, Err(ReceiverError::TooManyPieces(3)));
    assert_eq!(receiver.ready(), Span::new(0, 1));
    receiver.consume(1);
    assert_eq!(receiver.consumed(), 4);
    // A repeated piece has no effect.
    assert_eq!(receiver.padded(2, 0, 1), Ok(None));
    assert_eq!(receiver.ready().length, 0);
}

#[test]
fn numbers_of_32_bits_name_places_of_long_streams() {
    let mark = 1_u64 << 32;
    for (start, least) in [
        (0, 0),
        (mark - 1, mark - 100),
        (mark, mark - 100),
        (7 * mark + 5, 7 * mark - (1 << 31)),
        (9 * mark - 1, 8 * mark),
    ] {
        assert_eq!(place_of_immediate(immediate(start), least), start);
    }
}

#[test]
fn credit_for_bytes_that_were_not_sent_is_refused() {
    let mut fabric = Fabric::new(100, 10, 10, 1, 4);
    fabric.fill(&[1; 30]);
    fabric.post();
    let refused = fabric.sender.credited(30);
    let excess = SenderError::Credit {
        claimed: 30,
        sent: 20,
    };
    // Depth 5: two pieces were announced; of the third only the WRITE was posted.
    assert_eq!(refused, Err(excess));
    fabric.sender.credited(20).unwrap();
    // A message that was overtaken on a quicker queue pair has no effect.
    fabric.sender.credited(10).unwrap();
    assert_eq!(fabric.sender.credited(30), refused);
}

#[test]
fn memory_outside_the_ring_is_needed_until_its_requests_complete() {
    let mut fabric = Fabric::new(100, 100, 10, 1, 4);
    fabric.fill(&[1; 5]);
    fabric.fill_from(&[2; 12]);
    fabric.sender.flush();
    let posts: Vec<Post> = std::iter::from_fn(|| fabric.sender.next(fabric.now)).collect();
    let writes = posts.iter().filter_map(|post| match post.request.work {
        Work::Write {
            region, span, to, ..
        } => Some((region, span, to.address - ADDRESS)),
        _ => None,
    });
    let expected = [
        (0, Span::new(0, 5), 0),
        (1, Span::new(0, 10), 5),
        (1, Span::new(10, 2), 15),
    ];
    assert_eq!(writes.collect::<Vec<_>>(), expected);
    fabric.sender.credited(17).unwrap();
    assert_eq!(fabric.sender.needed_from(), 0);
    for post in posts {
        fabric.sender.completed(0, post.request.id, fabric.now);
    }
    assert_eq!(fabric.sender.needed_from(), 17);
}

#[test]
fn messages_leave_at_the_rate_of_the_path() {
    let mut fabric = Fabric::new(1000, 1000, 10, 1, 4);
    fabric.sender = {
        let pacer = Pacer::new(Path::new(Rate::Fixed(100), 10), 1);
        Sender::new(fabric_settings(&fabric), pacer)
    };
    fabric.fill(&[1; 30]);
    fabric.sender.flush();
    for round in 0..3 {
        let post = fabric.sender.next(fabric.now).expect("its time has come");
        assert!(matches!(post.request.work, Work::Write { .. }));
        if round < 2 {
            assert_eq!(fabric.sender.next(fabric.now), None);
            let at = fabric
                .sender
                .next_at(fabric.now)
                .expect("the pacer holds it back");
            assert_eq!(at, fabric.now + Duration::from_millis(100));
            fabric.now = at;
        }
    }
    assert_eq!(fabric.sender.next_at(fabric.now), None);
}

fn fabric_settings(fabric: &Fabric) -> SenderSettings {
    SenderSettings {
        ring: Ring::new(fabric.sender.ring_length()),
        region: 0,
        remote: remote(1),
        queue_pairs: 1,
        depth: 5,
        message_bytes: 10,
        piece_bytes: 1000,
        max_pieces: 4,
        is_fetched: false,
        inline_bytes: 0,
        immediate: false,
        completes_early: false,
        stall: Some(Duration::from_secs(3)),
    }
}
