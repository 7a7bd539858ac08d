//! A queue pair of a reliable connection: what was posted, what is acknowledged, what is expected.
//!
//! Packets are numbered, as in the InfiniBand architecture (9.7): a WRITE or a SEND has a number for each of its packets,
//! a READ one for each packet of its response. The requester goes back to the first packet that is missing, when the
//! responder says so or nothing is heard for a time; the responder takes packets in order and complains once of a gap.

use std::collections::VecDeque;
use std::time::Duration;

use crate::provider::{Request, Work};

/// One end of a queue pair.
#[derive(Debug)]
pub(crate) struct QueuePair {
    /// How often it was replaced.
    pub(crate) generation: u32,
    pub(crate) living: bool,
    /// When the requester looks whether anything was acknowledged.
    pub(crate) deadline: Option<Duration>,
    /// How often it went back since something was acknowledged.
    pub(crate) retries: u32,
    /// How often it went back.
    pub(crate) repeats: u64,
    /// How often it did because the responder missed something.
    pub(crate) misses: u64,
    /// It has a place among those that wait for the port.
    pub(crate) queued: bool,
    /// It ends when all of its requests are done.
    pub(crate) closing: bool,
    packet_bytes: u64,
    requests: VecDeque<Pending>,
    /// The number after the last request's.
    end: u64,
    /// All before this one was handed to the port.
    sent: u64,
    /// All before this one is acknowledged.
    acknowledged: u64,
    /// What the responder has acknowledged, READs aside: those are by their response.
    heard: u64,
    /// The response of a READ has a gap, and was asked for again: once, for what is on its way has the same gap.
    asked: bool,
    /// The number that the responder takes next.
    expected: u64,
    complained: bool,
    responses: VecDeque<Train>,
}

/// A request that is not acknowledged.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pending {
    pub(crate) request: Request,
    pub(crate) first: u64,
    pub(crate) packets: u64,
}

/// Packets behind each other, of one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Train {
    pub(crate) kind: Kind,
    pub(crate) first: u64,
    /// Of a READ: those that it asks for.
    pub(crate) packets: u64,
}

/// What a train carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A WRITE or a SEND.
    Message,
    /// The request of a READ.
    Read,
    /// Its response.
    Response,
}

/// What the responder makes of a train.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It continues what was there, from this packet on.
    Takes { from: u64 },
    /// All of it was there.
    Duplicate,
    /// Something before it is missing; `complains` if that was not said before.
    Gap { complains: bool },
}

impl QueuePair {
    pub(crate) fn new(generation: u32, packet_bytes: u64) -> Self {
        Self {
            generation,
            living: true,
            deadline: None,
            retries: 0,
            repeats: 0,
            misses: 0,
            queued: false,
            closing: false,
            packet_bytes,
            requests: VecDeque::new(),
            end: 0,
            sent: 0,
            acknowledged: 0,
            heard: 0,
            asked: false,
            expected: 0,
            complained: false,
            responses: VecDeque::new(),
        }
    }

    pub(crate) fn post(&mut self, request: Request) {
        let packets = length(&request).div_ceil(self.packet_bytes).max(1);
        self.requests.push_back(Pending {
            request,
            first: self.end,
            packets,
        });
        self.end += packets;
    }

    /// Requests without completion.
    pub(crate) fn pending(&self) -> usize {
        self.requests.len()
    }

    /// READs among them.
    pub(crate) fn reads(&self) -> usize {
        let is_read = |pending: &&Pending| matches!(pending.request.work, Work::Read { .. });
        self.requests.iter().filter(is_read).count()
    }

    /// The request that a packet belongs to, while it is not acknowledged.
    pub(crate) fn find(&self, packet: u64) -> Option<Pending> {
        let after = self
            .requests
            .partition_point(|pending| pending.first <= packet);
        let pending = self.requests.get(after.checked_sub(1)?)?;
        (packet < pending.first + pending.packets).then_some(*pending)
    }

    /// The bytes of a request that packets from `first` up to `end` carry.
    pub(crate) fn bytes(&self, pending: &Pending, first: u64, end: u64) -> std::ops::Range<u64> {
        let length = length(&pending.request);
        let place = |packet: u64| ((packet - pending.first) * self.packet_bytes).min(length);
        place(first)..place(end)
    }

    /// The next train for the port.
    pub(crate) fn next_train(&mut self) -> Option<Train> {
        if let Some(response) = self.responses.pop_front() {
            return Some(response);
        }
        let pending = self.find(self.sent)?;
        let train = Train {
            kind: match pending.request.work {
                Work::Read { .. } => Kind::Read,
                Work::Write { .. } | Work::Send(_) | Work::Carry { .. } => Kind::Message,
            },
            first: self.sent,
            packets: pending.first + pending.packets - self.sent,
        };
        self.sent += train.packets;
        Some(train)
    }

    pub(crate) fn has_train(&self) -> bool {
        !self.responses.is_empty() || self.sent < self.end
    }

    /// Whether something was sent and not acknowledged.
    pub(crate) fn is_waiting(&self) -> bool {
        self.acknowledged < self.sent
    }

    /// The responder has taken all before `packet`, or the response to a READ up to there has come. Moves what is
    /// done to `done`; `false` if that is not news.
    pub(crate) fn acknowledge(&mut self, packet: u64, done: &mut Vec<u64>) -> bool {
        self.heard = self.heard.max(packet);
        let held_back = self.requests.iter().find_map(|pending| {
            let is_read = matches!(pending.request.work, Work::Read { .. });
            is_read.then_some(pending.first.max(self.acknowledged))
        });
        self.settle(
            held_back.map_or(self.heard, |first| first.min(self.heard)),
            done,
        )
    }

    /// Packets of the response to a READ have come, from `first` up to `end`. A response says that everything before its
    /// READ was taken.
    pub(crate) fn respond(
        &mut self,
        first: u64,
        end: u64,
        has_gap: bool,
        done: &mut Vec<u64>,
    ) -> Verdict {
        if end <= self.acknowledged {
            return Verdict::Duplicate;
        }
        let is_read = |pending: &&Pending| matches!(pending.request.work, Work::Read { .. });
        let oldest = self.requests.iter().find(is_read);
        let awaited = oldest.map(|read| read.first.max(self.acknowledged));
        if awaited.is_none_or(|awaited| first > awaited || first == end) {
            let complains = !std::mem::replace(&mut self.asked, true);
            return Verdict::Gap { complains };
        }
        self.asked = has_gap;
        let from = self.acknowledged.max(first);
        self.settle(end, done);
        // What was acknowledged behind the READ, up to the next one.
        self.acknowledge(end, done);
        Verdict::Takes { from }
    }

    fn settle(&mut self, packet: u64, done: &mut Vec<u64>) -> bool {
        // Nobody can acknowledge what was not sent.
        let packet = packet.min(self.end);
        if packet <= self.acknowledged {
            return false;
        }
        self.acknowledged = packet;
        self.sent = self.sent.max(packet);
        self.retries = 0;
        while let Some(first) = self.requests.front()
            && first.first + first.packets <= packet
        {
            done.push(first.request.id);
            self.requests.pop_front();
        }
        true
    }

    /// Sends again from `packet` on, or from the first that is not acknowledged.
    pub(crate) fn go_back(&mut self, packet: u64) {
        self.repeats += 1;
        self.sent = packet.clamp(self.acknowledged, self.sent.max(self.acknowledged));
    }

    /// What the responder makes of a train of which `packets` have come.
    pub(crate) fn arrive(&mut self, first: u64, packets: u64) -> Verdict {
        if first > self.expected || packets == 0 {
            return Verdict::Gap {
                complains: self.complain(),
            };
        }
        if first + packets <= self.expected {
            return Verdict::Duplicate;
        }
        let from = self.expected;
        self.expected = first + packets;
        self.complained = false;
        Verdict::Takes { from }
    }

    /// The packet that the responder takes next is missing. `false` if it has said so already.
    pub(crate) fn complain(&mut self) -> bool {
        !std::mem::replace(&mut self.complained, true)
    }

    /// The number that the responder takes next.
    pub(crate) fn expected(&self) -> u64 {
        self.expected
    }

    /// Answers a READ.
    pub(crate) fn answer(&mut self, read: Train) {
        self.responses.push_back(Train {
            kind: Kind::Response,
            ..read
        });
    }
}

/// In bytes.
fn length(request: &Request) -> u64 {
    match &request.work {
        Work::Write { span, .. } | Work::Read { span, .. } => span.length as u64,
        Work::Send(message) => message.as_bytes().len() as u64,
        Work::Carry { message, span, .. } => (message.as_bytes().len() + span.length) as u64,
    }
}
