//! How many calls messages take, which is the only visible effect of predictions.

use std::num::NonZeroUsize;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair,
};

use super::*;
use crate::buffer::{HeapBuffer, Span};
use crate::placed::Placed;
use crate::request::Message;
use crate::transmit::{Job, Transmit};

/// As much as a socket holds. The payloads of its 15 segments cannot all be equal.
const BYTES: usize = 128 * 1024;
const SEGMENT_BYTES: usize = 9000;

/// The longest message.
const MESSAGE_BYTES: usize = 192;

/// More than are needed.
const CALLS: usize = 64;

#[test]
fn a_message_that_is_cut_like_the_one_before_takes_two_calls() {
    let mut ends = Ends::new();
    let messages = [ends.message(), ends.message(), ends.message()];
    // The first message is not predicted and is staged completely.
    assert_eq!(ends.calls_for(&messages[0]), (true, 1));
    assert_eq!(ends.calls_for(&messages[1]), (true, 2));
    assert_eq!(ends.calls_for(&messages[2]), (true, 2));
}

#[test]
fn an_empty_socket_is_not_read_again() {
    let mut ends = Ends::new();
    let messages = [ends.message(), ends.message()];
    assert_eq!(ends.calls_for(&messages[0]), (true, 1));
    let (before, after) = messages[1].split_at(messages[1].len() / 2);
    assert_eq!(ends.calls_for(before), (false, 2));
    assert_eq!(ends.calls_for(after), (true, 1));
}

/// Adapters cut messages at packet boundaries.
#[test]
fn a_message_comes_in_segments() {
    let mut ends = Ends::new();
    let segments = [
        segment(Queue::Send, 1, 0, false, 100),
        segment(Queue::Send, 1, 100, true, MESSAGE_BYTES - 100),
        segment(Queue::Send, 2, 0, true, 5),
    ];
    let received = ends.receive(&segments.concat());
    let Some(Incoming::Message(message)) = received.unwrap() else {
        panic!("no message");
    };
    assert_eq!(message.len(), MESSAGE_BYTES);
    let received = ends.receive(&[]);
    assert_eq!(received.unwrap(), Some(Incoming::Message(vec![7; 5])));
}

#[test]
fn segments_that_do_not_fit_are_refused() {
    let refused = |second: Vec<u8>| {
        let first = segment(Queue::Send, 1, 0, false, 100);
        let received = Ends::new().receive(&[first, second].concat());
        received.unwrap_err()
    };
    assert!(matches!(
        refused(segment(Queue::Send, 1, 101, true, 1)),
        ReceiveError::Offset {
            seen: 101,
            wanted: 100
        }
    ));
    assert!(matches!(
        refused(segment(Queue::Send, 2, 100, true, 1)),
        ReceiveError::Order { seen: 2, wanted: 1 }
    ));
    assert!(matches!(
        refused(segment(Queue::Send, 1, 100, true, MESSAGE_BYTES - 99)),
        ReceiveError::TooLong { .. }
    ));
}

/// A TERMINATE may be longer than other messages of the peer, and arrive in the middle of one.
#[test]
fn the_end_of_the_connection_is_reported_at_any_point() {
    let mut ends = Ends::new();
    ends.receive = Receive::new(false, 32);
    let segments = [
        segment(Queue::Send, 1, 0, false, 10),
        segment(Queue::Terminate, 1, 0, true, 52),
    ];
    let received = ends.receive(&segments.concat());
    assert!(matches!(received, Ok(Some(Incoming::Terminate { .. }))));

    let too_long = segment(Queue::Terminate, 1, 0, true, MAX_CONTROL_BYTES + 1);
    let received = Ends::new().receive(&too_long);
    assert!(matches!(received, Err(ReceiveError::TooLong { .. })));
}

/// An encoded part of a message.
fn segment(queue: Queue, message: u32, offset: u32, last: bool, count: usize) -> Vec<u8> {
    let header = Header::Untagged {
        queue,
        last,
        message,
        offset,
    };
    let header = header.encode();
    let length = header.as_bytes().len() + count;
    let mut bytes = u16::try_from(length).unwrap().to_be_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.resize(LENGTH_BYTES + length, 7);
    bytes.extend(Trailer::new(length, None).as_bytes());
    bytes
}

/// A sender and a receiver with a socket pair between them.
struct Ends {
    memory: Arc<HeapBuffer>,
    regions: Regions,
    to: Remote,
    transmit: Transmit,
    receive: Receive,
    placed: Placed,
    sockets: [OwnedFd; 2],
}

impl Ends {
    fn new() -> Self {
        let memory = Arc::new(HeapBuffer::new(NonZeroUsize::new(BYTES).unwrap()));
        let mut regions = Regions::default();
        let region = regions.add(memory.clone(), Access::RemoteWrite);
        regions.set_spare(region.id, [Span::new(0, BYTES), Span::new(0, 0)]);
        Self {
            memory,
            regions,
            to: Remote {
                address: region.address,
                key: region.key,
            },
            transmit: Transmit::new(SEGMENT_BYTES, false),
            receive: Receive::new(false, MESSAGE_BYTES),
            placed: Placed::new(1),
            sockets: sockets(),
        }
    }

    /// An encoded WRITE and SEND.
    fn message(&mut self) -> Vec<u8> {
        let write = Job::Tagged {
            kind: Tagged::Write,
            memory: self.memory.clone(),
            span: Span::new(0, BYTES),
            to: self.to,
        };
        self.transmit.push(write, None);
        let message = Message::new(b"there").unwrap();
        self.transmit
            .push(Job::untagged(Queue::Send, message), None);
        let [ours, theirs] = sockets();
        let mut bytes = Vec::new();
        let mut some = vec![0; 2 * BYTES];
        while !self.transmit.is_idle() {
            self.transmit.send(ours.as_fd(), &mut Vec::new()).unwrap();
            let (_, count) = recv(&theirs, &mut some[..], RecvFlags::empty()).unwrap();
            bytes.extend_from_slice(&some[..count]);
        }
        bytes
    }

    /// Receives these bytes; returns whether the message has arrived and how many calls that took.
    /// All written data has arrived before it.
    fn calls_for(&mut self, bytes: &[u8]) -> (bool, usize) {
        let has_come = self.receive(bytes).unwrap().is_some();
        let all = Span::new(0, BYTES).addresses_in(self.memory.as_ref());
        assert_eq!(self.placed.covers(all), has_come);
        if has_come {
            self.placed.forget(all);
        }
        (has_come, CALLS - self.receive.staging.calls)
    }

    /// The event of these bytes or earlier ones, except WRITEs.
    fn receive(&mut self, bytes: &[u8]) -> Result<Option<Incoming>, ReceiveError> {
        let [ours, theirs] = &self.sockets;
        assert_eq!(send(ours, bytes, SendFlags::empty()), Ok(bytes.len()));
        self.receive.begin(CALLS);
        loop {
            let next = self.receive.next(theirs.as_fd(), &self.regions, &NoReads)?;
            match next {
                Some(Incoming::Written(part)) => self.placed.add(part)?,
                other => return Ok(other),
            }
        }
    }
}

/// Sockets that keep everything that is sent until it is received with one call.
fn sockets() -> [OwnedFd; 2] {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let pair = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None);
    pair.unwrap().into()
}

/// No READ is outstanding.
struct NoReads;

impl Sinks for NoReads {
    fn sink(&self, _: Remote, _: usize) -> Option<Sink> {
        None
    }
}
