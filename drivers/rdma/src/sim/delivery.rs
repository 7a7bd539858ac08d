//! How the devices at both ends react to arriving packets.

use std::ops::Range;

use super::event::{EventKind, Place};
use super::fabric::Fabric;
use super::link::Arrival;
use super::queue_pair::{Kind, Pending, Train, Verdict};
use super::regions::copy;
use super::settings::Repeat;
use crate::memory::Span;
use crate::provider::{Access, Completion, Remote, Work, rail_of};

impl Fabric {
    /// Packets of a train have arrived.
    pub(crate) fn arrive(&mut self, place: Place, train: Train, arrival: &Arrival) {
        if !self.lives(place) {
            return;
        }
        if arrival.is_marked {
            self.notify(place);
        }
        let (packets, has_gap) = (arrival.packets, arrival.has_gap);
        match (train.kind, self.settings.repeat) {
            (Kind::Response, _) => self.take_response(place, train, packets, has_gap),
            (_, Repeat::GoBackN) => self.take(place, train, packets, has_gap),
            (_, Repeat::Selective) => self.take_in_any_order(place, train, arrival),
        }
    }

    /// The responder's part with selective repeat: packets behind a missing one are held.
    fn take_in_any_order(&mut self, place: Place, train: Train, arrival: &Arrival) {
        let awaited = self.queue_pair(place).expected();
        if train.kind == Kind::Read && train.first < awaited {
            // A repeated request is answered again.
            self.queue_pair(place).answer(train);
            return self.queue(place);
        }
        let leading = (arrival.packets > 0).then_some(0..arrival.packets);
        let parts = leading.into_iter().chain(arrival.later.iter().cloned());
        let parts: Vec<_> = parts
            .map(|part| train.first + part.start..train.first + part.end)
            .filter(|part| part.end > awaited)
            .collect();
        for part in &parts {
            self.queue_pair(place).hold(part.clone(), train.kind);
        }
        while let Some((packets, kind)) = self.queue_pair(place).take_held() {
            let pending = self.queue_pair(place.peer()).find(packets.start);
            let allowed = pending.map_or(Ok(()), |pending| self.allow(place, &pending));
            if let Err(reason) = allowed {
                return self.refuse(place, reason);
            }
            if kind == Kind::Read {
                self.queue_pair(place).answer(Train {
                    kind,
                    first: packets.start,
                    packets: packets.end - packets.start,
                });
                self.queue(place);
            } else {
                self.deliver(place, packets.start, packets.end);
            }
        }
        let packet = self.queue_pair(place).expected();
        if self.queue_pair(place).has_held() {
            let arrived = parts.into_iter().filter(|part| part.end > packet);
            let arrived = arrived.collect();
            self.send_control(place, EventKind::Missing { packet, arrived });
        } else if train.kind == Kind::Message {
            self.send_control(place, EventKind::Acknowledged { packet });
        }
    }

    /// The responder's part.
    fn take(&mut self, place: Place, train: Train, packets: u64, has_gap: bool) {
        let allowed = match self.queue_pair(place.peer()).find(train.first) {
            Some(pending) => self.allow(place, &pending),
            // It was acknowledged before.
            None => Ok(()),
        };
        let in_sequence = train.first <= self.queue_pair(place).expected();
        if let Err(reason) = allowed
            && in_sequence
        {
            return self.refuse(place, reason);
        }
        let verdict = self.queue_pair(place).arrive(train.first, packets);
        if let Verdict::Takes { from } = verdict
            && train.kind == Kind::Message
        {
            self.deliver(place, from, train.first + packets);
        }
        let mut sends_nak = verdict == Verdict::Gap { sends_nak: true };
        if has_gap && packets > 0 && train.first + packets == self.queue_pair(place).expected() {
            sends_nak |= self.queue_pair(place).mark_nak();
        }
        let packet = self.queue_pair(place).expected();
        if sends_nak {
            let arrived = Vec::new();
            self.send_control(place, EventKind::Missing { packet, arrived });
        } else if !matches!(verdict, Verdict::Gap { .. }) {
            if train.kind == Kind::Read {
                // A repeated request is answered again.
                self.queue_pair(place).answer(train);
                self.queue(place);
            } else {
                self.send_control(place, EventKind::Acknowledged { packet });
            }
        }
    }

    /// The peer's request is not allowed.
    fn refuse(&mut self, place: Place, reason: &'static str) {
        self.send_control(place, EventKind::Refused { reason });
        self.fail(place, reason);
    }

    /// Whether the peer's request is allowed.
    fn allow(&mut self, place: Place, pending: &Pending) -> Result<(), &'static str> {
        let (remote, span, access) = match pending.request.work {
            Work::Write { span, to, .. } => (to, span, Access::RemoteWrite),
            Work::Read { span, from, .. } => (from, span, Access::RemoteRead),
            Work::Send(_) | Work::Carry { .. } => return Ok(()),
        };
        let rail = rail_of(place.queue_pair, self.rails());
        let regions = &self.end(place).regions;
        regions
            .check(rail, remote, span.length as u64, access)
            .map(|_| ())
    }

    /// Carries out the packets of one message from `from` up to `end`.
    fn deliver(&mut self, place: Place, from: u64, end: u64) {
        let Some(pending) = self.queue_pair(place.peer()).find(from) else {
            return;
        };
        match pending.request.work {
            Work::Write {
                region,
                span,
                to,
                immediate,
            } => {
                let (skip, length) = self.part(place.peer(), &pending, from, end);
                let source = Span::new(span.offset + skip, length);
                let to = Remote {
                    address: to.address + skip as u64,
                    ..to
                };
                let rail = rail_of(place.queue_pair, self.rails());
                let here = &self.hosts[place.host].ends[place.channel].regions;
                let there = &self.hosts[1 - place.host].ends[place.channel].regions;
                if let Ok((sink, place)) = here.check(rail, to, length as u64, Access::RemoteWrite)
                {
                    copy((there, region, source), (here, sink, place));
                }
                if let Some(immediate) = immediate
                    && end == pending.first + pending.packets
                {
                    let written = Completion::Written {
                        queue_pair: place.queue_pair,
                        immediate,
                        length: u32::try_from(span.length).unwrap_or(u32::MAX),
                    };
                    self.complete(place, written);
                }
            }
            Work::Send(message) if end == pending.first + pending.packets => {
                self.receive(place, message.as_bytes().to_vec());
            }
            Work::Carry {
                message,
                region,
                span,
            } if end == pending.first + pending.packets => {
                let there = &self.hosts[1 - place.host].ends[place.channel].regions;
                let payload = there.content(region, span);
                self.receive(place, [message.as_bytes(), &payload].concat());
            }
            Work::Send(_) | Work::Carry { .. } | Work::Read { .. } => {}
        }
    }

    /// The other device has sent a complete message.
    fn receive(&mut self, place: Place, message: Vec<u8>) {
        let queue_pair = place.queue_pair;
        let received = Completion::Received {
            queue_pair,
            message,
        };
        self.complete(place, received);
    }

    /// Which bytes of a request its packets from `from` up to `end` carry, as offset and length.
    fn part(&mut self, requester: Place, pending: &Pending, from: u64, end: u64) -> (usize, usize) {
        let bytes = self.queue_pair(requester).bytes(pending, from, end);
        let fits = "a part of a span";
        let skip = usize::try_from(bytes.start).expect(fits);
        (skip, usize::try_from(bytes.end - bytes.start).expect(fits))
    }

    /// The requester's part when a response arrives.
    fn take_response(&mut self, place: Place, train: Train, packets: u64, has_gap: bool) {
        let end = train.first + packets;
        let pending = self.queue_pair(place).find(train.first);
        let mut done = Vec::new();
        let queue_pair = self.queue_pair(place);
        let verdict = queue_pair.respond(train.first, end, has_gap, &mut done);
        if let (Verdict::Takes { from }, Some(pending)) = (verdict, pending)
            && let Work::Read {
                region,
                span,
                from: remote,
            } = pending.request.work
        {
            let (skip, length) = self.part(place, &pending, from, end);
            let sink = Span::new(span.offset + skip, length);
            let remote = Remote {
                address: remote.address + skip as u64,
                ..remote
            };
            let rail = rail_of(place.queue_pair, self.rails());
            let here = &self.hosts[place.host].ends[place.channel].regions;
            let there = &self.hosts[1 - place.host].ends[place.channel].regions;
            if let Ok((source, place)) =
                there.check(rail, remote, length as u64, Access::RemoteRead)
            {
                copy((there, source, place), (here, region, sink));
            }
        }
        self.complete_all(place, &done);
        let is_missing = match verdict {
            Verdict::Takes { .. } => has_gap,
            Verdict::Gap { sends_nak } => sends_nak,
            Verdict::Duplicate => false,
        };
        if is_missing && self.lives(place) {
            self.queue_pair(place).go_back(0);
            self.queue(place);
        }
    }

    /// The other device has acknowledged all packets before `packet`.
    pub(crate) fn acknowledged(&mut self, place: Place, packet: u64) {
        if !self.lives(place) {
            return;
        }
        let mut done = Vec::new();
        if self.queue_pair(place).acknowledge(packet, &mut done) {
            self.complete_all(place, &done);
        }
    }

    fn complete_all(&mut self, place: Place, done: &[u64]) {
        for &id in done {
            let queue_pair = place.queue_pair;
            self.complete(place, Completion::Done { queue_pair, id });
        }
        let from = self.now.max(self.port(place).wire.free_at());
        if self.queue_pair(place).is_waiting() {
            self.watch(place, from);
        }
        self.close_if_done(place);
    }

    /// The other device misses a packet: it and everything after it are retransmitted, or what is missing before the packets
    /// that have just arrived.
    pub(crate) fn missing(&mut self, place: Place, packet: u64, arrived: &[Range<u64>]) {
        self.acknowledged(place, packet);
        if !self.lives(place) {
            return;
        }
        match self.settings.repeat {
            Repeat::GoBackN => {
                self.queue_pair(place).misses += 1;
                self.queue_pair(place).go_back(packet);
            }
            Repeat::Selective => self.queue_pair(place).repair(arrived),
        }
        self.queue(place);
    }

    /// The other device refused the request.
    pub(crate) fn refused(&mut self, place: Place, reason: &str) {
        if self.lives(place) {
            self.fail(place, reason);
        }
    }

    /// Marked packets have arrived: the device notifies the sender's, unless it has done so lately.
    fn notify(&mut self, place: Place) {
        let Some(law) = self.settings.congestion_control else {
            return;
        };
        let now = self.now;
        let notified_at = &mut self.queue_pair(place).notified_at;
        if notified_at.is_none_or(|at| now >= at + law.notification_interval) {
            *notified_at = Some(now);
            self.send_control(place, EventKind::Congested);
        }
    }

    /// The other device has seen marked packets of this queue pair.
    pub(super) fn congested(&mut self, place: Place) {
        let now = self.now;
        if self.lives(place)
            && let Some(reaction) = &mut self.queue_pair(place).reaction
        {
            reaction.cut(now);
        }
    }

    /// Sends a control packet to the other device.
    fn send_control(&mut self, place: Place, kind: EventKind) {
        let rail = rail_of(place.queue_pair, self.rails());
        let wire = &mut self.hosts[place.host].ports[rail].wire;
        if let Some(at) = wire.carry_control(self.now, &mut self.random) {
            self.plan(at, place.peer(), kind);
        }
    }
}
