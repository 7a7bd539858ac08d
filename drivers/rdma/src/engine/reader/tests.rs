//! A sender whose pieces are fetched in any order, with losses and changes of rings.

use std::collections::VecDeque;
use std::num::NonZeroU64;

use proptest::prelude::*;

use super::*;
use crate::engine::sender::{Destination, OwnRing};
use crate::engine::{Message, SenderSettings, Shape};
use crate::memory::Span;
use crate::pacing::{Pacer, Path, Rate};
use crate::provider::{Keys, Region};

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
    /// The rings that are sent from, by number, which is also their region and key; `None` if they were left.
    sent: Vec<Option<Vec<u8>>>,
    /// The rings that are received into, by number, which is also their region; `None` if they were left.
    received: Vec<Option<Vec<u8>>>,
    /// The ring that the stream has moved to, at the sender and at the receiver, and the sender's ring with it.
    moved: usize,
    moved_to: usize,
    source: Option<NextSource>,
    /// Announcements and READs in flight.
    announced: [VecDeque<OnTheWay>; QUEUE_PAIRS],
    asked: [VecDeque<Request>; QUEUE_PAIRS],
    lost: [bool; QUEUE_PAIRS],
    /// Bytes of the stream that were filled, and that were taken out.
    filled: u64,
    taken: u64,
}

/// A message, with its payload.
struct OnTheWay {
    id: u64,
    message: Vec<u8>,
}

fn ring(bytes: u64) -> Vec<u8> {
    vec![0xee; usize::try_from(bytes).unwrap()]
}

/// A byte of the stream.
fn byte(position: u64) -> u8 {
    (position % 201).to_be_bytes()[7]
}

impl Ends {
    fn new() -> Self {
        let first = Ring::new(NonZeroU64::new(RING).unwrap());
        let remote = RemoteRing::new(0, 0);
        let settings = SenderSettings {
            ring: first,
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
            ring: first,
            remote,
            queue_pairs: QUEUE_PAIRS,
            depth: 3,
            message_bytes: 16,
        };
        let mut receiver = Receiver::new(first, 20);
        receiver.acknowledge_end();
        receiver.take_inline(INLINE);
        Self {
            sender: Sender::new(settings, Pacer::new(Path::new(Rate::Any, 0), 0)),
            receiver,
            reader: Reader::new(reader, Pacer::new(Path::new(Rate::Any, 0), 0)),
            other: Sender::new(settings, Pacer::new(Path::new(Rate::Any, 0), 0)),
            sent: vec![Some(ring(RING))],
            received: vec![Some(ring(RING))],
            moved: 0,
            moved_to: 0,
            source: None,
            announced: Default::default(),
            asked: Default::default(),
            lost: [false; QUEUE_PAIRS],
            filled: 0,
            taken: 0,
        }
    }

    fn fill(&mut self, most: usize) {
        let room = self.sender.room().first(most);
        let last = self.sent.iter_mut().rev().flatten().next().unwrap();
        for place in &mut last[room.offset..][..room.length] {
            *place = byte(self.filled);
            self.filled += 1;
        }
        self.sender.fill(room.length);
        self.sender.flush();
    }

    /// The receiver has offered another ring, and the sender moves to it, with a ring of its own of `own` bytes, if there is one.
    fn change(&mut self, bytes: u64, own: Option<u64>) {
        let length = NonZeroU64::new(bytes).unwrap();
        let is_steady = self.moved == self.moved_to && !self.receiver.is_moving();
        if !is_steady || !self.sender.can_move(length) {
            return;
        }
        self.moved += 1;
        self.received.push(Some(ring(bytes)));
        self.sent.push(own.map(ring));
        let key = u32::try_from(self.moved).unwrap();
        let to = Destination {
            number: key,
            theirs: (self.sender.remote(), length),
            own: own.map(|bytes| OwnRing {
                region: Region {
                    id: self.moved,
                    address: u64::from(key) << 32,
                    key,
                },
                keys: Keys::of(&[key]).unwrap(),
                bytes: NonZeroU64::new(bytes).unwrap(),
            }),
        };
        let shape = Shape {
            message_bytes: 16,
            piece_bytes: 1 + bytes / 4,
            immediate: false,
        };
        self.sender.move_to(to, shape);
    }

    fn post(&mut self) {
        if let Some(Some(left)) = self.sender.leave() {
            self.sent[left] = None;
        }
        while let Some(post) = self.sender.next(Duration::ZERO) {
            let Request { id, work } = post.request;
            let message = match work {
                Work::Send(message) => message.as_bytes().to_vec(),
                Work::Carry {
                    message,
                    region,
                    span,
                } => [message.as_bytes(), part(&self.sent[region], span)].concat(),
                Work::Write { .. } | Work::Read { .. } => panic!("nothing is written"),
            };
            self.announced[post.queue_pair].push_back(OnTheWay { id, message });
        }
        while let Some((queue_pair, request)) =
            self.reader
                .next(&mut self.other, &self.receiver, Duration::ZERO)
        {
            assert!(!self.lost[queue_pair]);
            self.asked[queue_pair].push_back(request);
            assert!(self.asked[queue_pair].len() <= 3, "the depth holds");
        }
    }

    fn hear(&mut self, queue_pair: usize) {
        let Some(OnTheWay { id, message }) = self.announced[queue_pair].pop_front() else {
            return;
        };
        match Message::decode(&message).unwrap() {
            Message::Arrived { start, length } => {
                let pieces = self.reader.pieces();
                let length = u64::from(length);
                if self.receiver.wants(start, length, pieces).unwrap() {
                    self.reader.announced(start, length).unwrap();
                }
            }
            Message::Carried { start, length } => {
                if let Some((region, place)) = self.receiver.carried(start, length as u64).unwrap()
                {
                    let ring = self.received[region].as_mut().unwrap();
                    ring[place.offset..][..length].copy_from_slice(&message[9..]);
                }
            }
            Message::Padded { .. } => panic!("nothing is padded"),
            Message::End { at } => self.receiver.ended(at).unwrap(),
            Message::Abandon { .. } => {}
            Message::Source {
                number,
                at,
                bytes,
                address,
                keys,
            } => {
                if usize::try_from(number).unwrap() > self.moved_to {
                    let remote = self.reader.remote().exchanged_for(address, keys).unwrap();
                    let bytes = NonZeroU64::new(bytes).unwrap();
                    self.source = Some(NextSource { at, bytes, remote });
                }
            }
            Message::Switch { number, at, window } => {
                let number = usize::try_from(number).unwrap();
                if number > self.moved_to {
                    self.moved_to = number;
                    let source = self.source.take();
                    assert_eq!(source.is_some(), self.sent[number].is_some());
                    let length = self.received[number].as_ref().unwrap().len() as u64;
                    let length = NonZeroU64::new(length).unwrap();
                    self.receiver.switch(at, (length, number), window).unwrap();
                    self.reader.move_to(source, 1 + window / 5);
                }
            }
            Message::Left { number } => {
                let is_new = usize::try_from(number).unwrap() == self.moved_to;
                if is_new && self.receiver.is_moving() {
                    let left = self.receiver.leave().unwrap();
                    self.reader.leave();
                    self.received[left] = None;
                }
            }
            other => panic!("a sender whose pieces are fetched does not say {other:?}"),
        }
        self.sender.completed(queue_pair, id, Duration::ZERO);
    }

    fn fetch(&mut self, queue_pair: usize) {
        let Some(Request { id, work }) = self.asked[queue_pair].pop_front() else {
            return;
        };
        let Work::Read { region, span, from } = work else {
            panic!("a reader reads");
        };
        let offset = usize::try_from(from.address & 0xffff_ffff).unwrap();
        assert_eq!(from.address >> 32, u64::from(from.key));
        let there = Span::new(offset, span.length);
        let bytes = part(&self.sent[from.key as usize], there).to_vec();
        let ring = self.received[region].as_mut();
        let ring = ring.expect("no READ comes after its ring was left");
        let here = &mut ring[span.offset..][..span.length];
        assert!(
            here.iter().all(|byte| *byte == 0xee),
            "each byte is fetched once"
        );
        here.copy_from_slice(&bytes);
        assert!(Reader::is_read(id));
        self.other.completed(queue_pair, id, Duration::ZERO);
        if let Some((start, length)) = self.reader.completed(queue_pair, id) {
            self.receiver.arrived(start, length).unwrap();
        }
    }

    fn take(&mut self, most: usize) {
        let ready = self.receiver.ready().first(most);
        let ring = self.received[self.receiver.region()].as_mut().unwrap();
        for place in &mut ring[ready.offset..][..ready.length] {
            assert_eq!(std::mem::replace(place, 0xee), byte(self.taken));
            self.taken += 1;
        }
        self.receiver.consume(ready.length);
        if self.receiver.owes_credit()
            && let Message::Credit { consumed } = self.receiver.credit()
        {
            self.sender.credited(consumed).unwrap();
        }
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

fn part(ring: &Option<Vec<u8>>, span: Span) -> &[u8] {
    let ring = ring.as_ref().expect("memory is needed until it has gone");
    &ring[span.offset..][..span.length]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// In any order, with any loss and any changes of rings, each byte is fetched once and the sender learns that it
    /// was consumed.
    #[test]
    fn pieces_are_fetched_once(
        events in proptest::collection::vec((0..7_u8, 0..QUEUE_PAIRS, 1..100_usize), 0..300),
        own_rings in proptest::collection::vec(proptest::option::of(20_u64..500), 1..10),
    ) {
        let mut ends = Ends::new();
        for (event, queue_pair, count) in events {
            match event {
                0 => ends.fill(count),
                1 | 2 => ends.hear(queue_pair),
                3 => ends.fetch(queue_pair),
                4 => ends.take(count),
                5 => ends.change(15 + 5 * count as u64, own_rings[count % own_rings.len()]),
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
            ends.take(usize::MAX);
        }
        prop_assert!(ends.receiver.is_finished(), "it stalls: {:?}", ends.reader);
        prop_assert_eq!(ends.taken, ends.filled);
        prop_assert!(!ends.sender.has_unfetched());
    }
}

/// A second piece in the place of one that is being fetched would be fetched after that place was left.
#[test]
fn pieces_that_overlap_are_refused() {
    let mut ends = Ends::new();
    ends.reader.announced(100, 50).unwrap();
    ends.reader.announced(100, 50).unwrap();
    ends.reader.announced(150, 10).unwrap();
    for (start, length) in [(100, 49), (99, 2), (149, 1), (159, 5), (90, 100)] {
        let end = start + length;
        let refused = ends.reader.announced(start, length);
        assert_eq!(refused, Err(ReceiverError::Overlap { start, end }));
    }
    ends.receiver.arrived(10, 10).unwrap();
    let overlap = ReceiverError::Overlap { start: 5, end: 15 };
    assert_eq!(ends.receiver.wants(5, 10, 0), Err(overlap));
    assert_eq!(ends.receiver.wants(10, 10, 0), Ok(false));
}
