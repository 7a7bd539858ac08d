//! A queue pair of a reliable connection: posted, acknowledged and expected packets.
//!
//! Packets are numbered as in the InfiniBand architecture (9.7): a WRITE or a SEND has a number for
//! each of its packets, a READ one for each packet of its response. The requester goes back to the
//! first missing packet on a NAK or a timeout; the responder takes packets in order and sends one
//! NAK for a gap. Devices that repeat only what is missing use [`selective`](super::selective) in addition.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use super::congestion::ReactionPoint;
use super::selective::{Held, Repair};
use crate::provider::{Request, Work};

/// One end of a queue pair.
#[derive(Debug)]
pub(crate) struct QueuePair {
    /// How many times it was replaced.
    pub(crate) generation: u32,
    pub(crate) living: bool,
    /// When the requester's timer expires.
    pub(crate) deadline: Option<Duration>,
    /// Retransmissions since the last acknowledgement.
    pub(crate) retries: u32,
    /// Retransmissions in all.
    pub(crate) repeats: u64,
    /// Retransmissions because of a NAK.
    pub(crate) misses: u64,
    /// It is queued for the port, or rests before.
    pub(crate) queued: bool,
    /// It sends nothing before this moment, because its own rate is lower than the port's.
    pub(crate) rests_until: Duration,
    /// Its rate, where devices react to marked packets, and when its last notification of such packets was sent.
    pub(crate) reaction: Option<ReactionPoint>,
    pub(crate) notified_at: Option<Duration>,
    /// It ends when all of its requests have completed.
    pub(crate) closing: bool,
    packet_bytes: u64,
    requests: VecDeque<Pending>,
    /// The number after the last request's.
    end: u64,
    /// Everything before this number was handed to the port.
    sent: u64,
    /// Everything before this number is acknowledged.
    acknowledged: u64,
    /// Everything before this number is acknowledged by the responder, except for READs, which are
    /// acknowledged by their responses.
    acknowledged_by_peer: u64,
    /// Whether a READ response with a gap was requested again. That happens once, because packets in
    /// flight have the same gap.
    requested_again: bool,
    /// The next number that the responder takes.
    expected: u64,
    has_sent_nak: bool,
    responses: VecDeque<Train>,
    /// With selective repeat: the requester's knowledge of losses, and what the responder holds.
    repair: Repair,
    held: Held<Kind>,
}

/// An unacknowledged request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pending {
    pub(crate) request: Request,
    pub(crate) first: u64,
    pub(crate) packets: u64,
}

/// Consecutive packets of one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Train {
    pub(crate) kind: Kind,
    pub(crate) first: u64,
    /// For a READ, the requested packets.
    pub(crate) packets: u64,
}

/// The contents of a train.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A WRITE or a SEND.
    Message,
    /// The request of a READ.
    Read,
    /// The response of a READ.
    Response,
}

/// The responder's verdict on a train.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It continues at this packet.
    Takes { from: u64 },
    /// All of it had arrived before.
    Duplicate,
    /// An earlier packet is missing; `sends_nak` if that needs a NAK.
    Gap { sends_nak: bool },
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
            rests_until: Duration::ZERO,
            reaction: None,
            notified_at: None,
            closing: false,
            packet_bytes,
            requests: VecDeque::new(),
            end: 0,
            sent: 0,
            acknowledged: 0,
            acknowledged_by_peer: 0,
            requested_again: false,
            expected: 0,
            has_sent_nak: false,
            responses: VecDeque::new(),
            repair: Repair::default(),
            held: Held::new(),
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

    /// Outstanding requests.
    pub(crate) fn pending(&self) -> usize {
        self.requests.len()
    }

    /// Outstanding READs.
    pub(crate) fn reads(&self) -> usize {
        let is_read = |pending: &&Pending| matches!(pending.request.work, Work::Read { .. });
        self.requests.iter().filter(is_read).count()
    }

    /// The unacknowledged request that a packet belongs to.
    pub(crate) fn find(&self, packet: u64) -> Option<Pending> {
        let after = self
            .requests
            .partition_point(|pending| pending.first <= packet);
        let pending = self.requests.get(after.checked_sub(1)?)?;
        (packet < pending.first + pending.packets).then_some(*pending)
    }

    /// The bytes of a request in its packets from `first` up to `end`.
    pub(crate) fn bytes(&self, pending: &Pending, first: u64, end: u64) -> Range<u64> {
        let length = length(&pending.request);
        let place = |packet: u64| ((packet - pending.first) * self.packet_bytes).min(length);
        place(first)..place(end)
    }

    /// The next train for the port, of at most so many packets.
    pub(crate) fn next_train(&mut self, most: u64) -> Option<Train> {
        if let Some(response) = self.responses.front_mut() {
            let train = Train {
                packets: response.packets.min(most),
                ..*response
            };
            response.first += train.packets;
            response.packets -= train.packets;
            self.responses.pop_front_if(|rest| rest.packets == 0);
            return Some(train);
        }
        if let Some(wanted) = self.repair.next() {
            let train = self.train_at(wanted.start, most.min(wanted.end - wanted.start))?;
            self.repair
                .put_back(train.first + train.packets..wanted.end);
            return Some(train);
        }
        let train = self.train_at(self.sent, most)?;
        self.sent += train.packets;
        Some(train)
    }

    /// The train that begins with this packet, of at most so many packets. The request of a READ is one packet.
    fn train_at(&self, first: u64, most: u64) -> Option<Train> {
        let pending = self.find(first)?;
        let rest = pending.first + pending.packets - first;
        let (kind, packets) = match pending.request.work {
            Work::Read { .. } => (Kind::Read, rest),
            Work::Write { .. } | Work::Send(_) | Work::Carry { .. } => {
                (Kind::Message, rest.min(most))
            }
        };
        Some(Train {
            kind,
            first,
            packets,
        })
    }

    pub(crate) fn has_train(&self) -> bool {
        !self.responses.is_empty() || !self.repair.is_empty() || self.sent < self.end
    }

    /// Whether something sent is unacknowledged.
    pub(crate) fn is_waiting(&self) -> bool {
        self.acknowledged < self.sent
    }

    /// The responder has taken everything before `packet`, or the response to a READ up to there
    /// has arrived. Moves completed requests to `done`; returns whether the acknowledgement advanced.
    pub(crate) fn acknowledge(&mut self, packet: u64, done: &mut Vec<u64>) -> bool {
        self.acknowledged_by_peer = self.acknowledged_by_peer.max(packet);
        let first_read = self.requests.iter().find_map(|pending| {
            let is_read = matches!(pending.request.work, Work::Read { .. });
            is_read.then_some(pending.first.max(self.acknowledged))
        });
        self.settle(
            first_read.map_or(self.acknowledged_by_peer, |first| {
                first.min(self.acknowledged_by_peer)
            }),
            done,
        )
    }

    /// Packets of a READ response from `first` up to `end` have arrived. A response acknowledges
    /// everything before its READ.
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
            let sends_nak = !std::mem::replace(&mut self.requested_again, true);
            return Verdict::Gap { sends_nak };
        }
        self.requested_again = has_gap;
        let from = self.acknowledged.max(first);
        self.settle(end, done);
        // The responder has acknowledged the requests behind the READ, up to the next one.
        self.acknowledge(end, done);
        Verdict::Takes { from }
    }

    fn settle(&mut self, packet: u64, done: &mut Vec<u64>) -> bool {
        // Only sent packets can be acknowledged.
        let packet = packet.min(self.end);
        if packet <= self.acknowledged {
            return false;
        }
        self.acknowledged = packet;
        self.sent = self.sent.max(packet);
        self.repair.acknowledge(packet);
        self.retries = 0;
        while let Some(first) = self.requests.front()
            && first.first + first.packets <= packet
        {
            done.push(first.request.id);
            self.requests.pop_front();
        }
        true
    }

    /// Retransmits from `packet` on, or from the first unacknowledged one.
    pub(crate) fn go_back(&mut self, packet: u64) {
        self.repeats += 1;
        self.sent = packet.clamp(self.acknowledged, self.sent.max(self.acknowledged));
        self.repair.go_back(self.sent);
    }

    /// Retransmits what was lost, after the responder has told which packets arrived behind a missing one.
    pub(crate) fn repair(&mut self, arrived: &[Range<u64>]) {
        if self.repair.heard(self.acknowledged, arrived) {
            self.repeats += 1;
            self.misses += 1;
        }
    }

    /// Retransmits all packets that are not known to have arrived.
    pub(crate) fn repeat_all(&mut self) {
        self.repeats += 1;
        self.repair.repeat_all(self.acknowledged..self.sent);
    }

    /// Holds packets until those before them have arrived.
    pub(crate) fn hold(&mut self, packets: Range<u64>, kind: Kind) {
        self.held.hold(packets, kind);
    }

    /// Takes the next packets that are held, all of one message, if none before them is missing.
    pub(crate) fn take_held(&mut self) -> Option<(Range<u64>, Kind)> {
        let (packets, kind) = self.held.take(self.expected)?;
        self.expected = packets.end;
        Some((packets, kind))
    }

    /// Whether packets wait for a missing one.
    pub(crate) fn has_held(&self) -> bool {
        !self.held.is_empty()
    }

    /// The responder's verdict on the first `packets` packets of a train.
    pub(crate) fn arrive(&mut self, first: u64, packets: u64) -> Verdict {
        if first > self.expected || packets == 0 {
            return Verdict::Gap {
                sends_nak: self.mark_nak(),
            };
        }
        if first + packets <= self.expected {
            return Verdict::Duplicate;
        }
        let from = self.expected;
        self.expected = first + packets;
        self.has_sent_nak = false;
        Verdict::Takes { from }
    }

    /// The next expected packet is missing. Returns `false` if a NAK was sent already.
    pub(crate) fn mark_nak(&mut self) -> bool {
        !std::mem::replace(&mut self.has_sent_nak, true)
    }

    /// The next number that the responder takes.
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
