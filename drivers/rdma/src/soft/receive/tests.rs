//! How many calls messages take: whether anything was guessed of them shows nowhere else.

use std::num::NonZeroUsize;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair};

use super::*;
use crate::soft::transmit::{Job, Transmit};

/// As much as a socket holds. The payloads of its 15 segments cannot all be alike.
const BYTES: usize = 128 * 1024;
const SEGMENT_BYTES: usize = 9000;

/// More than are needed.
const CALLS: usize = 64;

#[test]
fn a_message_that_is_cut_like_the_one_before_takes_two_calls() {
    let mut ends = Ends::new();
    let messages = [ends.message(), ends.message(), ends.message()];
    // Nobody expects the first one, and all of it is staged.
    assert_eq!(ends.calls_for(&messages[0]), (true, 1));
    assert_eq!(ends.calls_for(&messages[1]), (true, 2));
    assert_eq!(ends.calls_for(&messages[2]), (true, 2));
}

#[test]
fn nobody_looks_for_more_than_there_was() {
    let mut ends = Ends::new();
    let messages = [ends.message(), ends.message()];
    assert_eq!(ends.calls_for(&messages[0]), (true, 1));
    let (before, after) = messages[1].split_at(messages[1].len() / 2);
    assert_eq!(ends.calls_for(before), (false, 2));
    assert_eq!(ends.calls_for(after), (true, 1));
}

/// A sender, a receiver, and what is between them.
struct Ends {
    memory: Arc<Memory>,
    regions: Regions,
    to: Remote,
    transmit: Transmit,
    receive: Receive,
    sockets: [OwnedFd; 2],
}

impl Ends {
    fn new() -> Self {
        let memory = Arc::new(Memory::new(NonZeroUsize::new(BYTES).unwrap()).unwrap());
        let mut regions = Regions::default();
        let region = regions.add(&memory, Access::RemoteWrite);
        regions.set_spare([Span::new(0, BYTES), Span::new(0, 0)]);
        Self {
            memory,
            regions,
            to: Remote {
                address: region.address,
                key: region.key,
            },
            transmit: Transmit::new(SEGMENT_BYTES, false),
            receive: Receive::new(false),
            sockets: sockets(),
        }
    }

    /// A WRITE and a SEND, as they go over the wire.
    fn message(&mut self) -> Vec<u8> {
        let write = Job::Tagged {
            kind: Tagged::Write,
            memory: Arc::clone(&self.memory),
            span: Span::new(0, BYTES),
            to: self.to,
        };
        self.transmit.push(write, None);
        let queue = Queue::Send;
        let message = Message::new(b"there").unwrap();
        self.transmit.push(Job::Untagged { queue, message }, None);
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

    /// Receives these bytes; returns whether the message has come, and how many calls looked for it.
    fn calls_for(&mut self, bytes: &[u8]) -> (bool, usize) {
        let [ours, theirs] = &self.sockets;
        assert_eq!(send(ours, bytes, SendFlags::empty()), Ok(bytes.len()));
        self.receive.begin(CALLS);
        let event = self.receive.next(theirs.as_fd(), &self.regions, &NoReads);
        (event.unwrap().is_some(), CALLS - self.receive.calls)
    }
}

/// These keep all that is sent until it is received, and give it with one call.
fn sockets() -> [OwnedFd; 2] {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let pair = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None);
    pair.unwrap().into()
}

/// Nobody has asked for anything.
struct NoReads;

impl Sinks for NoReads {
    fn sink(&self, _: Remote, _: usize) -> Option<Sink> {
        None
    }
}
