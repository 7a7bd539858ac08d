//! A sender whose pieces are fetched in any order, with losses.

use std::collections::VecDeque;
use std::num::NonZeroU64;

use proptest::prelude::*;

use super::*;
use crate::engine::{Message, Receiver, SenderSettings};
use crate::pacing::{Pacer, Path, Rate};

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
        let remote = RemoteRing::new(0, 0);
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
        while let Some((queue_pair, request)) = self.reader.next(&mut self.other, Duration::ZERO) {
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
                if let Some((_, place)) = self.receiver.carried(start, length as u64).unwrap() {
                    for count in &mut self.fetched[place.offset..][..length] {
                        *count += 1;
                    }
                }
            }
            Message::Padded { .. } => panic!("nothing is padded"),
            Message::End { at } => self.receiver.ended(at).unwrap(),
            Message::Abandon { .. } => {}
            other => panic!("a sender whose pieces are fetched does not say {other:?}"),
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
