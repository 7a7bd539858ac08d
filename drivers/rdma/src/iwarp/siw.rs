//! Against the kernel's iWARP, siw, at the other end.
//!
//! rping(1) drives it, except for revision 1. In each round its client announces a buffer, which
//! the server READs; then another one, to which the server WRITEs the same bytes. After each the
//! server confirms by a SEND.

use std::net::{IpAddr, TcpListener, TcpStream};
use std::num::NonZeroUsize;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use gridhaul_iwarp::{Offer, establish};
use gridhaul_stack::{Cancel, Operation, Side};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::*;
use crate::memory::Buffer;
use crate::provider::{Loss, Message, Remote, Wanted};
use crate::verbs::{DeviceOptions, Listener, Place, VerbsEndpoint};

/// Our end of the cable; the devices at both ends are siw.
const OURS: &str = "10.9.0.1";
const THEIRS: &str = "10.9.0.2";

/// No other program listens in a guest.
const PORT: u16 = 7174;

/// The largest buffer of rping.
const BUFFER_BYTES: usize = 65_535;
const ROUNDS: usize = 50;

/// The length of each region.
const BYTES: usize = 1 << 20;

/// The longest inline payload.
const PAYLOAD_BYTES: usize = 10_000;

/// Small segments, and the largest ones.
const SEGMENT_BYTES: [usize; 3] = [1400, 8000, 65_000];

#[test]
#[ignore = "needs siw, which a guest has: make test-rdma"]
fn the_kernel_reads_and_writes_our_memory() {
    for checksum in [false, true] {
        for segment_bytes in SEGMENT_BYTES {
            be_client(&offer(checksum, 2, segment_bytes));
        }
    }
}

#[test]
#[ignore = "needs siw, which a guest has: make test-rdma"]
fn we_read_and_write_the_memory_of_the_kernel() {
    for checksum in [false, true] {
        for segment_bytes in SEGMENT_BYTES {
            be_server(&offer(checksum, 2, segment_bytes));
        }
    }
}

/// In revision 1 a connecting end does not announce READ depths. rping accepts with the numbers of
/// the request, which are zero then, and cannot post its first READ. So this test drives the
/// kernel's end as well. The other direction cannot be tested: siw connects with revision 2 only (a
/// constant in its siw_main.c) and accepts no other reply.
#[test]
#[ignore = "needs siw, which a guest has: make test-rdma"]
fn the_kernel_speaks_revision_1() {
    let listener = Listener::open((THEIRS.parse::<IpAddr>().unwrap(), PORT).into()).unwrap();
    for checksum in [false, true] {
        for segment_bytes in SEGMENT_BYTES {
            talk(&listener, &offer(checksum, 1, segment_bytes));
        }
    }
}

fn offer(checksum: bool, revision: u8, segment_bytes: usize) -> Offer {
    Offer {
        checksum,
        revision,
        segment_bytes,
        private: b"hello".to_vec(),
    }
}

fn be_client(offer: &Offer) {
    let mut server = rping(&["-s", "-a", THEIRS]);
    let mut peer = peer(connect(), Side::Connector, offer);
    for round in 0..ROUNDS {
        // The server WRITEs a string, which ends with the first zero.
        let mut bytes = noise(round.to_le_bytes()[0], BUFFER_BYTES);
        bytes.iter_mut().for_each(|byte| *byte |= 1);
        bytes[BUFFER_BYTES - 1] = 0;
        peer.memory[READABLE].copy_in(0, &bytes);
        for kind in [READABLE, WRITABLE] {
            let at = peer.at(kind, 0);
            let message = [
                &at.address.to_be_bytes()[..],
                &at.key.to_be_bytes(),
                &u32::try_from(BUFFER_BYTES).unwrap().to_be_bytes(),
            ];
            peer.post(0, Work::Send(Message::new(&message.concat()).unwrap()));
            peer.next_message().expect("the server answers");
        }
        let written = peer.content(WRITABLE, Span::new(0, BUFFER_BYTES));
        assert!(written == bytes, "round {round} of {offer:?}");
    }
    drop(peer);
    // Its exit status reports the end of the connection by either end.
    server.wait().unwrap();
}

fn be_server(offer: &Offer) {
    let listener = TcpListener::bind((OURS, PORT)).unwrap();
    let rounds = ROUNDS.to_string();
    let mut client = rping(&["-c", "-a", OURS, "-C", &rounds, "-V"]);
    let (socket, _) = listener.accept().unwrap();
    let mut peer = peer(socket, Side::Acceptor, offer);
    let span = Span::new(0, BUFFER_BYTES);
    let region = peer.regions[LOCAL].id;
    let mut announced = 0;
    while let Some(message) = peer.next_message() {
        let remote = Remote {
            address: u64::from_be_bytes(message[..8].try_into().unwrap()),
            key: u32::from_be_bytes(message[8..12].try_into().unwrap()),
        };
        if announced % 2 == 0 {
            let from = remote;
            peer.post(1, Work::Read { region, span, from });
            peer.done(1);
        } else {
            let to = remote;
            let immediate = None;
            let write = Work::Write {
                region,
                span,
                to,
                immediate,
            };
            peer.post(2, write);
        }
        announced += 1;
        peer.post(3, Work::Send(Message::new(&[0; 16]).unwrap()));
    }
    assert_eq!(announced, 2 * ROUNDS);
    // The client verifies the received bytes.
    assert!(client.wait().unwrap().success(), "{offer:?}");
}

/// Each end WRITEs to the other's memory and READs from it.
fn talk(listener: &Listener, offer: &Offer) {
    let (mut ours, mut theirs) = thread::scope(|scope| {
        let ours = scope.spawn(|| peer(connect(), Side::Connector, offer));
        let theirs = accept(listener);
        (ours.join().unwrap(), theirs)
    });
    let (our_noise, their_noise) = (noise(1, BYTES), noise(2, BYTES));
    ours.memory[READABLE].copy_in(0, &our_noise);
    theirs.memory[READABLE].copy_in(0, &their_noise);
    let [our_sink, our_source] = [WRITABLE, READABLE].map(|kind| ours.at(kind, 0));
    let [their_sink, their_source] = [WRITABLE, READABLE].map(|kind| theirs.at(kind, 0));
    thread::scope(|scope| {
        scope.spawn(|| {
            theirs.is_given(&our_noise);
            theirs.fetch(our_source, &our_noise);
            theirs.give(our_sink);
            theirs.next_message().expect("a farewell");
        });
        // RFC 5044 7.1: the connecting end sends first.
        ours.give(their_sink);
        ours.is_given(&their_noise);
        ours.fetch(their_source, &their_noise);
        ours.post(0, Work::Send(Message::new(b"farewell").unwrap()));
        ours.done(0);
    });
}

/// The kernel's end of a connection.
fn accept(listener: &Listener) -> Peer<VerbsEndpoint> {
    let local = THEIRS.parse().unwrap();
    let place = Place::find(local, &DeviceOptions::default()).unwrap();
    let wanted = Wanted {
        local,
        queue_pairs: 1,
        requests: 1024,
        messages: 96,
        payload_bytes: PAYLOAD_BYTES,
        path_mtu: None,
        rate: None,
        round_trip: Duration::from_millis(1),
    };
    let mut endpoint = VerbsEndpoint::new(&[place], 1, wanted).unwrap();
    let cancel = Cancel::new();
    let operation = Operation {
        deadline: None,
        cancel: &cancel,
    };
    let incoming = listener.next(&operation).unwrap();
    assert_eq!(incoming.private(), b"hello");
    let introduction = endpoint.introduction(0, b"hello");
    let connection = incoming.accept(introduction, &operation).unwrap();
    endpoint.attach(0, connection);
    Peer::new(endpoint)
}

/// Connects as soon as rping listens, which it does not report.
fn connect() -> TcpStream {
    let started = Instant::now();
    loop {
        match TcpStream::connect((THEIRS, PORT)) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                assert!(started.elapsed() < Duration::from_secs(30), "{error}");
                thread::yield_now();
            }
            outcome => return outcome.unwrap(),
        }
    }
}

fn rping(arguments: &[&str]) -> Child {
    let bytes = BUFFER_BYTES.to_string();
    start("rping", &[arguments, &["-S", &bytes]].concat())
}

fn start(program: &str, arguments: &[&str]) -> Child {
    Command::new(program)
        .args(["-p", &PORT.to_string()])
        .args(arguments)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

fn peer(socket: TcpStream, side: Side, offer: &Offer) -> Peer {
    socket.set_nonblocking(true).unwrap();
    let cancel = Cancel::new();
    let operation = Operation {
        deadline: None,
        cancel: &cancel,
    };
    let connection = establish(socket.into(), side, offer, &|_| true, &operation).unwrap();
    let mut endpoint = SoftEndpoint::new(PAYLOAD_BYTES, 80).unwrap();
    endpoint.attach(connection).unwrap();
    Peer::new(endpoint)
}

fn noise(seed: u8, length: usize) -> Vec<u8> {
    (0..length)
        .map(|index| (index.wrapping_mul(31) ^ (index >> 8)).to_le_bytes()[0] ^ seed)
        .collect()
}

/// An endpoint with memory of each kind.
struct Peer<E = SoftEndpoint> {
    endpoint: E,
    memory: [Arc<Memory>; 3],
    regions: [Region; 3],
    completions: Vec<Completion>,
}

const LOCAL: usize = 0;
const WRITABLE: usize = 1;
const READABLE: usize = 2;

impl<E: Endpoint> Peer<E> {
    fn new(mut endpoint: E) -> Self {
        let length = NonZeroUsize::new(BYTES).unwrap();
        let memory = [(); 3].map(|()| Arc::new(Memory::new(length).unwrap()));
        let access = [Access::Sink, Access::RemoteWrite, Access::RemoteRead];
        let regions = [LOCAL, WRITABLE, READABLE]
            .map(|kind| endpoint.register(&memory[kind], access[kind]).unwrap());
        Self {
            endpoint,
            memory,
            regions,
            completions: Vec::new(),
        }
    }

    fn at(&self, kind: usize, offset: usize) -> Remote {
        let region = self.regions[kind];
        Remote {
            address: region.address + offset as u64,
            key: region.key,
        }
    }

    fn post(&mut self, id: u64, work: Work) {
        self.endpoint.post(0, Request { id, work }).unwrap();
        self.endpoint.ring_doorbell();
    }

    fn content(&self, kind: usize, span: Span) -> Vec<u8> {
        let mut bytes = vec![0; span.length];
        self.memory[kind].copy_out(span.offset, &mut bytes);
        bytes
    }

    /// WRITEs memory that the peer may read, and sends where it begins.
    fn give(&mut self, to: Remote) {
        let write = Work::Write {
            region: self.regions[READABLE].id,
            span: Span::new(0, BYTES),
            to,
            immediate: None,
        };
        self.post(1, write);
        let carry = Work::Carry {
            message: Message::new(b"written").unwrap(),
            region: self.regions[READABLE].id,
            span: Span::new(0, PAYLOAD_BYTES),
        };
        self.post(2, carry);
    }

    /// Expects the other end to WRITE these bytes.
    fn is_given(&mut self, expected: &[u8]) {
        let message = self.next_message().expect("a message");
        let (text, payload) = message.split_at(7);
        assert_eq!(text, b"written");
        assert!(payload == &expected[..PAYLOAD_BYTES]);
        assert!(self.content(WRITABLE, Span::new(0, BYTES)) == expected);
    }

    /// READs these bytes.
    fn fetch(&mut self, from: Remote, expected: &[u8]) {
        let region = self.regions[LOCAL].id;
        let span = Span::new(0, BYTES);
        self.post(3, Work::Read { region, span, from });
        self.done(3);
        assert!(self.content(LOCAL, span) == expected);
    }

    /// Polls until the other end has sent a message; `None` if it is gone.
    fn next_message(&mut self) -> Option<Vec<u8>> {
        self.wait(|completion| match completion {
            Completion::Received { message, .. } => Some(Some(message.clone())),
            Completion::Lost { loss, .. } => {
                assert_eq!(*loss, Loss::Closed);
                Some(None)
            }
            Completion::Done { .. } | Completion::Written { .. } | Completion::Restored { .. } => {
                None
            }
        })
    }

    /// Polls until a request has completed.
    fn done(&mut self, request: u64) {
        self.wait(|completion| {
            let is_done = matches!(completion, Completion::Done { id, .. } if *id == request);
            is_done.then_some(())
        });
    }

    /// Polls until an event matches, and drops the events before it.
    fn wait<T>(&mut self, wanted: impl Fn(&Completion) -> Option<T>) -> T {
        loop {
            while !self.completions.is_empty() {
                if let Some(found) = wanted(&self.completions.remove(0)) {
                    return found;
                }
            }
            self.endpoint.poll(&mut self.completions);
            if self.completions.is_empty() {
                self.endpoint.watch(true, &mut self.completions);
            }
            if self.completions.is_empty() {
                let descriptor = self.endpoint.descriptor();
                let mut descriptors = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
                let limit = Timespec::try_from(Duration::from_secs(30)).unwrap();
                let count = poll(&mut descriptors, Some(&limit)).unwrap();
                assert_ne!(count, 0, "no progress in 30 s");
            }
        }
    }
}
