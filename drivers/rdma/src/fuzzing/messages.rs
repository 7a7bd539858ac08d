//! Messages of a peer while data flows, with losses of queue pairs.

use std::io;
use std::num::{NonZeroU64, NonZeroUsize};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};

use super::Input;
use crate::engine::{
    Exchange, Message, Reader, ReaderSettings, Receiver, Ring, Sender, SenderSettings, Shape,
    Supplied, Supply, Wanted, Way, immediate,
};
use crate::memory::Memory;
use crate::pacing::{Pacer, Path, Rate};
use crate::provider::{
    Access, Completion, Endpoint, Keys, Limits, Loss, PostError, Region, RemoteRing, Request, Work,
};

const RING_BYTES: u64 = 1000;
const QUEUE_PAIRS: usize = 3;
const PIECES: usize = 8;
const DEPTH: usize = 16;

/// Longer than a piece, so that every piece may travel inside a message.
const INLINE_BYTES: usize = 300;

/// Valid and invalid messages of a peer, with completions and losses between them, and with what we
/// send and consume. Ends with the first detected violation.
pub fn messages(input: &[u8]) {
    let mut input = Input(input);
    let ring_bytes = NonZeroU64::new(RING_BYTES).expect("a constant that is not zero");
    let ring = Ring::new(ring_bytes);
    let modes = input.byte();
    let remote = RemoteRing::new(0, 0);
    let settings = SenderSettings {
        ring,
        region: 0,
        remote,
        queue_pairs: QUEUE_PAIRS,
        depth: DEPTH,
        message_bytes: 100,
        piece_bytes: 250,
        max_pieces: PIECES,
        is_fetched: modes & 1 != 0,
        inline_bytes: if modes & 16 != 0 {
            INLINE_BYTES as u64
        } else {
            0
        },
        immediate: modes & 4 != 0,
        completes_early: modes & 1 == 0,
        stall: None,
    };
    let pacer = || Pacer::new(Path::new(Rate::Any, 100), 0);
    let sender = Sender::new(settings, pacer());
    let mut receiver = Receiver::new(ring, PIECES);
    if modes & 8 != 0 {
        receiver.take_immediates();
    }
    if modes & 16 != 0 {
        receiver.take_inline(INLINE_BYTES as u64);
    }
    let mut exchange = Exchange::new(sender, receiver, QUEUE_PAIRS);
    let bytes = NonZeroUsize::try_from(ring_bytes).expect("a ring is memory of this process");
    if let Ok(incoming) = Memory::new(bytes) {
        exchange = exchange.carry(Arc::new(incoming));
    }
    if modes & 2 != 0 {
        let settings = ReaderSettings {
            ring,
            remote,
            queue_pairs: QUEUE_PAIRS,
            depth: 4,
            message_bytes: 100,
        };
        exchange = exchange.fetch(Reader::new(settings, pacer()));
    }
    if modes & 32 != 0 {
        exchange.let_rings_change(Box::new(Rings::default()), STEP * 5);
    }
    let mut now = Duration::ZERO;
    let mut peer = Peer::new();
    let mut consumed = 0;
    while !input.is_empty() && !exchange.is_over() {
        match input.byte() {
            0..=15 => peer.lose(usize::from(input.byte()) % QUEUE_PAIRS),
            16..=47 => peer.complete(usize::from(input.byte()) % QUEUE_PAIRS),
            48..=55 => {
                let room = exchange.sender.room();
                exchange
                    .sender
                    .pad(usize::from(input.byte()).min(room.length));
            }
            56..=95 => {
                let room = exchange.sender.room();
                exchange
                    .sender
                    .fill(usize::from(input.byte()).min(room.length));
                exchange.sender.flush();
            }
            96..=143 => {
                let ready = exchange.receiver.ready();
                assert!((ready.offset + ready.length) as u64 <= LONGEST);
                let count = usize::from(input.byte()).min(ready.length);
                exchange.receiver.consume(count);
                consumed += count as u64;
            }
            144..=159 => {
                let count = usize::from(input.byte() % 20);
                peer.say(input.bytes(count));
            }
            160..=175 => {
                // It wraps around at 32 bits.
                let near = consumed.wrapping_add(u64::from(input.byte()) * 4);
                peer.write(immediate(near.wrapping_sub(400)), input.byte());
            }
            kind => {
                let message = message(kind, &mut input, consumed);
                let mut encoded = message.encode().as_bytes().to_vec();
                encoded.resize(encoded.len() + message.payload_bytes(), 0);
                peer.say(&encoded);
            }
        }
        now += STEP;
        if exchange.advance(&mut peer, now).is_err() {
            return;
        }
        let room = exchange.sender.room();
        let own = exchange.sender.ring_length().get();
        assert!((room.offset + room.length) as u64 <= own);
    }
}

/// The time between two steps. Five of them are a round trip.
const STEP: Duration = Duration::from_millis(20);

/// The longest ring in bytes.
const LONGEST: u64 = 4 * RING_BYTES;

/// The length of a ring of the peer; 0 is invalid.
fn ring_of_peer(number: u32) -> u64 {
    u64::from(number % 9) * RING_BYTES / 2
}

/// Further rings of ours, of any length up to the longest, or none.
#[derive(Debug, Default)]
struct Rings {
    asked: [u64; 2],
    regions: usize,
}

impl Supply for Rings {
    fn ask(&mut self, _: &mut dyn Endpoint, way: Way, wanted: Wanted) -> Option<NonZeroU64> {
        assert!(wanted.least <= wanted.bytes, "{wanted:?}");
        self.regions += 1;
        let bytes = wanted.bytes.min(LONGEST);
        self.asked[way as usize] = bytes;
        // Some are refused.
        NonZeroU64::new(bytes).filter(|_| !self.regions.is_multiple_of(7))
    }

    fn answer(&mut self, _: &mut dyn Endpoint, way: Way) -> Option<Option<Supplied>> {
        self.regions += 1;
        // Some cannot be prepared.
        let bytes = self.asked[way as usize];
        let bytes = NonZeroU64::new(bytes).filter(|_| !self.regions.is_multiple_of(5));
        Some(bytes.map(|bytes| Supplied {
            bytes,
            region: Region {
                id: 10 + self.regions,
                address: 0,
                key: 0,
            },
            memory: None,
        }))
    }

    fn is_contended(&self) -> bool {
        !self.regions.is_multiple_of(2)
    }

    fn knows_path(&self) -> bool {
        true
    }

    fn least_bytes(&self) -> u64 {
        RING_BYTES / 4
    }

    fn shape(&self, window: NonZeroU64, _: NonZeroU64) -> Shape {
        Shape {
            message_bytes: 100.min(window.get()),
            piece_bytes: 250.min(window.get()),
            immediate: false,
        }
    }
}

/// A message about a position near a valid one.
fn message(kind: u8, input: &mut Input<'_>, consumed: u64) -> Message {
    let near = consumed.wrapping_add(u64::from(input.byte()) * 4);
    match kind {
        176..=184 => Message::Carried {
            start: near,
            length: usize::from(input.byte()) * 2,
        },
        185..=193 => Message::Padded {
            start: near,
            padding: input.byte().into(),
            length: usize::from(input.byte()) * 2,
        },
        194..=219 => Message::Arrived {
            start: near,
            length: u32::from(input.byte()),
        },
        220..=239 => Message::Credit {
            consumed: u64::from(input.byte()) * 4,
        },
        240..=247 => Message::End { at: near },
        249 => {
            let number = u32::from(input.byte() % 4);
            Message::Source {
                number,
                at: near,
                bytes: ring_of_peer(number),
                address: u64::from(number) << 32,
                keys: Keys::of(&[0]).expect("one is few"),
            }
        }
        248 => {
            let number = u32::from(input.byte() % 12);
            Message::Preparing {
                number,
                bytes: ring_of_peer(number),
            }
        }
        250..=251 => {
            let number = u32::from(input.byte() % 12);
            Message::Ring {
                number,
                bytes: ring_of_peer(number),
                address: u64::from(number) << 32,
                // Of one adapter, sometimes of two.
                keys: Keys::of(&[0; 2][..1 + usize::from(number == 11)]).expect("two are few"),
            }
        }
        252..=253 => Message::Switch {
            number: u32::from(input.byte() % 4),
            at: near,
            window: u64::from(input.byte()) * 8,
        },
        254 => Message::Left {
            number: u32::from(input.byte() % 4),
        },
        255 => {
            let choice = input.byte();
            let number = u32::from(choice % 4);
            match choice < 128 {
                true => Message::TakeBack { number },
                false => Message::Declined { number },
            }
        }
        _ => Message::Abandon {
            queue_pair: usize::from(input.byte() % 4),
            generation: u32::from(input.byte() % 4),
        },
    }
}

/// The other end, with an endpoint that follows the input.
#[derive(Debug)]
struct Peer {
    /// The outstanding requests of each queue pair; `None` if it is lost.
    pending: Vec<Option<Vec<u64>>>,
    happens: Vec<Completion>,
    never: OwnedFd,
}

impl Peer {
    fn new() -> Self {
        Self {
            pending: vec![Some(Vec::new()); QUEUE_PAIRS],
            happens: Vec::new(),
            never: eventfd(0, EventfdFlags::CLOEXEC).expect("a descriptor"),
        }
    }

    fn say(&mut self, bytes: &[u8]) {
        let queue_pair = self.pending.iter().position(Option::is_some);
        if let Some(queue_pair) = queue_pair {
            self.happens.push(Completion::Received {
                queue_pair,
                message: bytes.to_vec(),
            });
        }
    }

    fn write(&mut self, immediate: u32, length: u8) {
        if let Some(queue_pair) = self.pending.iter().position(Option::is_some) {
            self.happens.push(Completion::Written {
                queue_pair,
                immediate,
                length: u32::from(length),
            });
        }
    }

    fn complete(&mut self, queue_pair: usize) {
        if let Some(pending) = &mut self.pending[queue_pair] {
            let done = pending.drain(..);
            self.happens
                .extend(done.map(|id| Completion::Done { queue_pair, id }));
        }
    }

    fn lose(&mut self, queue_pair: usize) {
        if self.pending[queue_pair].take().is_some() {
            let loss = Loss::Reset;
            self.happens.push(Completion::Lost { queue_pair, loss });
        }
    }
}

impl Endpoint for Peer {
    fn limits(&self) -> Limits {
        Limits {
            queue_pairs: QUEUE_PAIRS,
            rails: 1,
            depth: DEPTH,
            reads: 0,
            message_bytes: 100,
            payload_bytes: INLINE_BYTES,
            immediate: true,
            over_tcp: false,
            needs_polling: false,
            replaces: false,
        }
    }

    fn register(&mut self, _: &Arc<Memory>, _: Access) -> io::Result<Region> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn deregister(&mut self, _: usize) {}

    fn post(&mut self, queue_pair: usize, request: Request) -> Result<(), PostError> {
        let pending = self.pending[queue_pair].as_mut().ok_or(PostError::Lost)?;
        assert!(pending.len() < DEPTH, "the engine counts what it posts");
        match request.work {
            Work::Write {
                span, to: place, ..
            }
            | Work::Read {
                span, from: place, ..
            } => {
                let (number, offset) = (place.address >> 32, place.address & 0xffff_ffff);
                let ring = match u32::try_from(number).unwrap_or(0) {
                    0 => RING_BYTES,
                    number => ring_of_peer(number),
                };
                assert!((span.offset + span.length) as u64 <= LONGEST);
                assert!(offset + span.length as u64 <= ring, "it is in the ring");
            }
            Work::Carry { span, .. } => {
                assert!((span.offset + span.length) as u64 <= LONGEST);
                assert!(span.length <= INLINE_BYTES, "as was agreed");
            }
            Work::Send(_) => {}
        }
        pending.push(request.id);
        Ok(())
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) {
        completions.append(&mut self.happens);
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.never.as_fd()
    }

    fn close(&mut self, queue_pair: usize) -> bool {
        let pending = self.pending.get_mut(queue_pair);
        pending.is_some_and(|pending| pending.take().is_some())
    }

    fn end(&mut self) {}

    fn abort(&mut self) {}
}
