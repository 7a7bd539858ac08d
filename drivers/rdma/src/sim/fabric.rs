//! Two hosts, the path between them, and time.
//!
//! The fabric is a queue of future events in order. It does not depend on the machine, so a seed
//! replays a run exactly. Each train of packets causes three events: the port is free again, the
//! train arrives, it is acknowledged.

use std::collections::{BinaryHeap, VecDeque};
use std::ops::Range;
use std::time::Duration;

use super::congestion::ReactionPoint;
use super::event::{Event, EventKind, Place};
use super::link::{Link, Wire};
use super::queue_pair::{Kind, QueuePair, Train};
use super::random::Random;
use super::regions::Regions;
use super::settings::{FOR_EVER, FabricSettings, Naps, Repeat};
use crate::pacing::time_of;
use crate::provider::{Completion, rail_of};

/// The length of a READ request in bytes.
const READ_REQUEST_BYTES: u64 = 16;

/// The state of the simulation.
#[derive(Debug)]
pub(crate) struct Fabric {
    pub(crate) settings: FabricSettings,
    pub(crate) hosts: [Host; 2],
    pub(crate) now: Duration,
    pub(crate) random: Random,
    events: BinaryHeap<Event>,
    /// Events so far: events of one moment happen in the order in which they were scheduled.
    planned: u64,
}

/// A host and its ports.
#[derive(Debug)]
pub(crate) struct Host {
    /// One for each rail.
    pub(crate) ports: Vec<Port>,
    pub(crate) ends: Vec<End>,
}

/// A port of a host.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) wire: Wire,
    /// Queue pairs with packets to send, in round-robin order.
    turns: VecDeque<(usize, usize)>,
    /// The port is busy, and an event is scheduled for when it is free.
    busy: bool,
    /// The port's next or last nap.
    nap: Range<Duration>,
}

/// One end of a channel.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) queue_pairs: Vec<QueuePair>,
    pub(crate) regions: Regions,
    pub(crate) completions: VecDeque<Completion>,
    /// Its user has ended it, and no queue pair is restored any more.
    pub(crate) is_ended: bool,
    /// Its user has dropped or aborted it.
    pub(crate) is_over: bool,
}

impl Fabric {
    pub(crate) fn new(settings: FabricSettings) -> Self {
        let wire = |link: &Link| match settings.repeat {
            Repeat::GoBackN => Wire::new(link.clone()),
            Repeat::Selective => Wire::new(link.clone()).telling_all(),
        };
        let port = |link: &Link| Port {
            wire: wire(link),
            turns: VecDeque::new(),
            busy: false,
            nap: Duration::ZERO..Duration::ZERO,
        };
        let links = || std::iter::once(&settings.links).chain(&settings.rails);
        let host = |number: usize| Host {
            ports: links().map(|links| port(&links[number])).collect(),
            ends: Vec::new(),
        };
        Self {
            hosts: [host(0), host(1)],
            random: Random::new(settings.seed),
            settings,
            now: Duration::ZERO,
            events: BinaryHeap::new(),
            planned: 0,
        }
    }

    /// Connects both ends of a new channel; returns its number.
    pub(crate) fn connect(&mut self, queue_pairs: usize) -> usize {
        for host in 0..self.hosts.len() {
            let queue_pairs = (0..queue_pairs).map(|number| self.new_queue_pair(host, number, 0));
            let queue_pairs = queue_pairs.collect();
            self.hosts[host].ends.push(End {
                queue_pairs,
                regions: Regions::default(),
                completions: VecDeque::new(),
                is_ended: false,
                is_over: false,
            });
        }
        self.hosts[0].ends.len() - 1
    }

    /// A queue pair of a host, connected.
    pub(crate) fn new_queue_pair(&self, host: usize, number: usize, generation: u32) -> QueuePair {
        let settings = &self.settings;
        let mut queue_pair = QueuePair::new(generation, settings.packet_bytes);
        let rail = rail_of(number, self.rails());
        let line = self.hosts[host].ports[rail].wire.rate();
        let law = settings.congestion_control;
        queue_pair.reaction = law.map(|law| ReactionPoint::new(law, line));
        queue_pair
    }

    /// The time of the next event.
    pub(crate) fn next_at(&self) -> Option<Duration> {
        self.events.peek().map(|event| event.at)
    }

    /// Handles all events until `now`.
    pub(crate) fn run_until(&mut self, now: Duration) {
        while let Some(event) = self.events.peek()
            && event.at <= now
            && let Some(event) = self.events.pop()
        {
            self.now = self.now.max(event.at);
            self.happen(event.place, event.kind);
        }
        self.now = self.now.max(now);
    }

    pub(crate) fn plan(&mut self, at: Duration, place: Place, kind: EventKind) {
        self.planned += 1;
        self.events.push(Event {
            at,
            number: self.planned,
            place,
            kind,
        });
    }

    /// The end of a channel at a place.
    pub(crate) fn end(&mut self, place: Place) -> &mut End {
        &mut self.hosts[place.host].ends[place.channel]
    }

    /// The rails of a channel.
    pub(crate) fn rails(&self) -> usize {
        1 + self.settings.rails.len()
    }

    /// The port of the queue pair at a place.
    pub(crate) fn port(&mut self, place: Place) -> &mut Port {
        let rail = rail_of(place.queue_pair, self.rails());
        &mut self.hosts[place.host].ports[rail]
    }

    pub(crate) fn queue_pair(&mut self, place: Place) -> &mut QueuePair {
        &mut self.hosts[place.host].ends[place.channel].queue_pairs[place.queue_pair]
    }

    /// Whether the queue pair at a place is connected and in this life.
    pub(crate) fn lives(&mut self, place: Place) -> bool {
        let queue_pair = self.queue_pair(place);
        queue_pair.living && queue_pair.generation == place.generation
    }

    /// Reports a completion to the user of an end, if there is one.
    pub(crate) fn complete(&mut self, place: Place, completion: Completion) {
        let end = self.end(place);
        if !end.is_over {
            end.completions.push_back(completion);
        }
    }

    /// Queues a queue pair that has something to send for the port.
    pub(crate) fn queue(&mut self, place: Place) {
        let now = self.now;
        let queue_pair = self.queue_pair(place);
        if queue_pair.living && queue_pair.has_train() && !queue_pair.queued {
            queue_pair.queued = true;
            let rests_until = queue_pair.rests_until;
            if rests_until > now {
                self.plan(rests_until, place, EventKind::Rested);
            } else {
                self.take_turn(place);
            }
        }
        if !self.port(place).busy {
            self.send_next(place);
        }
    }

    /// A queue pair is the last one in the port's queue.
    fn take_turn(&mut self, place: Place) {
        let turn = (place.channel, place.queue_pair);
        self.port(place).turns.push_back(turn);
    }

    /// The queue pair rests as long as its own rate needs for a train of this many bytes.
    fn rest(&mut self, place: Place, bytes: u64) {
        let now = self.now;
        let rate = self.settings.queue_pair_rates.get(place.queue_pair);
        let of_path = rate.map(|&rate| time_of(bytes, rate));
        let queue_pair = self.queue_pair(place);
        let reaction = queue_pair.reaction.as_mut();
        let of_reaction = reaction.map(|reaction| reaction.send(bytes, now));
        if let Some(rest) = of_path.max(of_reaction) {
            queue_pair.rests_until = now + rest;
        }
    }

    /// Sends the next train over the port of a queue pair, if it is free.
    fn send_next(&mut self, of: Place) {
        let host = of.host;
        self.port(of).busy = false;
        if let Some(until) = self.sleeps_until(of) {
            self.port(of).busy = true;
            self.plan(until, of, EventKind::PortIsFree);
            return;
        }
        let turn_packets = self.settings.turn_packets;
        while let Some((channel, queue_pair)) = self.port(of).turns.pop_front() {
            let place = Place {
                host,
                channel,
                queue_pair,
                generation: self.hosts[host].ends[channel].queue_pairs[queue_pair].generation,
            };
            let sender = self.queue_pair(place);
            sender.queued = false;
            if !sender.living {
                continue;
            }
            let was_waiting = sender.is_waiting();
            let Some(train) = sender.next_train(turn_packets) else {
                continue;
            };
            let leaves = self.send(place, train);
            let runs_on = self.settings.timer_runs_on && self.queue_pair(place).deadline.is_some();
            if !was_waiting && !runs_on && self.queue_pair(place).is_waiting() {
                self.watch(place, leaves);
            }
            self.port(place).busy = true;
            self.plan(leaves, place, EventKind::PortIsFree);
            self.queue(place);
            return;
        }
    }

    /// When the port of a napping host wakes up.
    fn sleeps_until(&mut self, of: Place) -> Option<Duration> {
        let Naps { apart, longest } = self.settings.naps.filter(|_| of.host == 0)?;
        let now = self.now;
        while self.port(of).nap.end <= now {
            let [awake, asleep] = [apart, longest].map(|most| most.mul_f64(self.random.share()));
            let begin = self.port(of).nap.end + awake;
            self.port(of).nap = begin..begin + asleep;
        }
        let nap = &self.port(of).nap;
        nap.contains(&now).then_some(nap.end)
    }

    /// Sends a train; returns when its last packet leaves the port.
    fn send(&mut self, place: Place, train: Train) -> Duration {
        let (bytes, packets) = match train.kind {
            Kind::Message => (self.train_bytes(place, train), train.packets),
            Kind::Read => (READ_REQUEST_BYTES, 1),
            Kind::Response => (self.train_bytes(place.peer(), train), train.packets),
        };
        self.rest(place, bytes);
        let rail = rail_of(place.queue_pair, self.rails());
        let wire = &mut self.hosts[place.host].ports[rail].wire;
        let passage = wire.carry(bytes, packets, self.now, &mut self.random);
        if let Some(mut arrival) = passage.arrival {
            if train.kind == Kind::Read {
                arrival.packets = train.packets;
            }
            let at = arrival.at;
            self.plan(at, place.peer(), EventKind::Arrives { train, arrival });
        }
        passage.leaves
    }

    /// The payload bytes of a train, which belongs to a request of `requester`.
    fn train_bytes(&mut self, requester: Place, train: Train) -> u64 {
        let queue_pair = self.queue_pair(requester);
        queue_pair.find(train.first).map_or(0, |pending| {
            let bytes = queue_pair.bytes(&pending, train.first, train.first + train.packets);
            bytes.end - bytes.start
        })
    }

    /// Starts the retransmission timer, if it is not running.
    pub(crate) fn watch(&mut self, place: Place, from: Duration) {
        let deadline = from + self.settings.acknowledgement_timeout;
        let queue_pair = self.queue_pair(place);
        let is_watched = queue_pair.deadline.is_some();
        queue_pair.deadline = Some(deadline);
        if !is_watched {
            self.plan(deadline, place, EventKind::Deadline);
        }
    }

    fn happen(&mut self, place: Place, kind: EventKind) {
        match kind {
            EventKind::PortIsFree => self.send_next(place),
            EventKind::Rested => {
                self.take_turn(place);
                if !self.port(place).busy {
                    self.send_next(place);
                }
            }
            EventKind::Arrives { train, arrival } => self.arrive(place, train, &arrival),
            EventKind::Acknowledged { packet } => self.acknowledged(place, packet),
            EventKind::Missing { packet, arrived } => self.missing(place, packet, &arrived),
            EventKind::Congested => self.congested(place),
            EventKind::Refused { reason } => self.refused(place, reason),
            EventKind::Deadline => self.deadline(place),
            EventKind::PeerLost { ended } => self.peer_lost(place, ended),
            EventKind::Connected => self.connected(place),
        }
    }

    /// The timer expired: everything unacknowledged is retransmitted, or the queue pair is lost.
    fn deadline(&mut self, place: Place) {
        if !self.lives(place) {
            return;
        }
        let (now, most) = (self.now, self.settings.retries);
        let queue_pair = self.queue_pair(place);
        let Some(deadline) = queue_pair.deadline.filter(|_| queue_pair.is_waiting()) else {
            queue_pair.deadline = None;
            return;
        };
        if deadline > now {
            self.plan(deadline, place, EventKind::Deadline);
            return;
        }
        queue_pair.deadline = None;
        queue_pair.retries += 1;
        if most < FOR_EVER && queue_pair.retries > most {
            self.fail(place, "nothing was acknowledged, however often it was sent");
            return;
        }
        let has_reads = queue_pair.reads() > 0;
        match self.settings.repeat {
            Repeat::Selective if !has_reads => {
                self.queue_pair(place).repeat_all();
                // The repetitions may be lost as well.
                let from = self.now.max(self.port(place).wire.free_at());
                self.watch(place, from);
            }
            // The request of a READ may have arrived, and its response not.
            Repeat::GoBackN | Repeat::Selective => self.queue_pair(place).go_back(0),
        }
        self.queue(place);
    }
}
