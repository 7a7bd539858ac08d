//! Two endpoints that are connected over loopback.

use std::num::NonZeroUsize;
use std::thread;
use std::time::Duration;

use gridhaul_stack::{Cancel, Operation, Side};
use proptest::prelude::*;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::*;
use crate::buffer::HeapBuffer;
use crate::handshake::{HandshakeError, Offer, Terms, establish};
use crate::request::{Message, Remote};

const BYTES: usize = 1 << 20;

/// The longest inline payload.
const PAYLOAD_BYTES: usize = 10_000;

fn sockets() -> (OwnedFd, OwnedFd) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let connector = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (acceptor, _) = listener.accept().unwrap();
    for socket in [&connector, &acceptor] {
        socket.set_nonblocking(true).unwrap();
        socket.set_nodelay(true).unwrap();
    }
    (connector.into(), acceptor.into())
}

fn offer(checksum: bool, revision: u8, segment_bytes: usize) -> Offer {
    Offer {
        checksum,
        revision,
        segment_bytes,
        private: b"hello".to_vec(),
    }
}

fn pair(queue_pairs: usize, offer: &Offer) -> [Peer; 2] {
    let mut ends = [Vec::new(), Vec::new()];
    for _ in 0..queue_pairs {
        let (connector, acceptor) = sockets();
        let cancel = Cancel::new();
        let operation = Operation {
            deadline: None,
            cancel: &cancel,
        };
        let (connector, acceptor) = thread::scope(|scope| {
            let connector =
                scope.spawn(|| establish(connector, Side::Connector, offer, &|_| true, &operation));
            let accepts = |private: &[u8]| private == b"hello";
            let acceptor = establish(acceptor, Side::Acceptor, offer, &accepts, &operation);
            (connector.join().unwrap().unwrap(), acceptor.unwrap())
        });
        ends[0].push(connector);
        ends[1].push(acceptor);
    }
    ends.map(|connections| {
        let mut endpoint = Endpoint::new(PAYLOAD_BYTES, 80).unwrap();
        for connection in connections {
            endpoint.attach(connection).unwrap();
        }
        Peer::new(endpoint)
    })
}

/// An endpoint with memory of each kind.
struct Peer {
    endpoint: Endpoint,
    memory: [Arc<HeapBuffer>; 3],
    regions: [Region; 3],
    events: Vec<Event>,
}

const LOCAL: usize = 0;
const WRITABLE: usize = 1;
const READABLE: usize = 2;

impl Peer {
    fn new(mut endpoint: Endpoint) -> Self {
        let length = NonZeroUsize::new(BYTES).unwrap();
        let memory = [(); 3].map(|()| Arc::new(HeapBuffer::new(length)));
        let access = [Access::Sink, Access::RemoteWrite, Access::RemoteRead];
        let regions = [LOCAL, WRITABLE, READABLE].map(|kind| {
            endpoint
                .register(memory[kind].clone(), access[kind])
                .unwrap()
        });
        Self {
            endpoint,
            memory,
            regions,
            events: Vec::new(),
        }
    }

    fn at(&self, kind: usize, offset: usize) -> Remote {
        let region = self.regions[kind];
        Remote {
            address: region.address + offset as u64,
            key: region.key,
        }
    }

    fn post(&mut self, id: u64, request: Request) {
        self.endpoint.post(0, id, request).unwrap();
    }

    fn content(&self, kind: usize, span: Span) -> Vec<u8> {
        let mut bytes = vec![0; span.length];
        self.memory[kind].copy_out(span.offset, &mut bytes);
        bytes
    }
}

/// Polls both until `is_done`; sleeps while neither has anything to do.
fn run(peers: &mut [Peer; 2], is_done: impl Fn(&[Peer; 2]) -> bool) {
    loop {
        for peer in &mut *peers {
            peer.endpoint.poll(&mut peer.events);
        }
        if is_done(peers) {
            return;
        }
        let [one, other] = &*peers;
        let mut descriptors = [one, other]
            .map(|peer| PollFd::from_borrowed_fd(peer.endpoint.descriptor(), PollFlags::IN));
        let limit = Timespec::try_from(Duration::from_secs(30)).unwrap();
        assert_ne!(
            poll(&mut descriptors, Some(&limit)).unwrap(),
            0,
            "no progress in 30 s"
        );
    }
}

fn send(message: &[u8]) -> Request {
    Request::Send {
        message: Message::new(message).unwrap(),
        payload: None,
    }
}

fn noise(seed: u8, length: usize) -> Vec<u8> {
    (0..length)
        .map(|index| (index.wrapping_mul(31) ^ (index >> 8)).to_le_bytes()[0] ^ seed)
        .collect()
}

fn lost(peer: &Peer) -> Option<&str> {
    peer.events.iter().find_map(|event| match event {
        Event::Lost { loss, .. } => Some(match loss {
            Loss::Closed => "closed",
            Loss::Reset => "reset",
            Loss::Failed(reason) => reason,
        }),
        _ => None,
    })
}

#[test]
fn a_message_comes_after_the_writes_before_it() {
    for checksum in [false, true] {
        for revision in [1, 2] {
            let mut peers = pair(1, &offer(checksum, revision, 60_000));
            let bytes = noise(7, BYTES);
            peers[0].memory[LOCAL].copy_in(0, &bytes);
            let request = Request::Write {
                region: peers[0].regions[LOCAL].id,
                span: Span::new(0, BYTES),
                to: peers[1].at(WRITABLE, 0),
            };
            peers[0].post(1, request);
            peers[0].post(2, send(b"there"));
            run(&mut peers, |[_, other]| !other.events.is_empty());
            let received = Event::Received {
                queue_pair: 0,
                message: b"there".to_vec(),
            };
            assert_eq!(peers[1].events, [received]);
            assert_eq!(peers[1].content(WRITABLE, Span::new(0, BYTES)), bytes);
            run(&mut peers, |[one, _]| one.events.len() == 2);
        }
    }
}

#[test]
fn a_read_copies_the_content() {
    for (checksum, revision) in [(false, 1), (true, 1), (false, 2), (true, 2)] {
        let mut peers = pair(1, &offer(checksum, revision, 9000));
        let depth = peers[0].endpoint.limits().reads;
        let bytes = noise(9, BYTES);
        peers[1].memory[READABLE].copy_in(0, &bytes);
        for (id, (start, end)) in [(0, 500_000), (500_000, 500_001), (500_001, BYTES)]
            .into_iter()
            .enumerate()
        {
            let request = Request::Read {
                region: peers[0].regions[LOCAL].id,
                span: Span::new(start, end - start),
                from: peers[1].at(READABLE, start),
            };
            peers[0].post(id as u64, request);
            run(&mut peers, |[one, _]| one.events.len() + depth > id + 1);
        }
        run(&mut peers, |[one, _]| one.events.len() == 3);
        let done = [0, 1, 2].map(|id| Event::Done { queue_pair: 0, id });
        assert_eq!(peers[0].events, done);
        assert_eq!(peers[0].content(LOCAL, Span::new(0, BYTES)), bytes);
    }
}

#[test]
fn a_forbidden_access_ends_the_connection_and_is_named() {
    let offer = offer(false, 2, 60_000);
    let write = |peers: &[Peer; 2], to| Request::Write {
        region: peers[0].regions[LOCAL].id,
        span: Span::new(0, 100),
        to,
    };
    type Attempt<'a> = &'a dyn Fn(&[Peer; 2]) -> Request;
    let attempts: [(Attempt<'_>, &str); 4] = [
        (
            &|peers| write(peers, peers[1].at(READABLE, 0)),
            "may not be used in this way",
        ),
        (
            &|peers| write(peers, peers[1].at(WRITABLE, BYTES - 99)),
            "not all within the memory",
        ),
        (
            &|peers| {
                let to = peers[1].at(WRITABLE, 0);
                write(
                    peers,
                    Remote {
                        key: to.key ^ 1,
                        ..to
                    },
                )
            },
            "no memory has the key",
        ),
        (
            &|peers| Request::Read {
                region: peers[0].regions[LOCAL].id,
                span: Span::new(0, 100),
                from: peers[1].at(WRITABLE, 0),
            },
            "may not be used in this way",
        ),
    ];
    for (attempt, words) in attempts {
        let mut peers = pair(1, &offer);
        let request = attempt(&peers);
        peers[0].post(1, request);
        run(&mut peers, |[one, other]| {
            lost(one).is_some() && lost(other).is_some()
        });
        let reason = lost(&peers[1]).unwrap();
        assert!(reason.contains(words), "{reason}");
        let reason = lost(&peers[0]).unwrap();
        assert!(reason.contains("ended the connection: layer 0"), "{reason}");
        assert_eq!(
            peers[1].content(WRITABLE, Span::new(0, BYTES)),
            vec![0; BYTES]
        );
        assert_eq!(peers[0].endpoint.post(0, 2, request), Err(PostError::Lost));
    }
}

#[test]
fn the_end_of_the_connection_is_reported() {
    let mut peers = pair(1, &offer(false, 2, 60_000));
    let [_, other] = &mut peers;
    other.endpoint.queue_pairs[0] = QueuePair::new(
        sockets().0,
        Terms {
            has_checksum: false,
            segment_bytes: 1,
        },
        PAYLOAD_BYTES,
    );
    run(&mut peers, |[one, _]| lost(one).is_some());
    assert_eq!(lost(&peers[0]), Some("closed"));
}

#[test]
fn a_message_carries_a_payload() {
    for checksum in [false, true] {
        let mut peers = pair(1, &offer(checksum, 2, 60_000));
        let bytes = noise(7, PAYLOAD_BYTES);
        peers[0].memory[LOCAL].copy_in(5, &bytes);
        let request = Request::Send {
            message: Message::new(b"there").unwrap(),
            payload: Some((peers[0].regions[LOCAL].id, Span::new(5, PAYLOAD_BYTES))),
        };
        peers[0].post(1, request);
        run(&mut peers, |[_, other]| !other.events.is_empty());
        let received = Event::Received {
            queue_pair: 0,
            message: [&b"there"[..], &bytes].concat(),
        };
        assert_eq!(peers[1].events, [received]);
    }
}

#[test]
fn sent_data_arrives_after_the_end() {
    let mut peers = pair(1, &offer(false, 2, 60_000));
    let [one, other] = &mut peers;
    let socket = one.endpoint.queue_pairs[0].socket().unwrap();
    rustix::net::sockopt::set_socket_send_buffer_size(socket, BYTES).unwrap();
    let request = Request::Write {
        region: one.regions[LOCAL].id,
        span: Span::new(0, 150_000),
        to: other.at(WRITABLE, 0),
    };
    one.post(1, request);
    one.post(2, send(b"there"));
    one.endpoint.poll(&mut one.events);
    assert_eq!(one.events.len(), 2, "all is in the socket");
    // A socket that is closed with unread data discards its unsent data.
    let socket = other.endpoint.queue_pairs[0].socket().unwrap();
    rustix::net::send(socket, b"unread", rustix::net::SendFlags::empty()).unwrap();
    one.endpoint.end();
    run(&mut peers, |[one, other]| {
        lost(one).is_some() && lost(other).is_some()
    });
    assert!(matches!(peers[1].events[0], Event::Received { .. }));
    assert_eq!(lost(&peers[1]), Some("closed"));
    assert_eq!(lost(&peers[0]), Some("closed"));
}

#[test]
fn wrong_private_data_is_rejected() {
    let (connector, acceptor) = sockets();
    let cancel = Cancel::new();
    let operation = Operation {
        deadline: None,
        cancel: &cancel,
    };
    let offer = offer(false, 2, 60_000);
    thread::scope(|scope| {
        let connector =
            scope.spawn(|| establish(connector, Side::Connector, &offer, &|_| true, &operation));
        let acceptor = establish(acceptor, Side::Acceptor, &offer, &|_| false, &operation);
        assert!(matches!(acceptor, Err(HandshakeError::Rejected)));
        let connector = connector.join().unwrap();
        assert!(matches!(connector, Err(HandshakeError::Rejected)));
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// WRITEs of any place and length, in segments of any size, on several queue pairs.
    #[test]
    fn writes_reach_their_destination(
        checksum in any::<bool>(),
        segment_bytes in prop_oneof![1..200_usize, 1000..65_000_usize],
        writes in proptest::collection::vec((0..4_usize, 0..20_000_usize), 1..20),
    ) {
        let mut peers = pair(2, &offer(checksum, 2, segment_bytes));
        let source = noise(3, BYTES);
        peers[0].memory[LOCAL].copy_in(0, &source);
        let mut expected = vec![0; BYTES];
        let mut at = 0;
        for (id, (gap, length)) in writes.iter().enumerate() {
            let span = Span::new(at + gap, *length);
            at = span.offset + span.length;
            expected[span.offset..at].copy_from_slice(&source[span.offset..at]);
            let request = Request::Write {
                region: peers[0].regions[LOCAL].id,
                span,
                to: peers[1].at(WRITABLE, span.offset),
            };
            peers[0].endpoint.post(id % 2, id as u64, request).unwrap();
        }
        for queue_pair in 0..2 {
            let request = send(b"end");
            peers[0].endpoint.post(queue_pair, 99, request).unwrap();
        }
        run(&mut peers, |[_, other]| other.events.len() == 2);
        prop_assert!(peers[1].content(WRITABLE, Span::new(0, BYTES)) == expected);
        run(&mut peers, |[one, _]| one.events.len() == writes.len() + 2);
    }

    /// WRITEs one after the other, of equal or different lengths, with free memory behind them.
    /// Right and wrong predictions stay within the free memory.
    #[test]
    fn predicted_writes_reach_their_destination(
        segment_bytes in 8192..65_000_usize,
        usual in 1..200_000_usize,
        lengths in proptest::collection::vec(prop_oneof![3 => Just(None), 1 => (0..200_000_usize).prop_map(Some)], 1..12),
        messages in any::<u16>(),
        spare in 0..BYTES,
    ) {
        let mut peers = pair(1, &offer(false, 2, segment_bytes));
        let source = noise(5, BYTES);
        peers[0].memory[LOCAL].copy_in(0, &source);
        let before = noise(6, BYTES);
        peers[1].memory[WRITABLE].copy_in(0, &before);
        let region = peers[1].regions[WRITABLE].id;
        peers[1].endpoint.spare(region, [Span::new(0, spare), Span::new(spare, 0)]);
        let (mut at, mut posted) = (0, 0);
        for (number, length) in lengths.iter().enumerate() {
            let span = Span::new(at, length.unwrap_or(usual).min(BYTES - at));
            at += span.length;
            let request = Request::Write {
                region: peers[0].regions[LOCAL].id,
                span,
                to: peers[1].at(WRITABLE, span.offset),
            };
            peers[0].post(0, request);
            posted += 1;
            if messages >> number & 1 == 1 {
                peers[0].post(0, send(b"one of them"));
                posted += 1;
            }
        }
        peers[0].post(0, send(b"end"));
        let end = Event::Received { queue_pair: 0, message: b"end".to_vec() };
        run(&mut peers, |[one, other]| {
            one.events.len() == posted + 1 && other.events.last() == Some(&end)
        });
        let content = peers[1].content(WRITABLE, Span::new(0, BYTES));
        prop_assert!(content[..at] == source[..at]);
        let kept = at.max(spare);
        prop_assert!(content[kept..] == before[kept..]);
    }
}
