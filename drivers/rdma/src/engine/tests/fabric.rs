//! The model: two engines, their rings, and a wire between them that a test advances step by step.

mod wire;

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroU64;
use std::time::Duration;

use self::wire::OnTheWay;
use crate::engine::sender::{Destination, OwnRing, Post};
use crate::engine::{Message, Receiver, Ring, Sender, SenderSettings, Shape, Source};
use crate::pacing::{Pacers, Path, Rate};
use crate::provider::{Keys, MAX_RAILS, Region, RemoteRing, Work};

/// Further rings have greater numbers of regions than memory outside of rings.
const RINGS: usize = 1 << 20;

/// The keys of a further ring are greater by this number.
const RING_KEYS: u32 = 16;

/// Where the receiver's rings are, in the addresses of its adapters.
pub(super) const ADDRESS: u64 = 0x1000;

/// The queue pairs of a channel are on as many rails as possible.
fn rails(queue_pairs: usize) -> usize {
    queue_pairs.min(MAX_RAILS)
}

/// The key of the peer's ring on a rail.
fn key(rail: usize) -> u32 {
    u32::try_from(rail).unwrap() + 7
}

/// The first ring of a receiver.
pub(super) fn remote(queue_pairs: usize) -> RemoteRing {
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
pub(super) struct Fabric {
    pub(super) sender: Sender,
    pub(super) receiver: Receiver,
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
    pub(super) delivered: Vec<u8>,
    pub(super) now: Duration,
}

/// The properties of a provider.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Nature {
    /// See [`Fabric::completes_early`].
    pub(super) completes_early: bool,
    /// WRITEs carry immediate data.
    pub(super) immediate: bool,
    /// Pieces of up to this many bytes travel inside messages.
    pub(super) inline_bytes: u64,
}

impl Fabric {
    pub(super) fn new(
        ring: u64,
        piece: u64,
        message: u64,
        queue_pairs: usize,
        pieces: usize,
    ) -> Self {
        Self::with(ring, piece, message, queue_pairs, pieces, Nature::default())
    }

    pub(super) fn with(
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
    pub(super) fn fill(&mut self, bytes: &[u8]) -> usize {
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
    pub(super) fn fill_from(&mut self, bytes: &[u8]) -> usize {
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
    pub(super) fn change(&mut self, ring: u64, has_own: bool) {
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
        let own = has_own.then_some(OwnRing {
            region: Region {
                id: RINGS + self.offered,
                address: 0,
                key: 0,
            },
            keys: Keys::NONE,
            bytes,
        });
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
    pub(super) fn take_away(&mut self) {
        let needed_from = self.sender.needed_from();
        for (bytes, end) in &mut self.elsewhere {
            if *end <= needed_from {
                bytes.clear();
            }
        }
    }

    pub(super) fn post(&mut self) {
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

    /// The requests of a queue pair that have not arrived.
    pub(super) fn on_the_way(&self, queue_pair: usize) -> Vec<Work> {
        let requests = self.queue_pairs[queue_pair].iter();
        requests.map(|one| one.request.work).collect()
    }

    pub(super) fn take(&mut self, most: usize) {
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

    pub(super) fn lose(&mut self, queue_pair: usize) {
        // Over TCP, queue pairs are not restored.
        let is_last = self.lost.iter().filter(|&&lost| !lost).count() == 1;
        if !(self.lost[queue_pair] || is_last && self.completes_early) {
            self.lost[queue_pair] = true;
            self.sender.lost(queue_pair);
        }
    }

    /// What was written to the receiver's ring, and neither announced nor taken out, does not become visible. Nothing was announced
    /// out of order.
    pub(super) fn hide_unannounced(&mut self) {
        let ready = self.receiver.ready();
        let ring = self.received[self.receiver.region()].as_mut().unwrap();
        let announced = ready.offset..ready.offset + ready.length;
        for (place, byte) in ring.iter_mut().enumerate() {
            if !announced.contains(&place) {
                *byte = 0xdd;
            }
        }
    }

    /// Requests in flight on the lost queue pair are discarded.
    pub(super) fn restore(&mut self, queue_pair: usize) {
        if self.lost[queue_pair] && !self.completes_early {
            self.lost[queue_pair] = false;
            self.lives[queue_pair] += 1;
            self.queue_pairs[queue_pair].clear();
            self.sender.restored(queue_pair);
        }
    }
}

/// The settings of a sender in the place of that of a fabric: one queue pair, and a limit for stalls.
pub(super) fn fabric_settings(fabric: &Fabric) -> SenderSettings {
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
