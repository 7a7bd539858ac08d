//! Two hosts, the path between them, and time.
//!
//! The fabric is a queue of future events in order. It does not depend on the machine, so a seed
//! replays a run exactly. Each train of packets causes three events, whatever it carries: the port
//! is free again, the train arrives, it is acknowledged.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};
use std::ops::Range;
use std::time::Duration;

use super::link::{Link, Passage, Wire};
use super::queue_pair::{Kind, QueuePair, Train};
use super::random::Random;
use super::regions::Regions;
use crate::provider::{Completion, Loss};

/// The properties of a fabric.
#[derive(Debug, Clone, PartialEq)]
pub struct FabricSettings {
    /// From the first host to the second, and back.
    pub links: [Link; 2],
    /// The payload of a packet: the path's MTU in bytes.
    pub packet_bytes: u64,
    /// Requests of one queue pair that may be outstanding.
    pub depth: usize,
    /// How long a requester waits for an acknowledgement. It must exceed a round trip.
    pub acknowledgement_timeout: Duration,
    /// Retransmissions before a queue pair is lost; 7 means without end, as with devices.
    pub retries: u32,
    /// WRITEs can carry immediate data.
    pub immediate: bool,
    /// Lost queue pairs are connected again.
    pub replaces: bool,
    /// The retransmission timer starts with the first packet after it last expired, and is not
    /// restarted when everything is acknowledged, as with rxe: what is in flight when it expires is
    /// retransmitted, whether it is late or not.
    pub timer_runs_on: bool,
    /// The first host is busy at times, and its port sends late; `None` if it never is.
    pub naps: Option<Naps>,
    /// The seed of all random decisions.
    pub seed: u64,
}

/// Times in which a port sends nothing, and then everything that it was given meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Naps {
    /// The longest time between two naps.
    pub apart: Duration,
    /// The longest nap.
    pub longest: Duration,
}

/// The largest count of retries means no limit (the InfiniBand architecture, 9.9.2.4.1; rxe and
/// hardware agree).
const FOR_EVER: u32 = 7;

/// The length of a READ request in bytes.
const READ_REQUEST_BYTES: u64 = 16;

impl FabricSettings {
    /// The same path in both directions, without faults.
    pub fn new(link: Link) -> Self {
        // 4.096 µs times a power of two, as for a device: more than two round trips.
        let mut timeout = Duration::from_nanos(4096 << 14);
        while timeout < 4 * (link.delay + link.jitter) {
            timeout *= 2;
        }
        Self {
            links: [link.clone(), link],
            packet_bytes: 4096,
            depth: 1024,
            acknowledgement_timeout: timeout,
            retries: FOR_EVER,
            immediate: true,
            replaces: true,
            timer_runs_on: false,
            naps: None,
            seed: 0,
        }
    }
}

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

/// A host and what it sends.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) wire: Wire,
    pub(crate) ends: Vec<End>,
    /// Queue pairs with something for the port, in round-robin order.
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

/// A life of a queue pair in the fabric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) host: usize,
    pub(crate) channel: usize,
    pub(crate) queue_pair: usize,
    pub(crate) generation: u32,
}

impl Place {
    pub(crate) fn peer(self) -> Self {
        Self {
            host: 1 - self.host,
            ..self
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Event {
    at: Duration,
    number: u64,
    place: Place,
    what: What,
}

/// An event at a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum What {
    /// The port of the host has sent its train.
    PortIsFree,
    /// `packets` of a train have arrived.
    Arrives {
        train: Train,
        packets: u64,
        has_gap: bool,
    },
    /// The device at the other end has received all packets before this one.
    Acknowledged { packet: u64 },
    /// It misses this packet.
    Missing { packet: u64 },
    /// It refused the request.
    Refused { reason: &'static str },
    /// The retransmission timer expires.
    Deadline,
    /// The other end is gone, and says so over a connection beside the queue pair.
    PeerLost { ended: Option<Loss> },
    /// Both ends are connected again.
    Connected,
}

/// The earliest event is the greatest, for the heap.
impl Ord for Event {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Fabric {
    pub(crate) fn new(settings: FabricSettings) -> Self {
        let host = |link: &Link| Host {
            wire: Wire::new(link.clone()),
            ends: Vec::new(),
            turns: VecDeque::new(),
            busy: false,
            nap: Duration::ZERO..Duration::ZERO,
        };
        Self {
            hosts: [host(&settings.links[0]), host(&settings.links[1])],
            random: Random::new(settings.seed),
            settings,
            now: Duration::ZERO,
            events: BinaryHeap::new(),
            planned: 0,
        }
    }

    /// Connects both ends of a new channel; returns its number.
    pub(crate) fn connect(&mut self, queue_pairs: usize) -> usize {
        for host in &mut self.hosts {
            let queue_pair = |_| QueuePair::new(0, self.settings.packet_bytes);
            host.ends.push(End {
                queue_pairs: (0..queue_pairs).map(queue_pair).collect(),
                regions: Regions::default(),
                completions: VecDeque::new(),
                is_ended: false,
                is_over: false,
            });
        }
        self.hosts[0].ends.len() - 1
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
            self.happen(event.place, event.what);
        }
        self.now = self.now.max(now);
    }

    pub(crate) fn plan(&mut self, at: Duration, place: Place, what: What) {
        self.planned += 1;
        self.events.push(Event {
            at,
            number: self.planned,
            place,
            what,
        });
    }

    /// The end of a channel at a place.
    pub(crate) fn end(&mut self, place: Place) -> &mut End {
        &mut self.hosts[place.host].ends[place.channel]
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
        let queue_pair = self.queue_pair(place);
        if queue_pair.living && queue_pair.has_train() && !queue_pair.queued {
            queue_pair.queued = true;
            let turn = (place.channel, place.queue_pair);
            self.hosts[place.host].turns.push_back(turn);
        }
        if !self.hosts[place.host].busy {
            self.send_next(place.host);
        }
    }

    /// Sends the next train, if the port is free.
    fn send_next(&mut self, host: usize) {
        self.hosts[host].busy = false;
        if let Some(until) = self.sleeps_until(host) {
            self.hosts[host].busy = true;
            let anybody = Place {
                host,
                channel: 0,
                queue_pair: 0,
                generation: 0,
            };
            self.plan(until, anybody, What::PortIsFree);
            return;
        }
        while let Some((channel, queue_pair)) = self.hosts[host].turns.pop_front() {
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
            let Some(train) = sender.next_train() else {
                continue;
            };
            let passage = self.send(place, train);
            let runs_on = self.settings.timer_runs_on && self.queue_pair(place).deadline.is_some();
            if !was_waiting && !runs_on && self.queue_pair(place).is_waiting() {
                self.watch(place, passage.leaves);
            }
            self.hosts[host].busy = true;
            self.plan(passage.leaves, place, What::PortIsFree);
            if self.queue_pair(place).has_train() {
                self.queue_pair(place).queued = true;
                self.hosts[host].turns.push_back((channel, queue_pair));
            }
            return;
        }
    }

    /// When the port of a napping host wakes up.
    fn sleeps_until(&mut self, host: usize) -> Option<Duration> {
        let Naps { apart, longest } = self.settings.naps.filter(|_| host == 0)?;
        while self.hosts[host].nap.end <= self.now {
            let [awake, asleep] = [apart, longest].map(|most| most.mul_f64(self.random.share()));
            let begin = self.hosts[host].nap.end + awake;
            self.hosts[host].nap = begin..begin + asleep;
        }
        let nap = &self.hosts[host].nap;
        nap.contains(&self.now).then_some(nap.end)
    }

    fn send(&mut self, place: Place, train: Train) -> Passage {
        let (bytes, packets) = match train.kind {
            Kind::Message => (self.train_bytes(place, train), train.packets),
            Kind::Read => (READ_REQUEST_BYTES, 1),
            Kind::Response => (self.train_bytes(place.peer(), train), train.packets),
        };
        let wire = &mut self.hosts[place.host].wire;
        let passage = wire.carry(bytes, packets, self.now, &mut self.random);
        if let Some(arrival) = passage.arrival {
            let what = What::Arrives {
                train,
                packets: match train.kind {
                    Kind::Read => train.packets,
                    Kind::Message | Kind::Response => arrival.packets,
                },
                has_gap: arrival.has_gap,
            };
            self.plan(arrival.at, place.peer(), what);
        }
        passage
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
            self.plan(deadline, place, What::Deadline);
        }
    }

    fn happen(&mut self, place: Place, what: What) {
        match what {
            What::PortIsFree => self.send_next(place.host),
            What::Arrives {
                train,
                packets,
                has_gap,
            } => self.arrive(place, train, packets, has_gap),
            What::Acknowledged { packet } => self.acknowledged(place, packet),
            What::Missing { packet } => self.missing(place, packet),
            What::Refused { reason } => self.refused(place, reason),
            What::Deadline => self.deadline(place),
            What::PeerLost { ended } => self.peer_lost(place, ended),
            What::Connected => self.connected(place),
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
            self.plan(deadline, place, What::Deadline);
            return;
        }
        queue_pair.deadline = None;
        queue_pair.retries += 1;
        if most < FOR_EVER && queue_pair.retries > most {
            self.fail(place, "nothing was acknowledged, however often it was sent");
            return;
        }
        queue_pair.go_back(0);
        self.queue(place);
    }
}
