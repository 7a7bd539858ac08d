//! A peer over `soft` that follows the whole protocol and abuses it: it announces bytes that it never
//! wrote, and READs bytes that were never announced.
//!
//! Before, the pool's rings belonged to another session and were filled with a secret. Neither the
//! delivered bytes nor those that the peer READs may contain a byte of it, nor one that was never
//! written.

use std::net::{IpAddr, Ipv4Addr, TcpStream};
use std::num::{NonZeroU64, NonZeroUsize};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use gridhaul_iwarp::establish;
use gridhaul_stack::exact::write_all;
use gridhaul_stack::{Cancel, Driver as _, Operation, Side, SocketOptions};
use gridhaul_tcp::TcpListener;

use super::Input;
use crate::Rdma;
use crate::clock;
use crate::engine::{Fault, Message};
use crate::handshake::{self, Method, Methods, Mode, Offer, PathRecord, Record, RingRecord};
use crate::iwarp::SoftEndpoint;
use crate::memory::{Buffer, Holder, Lengths, Memory, Pool, Span};
use crate::open::{Opened, open, private_data};
use crate::provider::{Access, Completion, Endpoint, Keys, Remote, Request, Work};
use crate::settings::Settings;

/// The content of another session's rings.
const SECRET: u8 = 0xa5;

/// The bytes that this session sends.
const PUBLIC: u8 = 0x77;

/// The bytes that the peer writes and sends inside messages.
const PEERS: u8 = 0x11;

/// The length of each ring in bytes.
const RING_BYTES: usize = 16 << 10;

/// The peer's memory in bytes: more than a ring.
const PEER_BYTES: usize = RING_BYTES + 4096;

/// The longest inline payload in bytes.
const INLINE_BYTES: u16 = 256;

/// A step of the peer, or of the channel's user.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Step {
    /// Writes this many bytes of the ring from an offset on.
    Write(usize, usize),
    /// Sends a message; an inline payload has the peer's bytes.
    Message(Message),
    /// READs this many bytes from an offset of the ring that is sent from.
    Read(usize, usize),
    /// Writes the next piece and announces it correctly.
    WritePiece(usize),
    /// Delivers this many of the arrived bytes.
    Deliver(usize),
    /// Sends this many bytes to the peer.
    Send(usize),
}

/// The steps that the input encodes, over a channel that it opens. Ends with the first detected
/// violation.
pub fn hostile_peer(input: &[u8]) {
    let mut input = Input(input);
    let modes = input.byte();
    let mode = if modes & 1 == 0 { Mode::Put } else { Mode::Get };
    if modes >= 240 {
        // Invalid records, or none.
        assert!(Session::open(mode, false, Some(input.0)).is_none());
        return;
    }
    let Some(mut session) = Session::open(mode, modes & 2 != 0, None) else {
        return;
    };
    while !input.is_empty() {
        let step = step(&mut input, &session);
        if session.take(step).is_err() {
            break;
        }
    }
}

fn step(input: &mut Input<'_>, session: &Session) -> Step {
    let kind = input.byte();
    let place = usize::from(input.byte()) * 72;
    let count = usize::from(input.byte()) * 16;
    // Near the valid position of the stream.
    let near = (session.announced + u64::from(input.byte()) * 16).saturating_sub(1024);
    match kind {
        0..=47 => Step::Write(place, count),
        48..=55 => Step::Write(place, 4 * count),
        56..=95 => Step::WritePiece(count),
        96..=127 => Step::Deliver(count),
        128..=159 => Step::Read(place, 4 * count),
        160..=175 => Step::Send(count),
        176..=207 => Step::Message(Message::Arrived {
            start: near,
            length: u32::try_from(count).unwrap_or_default(),
        }),
        208..=215 => Step::Message(Message::Carried {
            start: near,
            length: count / 8,
        }),
        216..=223 => Step::Message(Message::Padded {
            start: near,
            padding: u32::try_from(place).unwrap_or_default(),
            length: count / 8,
        }),
        224..=239 => Step::Message(Message::Credit { consumed: near }),
        240..=247 => Step::Message(Message::End { at: near }),
        249 => Step::Message(Message::Source {
            number: 1,
            at: near,
            bytes: count as u64 * 64,
            address: place as u64,
            keys: Keys::of(&[0]).expect("one is few"),
        }),
        248 => Step::Message(Message::Abandon {
            queue_pair: place % 2,
            generation: u32::from(kind) % 4,
        }),
        250..=251 => Step::Message(Message::Ring {
            number: u32::from(kind) - 249,
            bytes: count as u64 * 64,
            address: place as u64,
            keys: Keys::of(&[0]).expect("one is few"),
        }),
        252..=253 => Step::Message(Message::Switch {
            number: u32::from(kind) - 251,
            at: near,
            window: count as u64,
        }),
        254 => Step::Message(match count % 32 {
            0 => Message::Left { number: 2 },
            _ => Message::Left { number: 1 },
        }),
        255 => Step::Message(match count % 32 {
            0 => Message::TakeBack { number: 1 },
            _ => Message::Declined { number: 1 },
        }),
    }
}

/// A channel of ours, and the peer.
pub(crate) struct Session {
    ours: Opened,
    peer: SoftEndpoint,
    /// The peer's memory to send from, its region, and the same to READ into.
    source: (Arc<Memory>, usize),
    sink: (Arc<Memory>, usize),
    /// The ring that the peer accesses.
    ring: RingRecord,
    completions: Vec<Completion>,
    /// The end of the stream that the peer has written and announced correctly.
    announced: u64,
}

impl Session {
    /// Opens a channel in rings that belonged to another session; they may change if it `grows`. If there
    /// are `records`, the peer sends them in place of its own and closes the connection; then there is no
    /// channel.
    pub(crate) fn open(mode: Mode, grows: bool, records: Option<&[u8]>) -> Option<Self> {
        leave_secrets();
        let options = [("provider", "soft"), ("slab", "4K"), ("slabs", "4")];
        let options = &options[..if grows { 1 } else { 3 }];
        let options: Vec<_> = options
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let options = Rdma.read_options(&options).expect("options of the driver");
        let settings = Settings::parse(&options).expect("options of the driver");
        let cancel = Cancel::new();
        let operation = Operation {
            deadline: Some(Instant::now() + Duration::from_secs(30)),
            cancel: &cancel,
        };
        let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let sockets = SocketOptions::default();
        let mut listener = TcpListener::open(&settings.tcp, local, &sockets).expect("a port");
        let socket = TcpStream::connect((local, listener.port())).expect("a connection");
        socket.set_nonblocking(true).expect("a socket");
        socket.set_nodelay(true).expect("a socket");
        let connection = listener.accept_channel(&operation).expect("a connection");
        let (ours, theirs) = thread::scope(|scope| {
            let ours =
                scope.spawn(|| open(connection, Side::Acceptor, &settings, &sockets, &operation));
            let theirs = match records {
                None => greet(socket.into(), mode, grows, &operation),
                Some(records) => {
                    let _ = write_all(socket, records, &operation);
                    None
                }
            };
            (ours.join().expect("no panic"), theirs)
        });
        let (mut peer, ring) = theirs?;
        let mut memory = |access| {
            let bytes = NonZeroUsize::new(PEER_BYTES).expect("a constant that is not zero");
            let memory = Arc::new(Memory::new(bytes).expect("memory"));
            let region = peer.register(&memory, access).expect("registered");
            (memory, region.id)
        };
        let (source, sink) = (memory(Access::Local), memory(Access::Sink));
        source.0.copy_in(0, &[PEERS; PEER_BYTES]);
        Some(Self {
            ours: ours.ok()?,
            peer,
            source,
            sink,
            ring,
            completions: Vec::new(),
            announced: 0,
        })
    }

    /// Takes a step, and lets both ends make progress.
    ///
    /// # Errors
    ///
    /// The violation that our end has detected, or the loss of the queue pair.
    pub(crate) fn take(&mut self, step: Step) -> Result<(), String> {
        match step {
            Step::Write(place, length) => self.write(place, length),
            Step::Message(message) => self.send_message(message),
            Step::Read(place, length) => {
                let span = Span::new(0, length.min(PEER_BYTES));
                let region = self.sink.1;
                let from = self.at(place);
                self.post(Work::Read { region, span, from });
            }
            Step::WritePiece(length) => {
                let place = usize::try_from(self.announced).expect("short") % RING_BYTES;
                let length = length.min(RING_BYTES - place);
                self.write(place, length);
                self.send_message(Message::Arrived {
                    start: self.announced,
                    length: u32::try_from(length).expect("short"),
                });
                self.announced += length as u64;
            }
            Step::Deliver(count) => self.deliver(count),
            Step::Send(count) => {
                let Opened {
                    exchange, outgoing, ..
                } = &mut self.ours;
                let room = outgoing.room(&exchange.sender).first(count);
                let bytes = vec![PUBLIC; room.length];
                outgoing.memory().copy_in(room.offset, &bytes);
                outgoing.fill(&mut exchange.sender, room.length);
                exchange.sender.flush();
            }
        }
        self.advance()
    }

    /// Lets both ends make progress.
    fn advance(&mut self) -> Result<(), String> {
        for _ in 0..3 {
            self.peer.poll(&mut self.completions);
            self.completions.clear();
            let moved = self.ours.advance(clock::now());
            self.check_read_bytes();
            moved.map_err(|fault: Fault| fault.to_string())?;
        }
        match self.ours.exchange.loss() {
            Some(loss) if self.ours.exchange.is_over() => Err(format!("{loss:?}")),
            _ => Ok(()),
        }
    }

    /// Takes bytes out of the ring, as a channel does.
    fn deliver(&mut self, count: usize) {
        let ready = self.ours.exchange.receiver.ready().first(count);
        let mut bytes = vec![0; ready.length];
        let incoming = self.ours.exchange.incoming().expect("a ring");
        incoming.copy_out(ready.offset, &mut bytes);
        let strange = bytes.iter().find(|byte| **byte != PEERS);
        assert_eq!(
            strange, None,
            "bytes are delivered that the peer never sent"
        );
        self.ours.exchange.receiver.consume(ready.length);
    }

    /// The peer may have READ only bytes that this session has sent.
    fn check_read_bytes(&self) {
        let mut bytes = vec![0; PEER_BYTES];
        self.sink.0.copy_out(0, &mut bytes);
        let strange = bytes.iter().find(|byte| ![0, PUBLIC].contains(byte));
        assert_eq!(
            strange, None,
            "the peer has read bytes that were never sent to it"
        );
    }

    fn write(&mut self, place: usize, length: usize) {
        let to = self.at(place);
        let (_, region) = self.source;
        self.post(Work::Write {
            region,
            span: Span::new(0, length.min(PEER_BYTES)),
            to,
            immediate: None,
        });
    }

    fn send_message(&mut self, message: Message) {
        let (_, region) = self.source;
        self.post(match message {
            Message::Carried { length, .. } | Message::Padded { length, .. } if length > 0 => {
                Work::Carry {
                    message: message.encode(),
                    region,
                    span: Span::new(0, length.min(PEER_BYTES)),
                }
            }
            other => Work::Send(other.encode()),
        });
    }

    fn at(&self, place: usize) -> Remote {
        Remote {
            address: self.ring.address + place as u64,
            key: self.ring.keys[0],
        }
    }

    /// Posts a request, or drops it if the peer's queue pair is full.
    fn post(&mut self, work: Work) {
        let _ = self.peer.post(0, Request { id: 0, work });
    }
}

/// Neither end waits for the other.
impl Drop for Session {
    fn drop(&mut self) {
        self.peer.abort();
        self.ours.endpoint.abort();
    }
}

/// Opens the peer's end of a channel; returns our ring that it accesses.
fn greet(
    socket: OwnedFd,
    mode: Mode,
    grows: bool,
    operation: &Operation<'_>,
) -> Option<(SoftEndpoint, RingRecord)> {
    let offer = Offer {
        rings: Lengths::both(NonZeroU64::new(RING_BYTES as u64)?),
        queue_pairs: 1,
        pieces: 64,
        mode,
        immediate: false,
        inline_bytes: INLINE_BYTES,
        aligned: !grows,
        adapters: 1,
        rails: 1,
        grows,
    };
    let methods = Methods::default().with(Method::Soft);
    handshake::write(
        &socket,
        &Record::Offer(offer, methods, PathRecord::default()),
        operation,
    )
    .ok()?;
    let Record::Answer(answer) = handshake::read(&socket, operation).ok()? else {
        return None;
    };
    // Our end never accesses the peer's ring here, so it gets an invalid one.
    let nowhere = RingRecord {
        address: 0,
        keys: vec![0],
    };
    handshake::write(&socket, &Record::Ring(nowhere), operation).ok()?;
    let Record::Ring(ring) = handshake::read(&socket, operation).ok()? else {
        return None;
    };
    let offer = gridhaul_iwarp::Offer {
        checksum: false,
        revision: 2,
        segment_bytes: usize::MAX,
        private: private_data(answer.token, 0),
    };
    let connection = establish(socket, Side::Connector, &offer, &|_| true, operation).ok()?;
    let chosen = answer.chosen;
    let mut peer = SoftEndpoint::new(
        chosen.inline_bytes.into(),
        handshake::messages(chosen.pieces.into()),
    )
    .ok()?;
    peer.attach(connection).ok()?;
    Some((peer, ring))
}

/// Fills rings of this length with the secret, as another session.
fn leave_secrets() {
    let cancel = Cancel::new();
    let operation = Operation {
        deadline: None,
        cancel: &cancel,
    };
    let holder = Holder {
        side: Side::Acceptor,
        pins: 0,
        party: None,
    };
    let ring_bytes = NonZeroU64::new(RING_BYTES as u64).expect("a constant that is not zero");
    let (_, rings) = Pool::of_process()
        .take(holder, Lengths::both(ring_bytes), &operation)
        .expect("memory for rings")
        .map(0, &|| true)
        .expect("memory for rings");
    for ring in rings {
        ring.copy_in(0, &[SECRET; RING_BYTES]);
    }
}

#[cfg(test)]
mod tests;
