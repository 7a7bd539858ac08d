//! One direction of a path between two hosts.
//!
//! A message crosses the path as one *train* of consecutive packets, so the simulator does one
//! calculation for each train, not for each packet. It leaves the port of its host, waits in the queue of a bottleneck,
//! passes a policer or is dropped, may lose packets at random, and arrives after the delay. Trains
//! do not overtake each other.

use std::iter;
use std::ops::Range;
use std::time::Duration;

use super::congestion::Marking;
use super::random::Random;
use crate::pacing::time_of;

/// The properties of one direction.
#[derive(Debug, Clone, PartialEq)]
pub struct Link {
    /// The rate of the host's port in bytes of payload per second.
    pub rate: u64,
    /// The delay from one host to the other.
    pub delay: Duration,
    /// From this time on packets take another route, with this delay.
    pub reroute: Option<(Duration, Duration)>,
    /// The largest random addition to the delay.
    pub jitter: Duration,
    /// A bottleneck that is slower than the port.
    pub queue: Option<Queue>,
    /// A policer.
    pub policer: Option<Policer>,
    /// From this time on this is the policer.
    pub repolice: Option<(Duration, Policer)>,
    /// Whether the policer judges packets one by one, as tc-police(8) does.
    pub polices_packets: bool,
    /// The share of packets that is lost at random.
    pub loss: f64,
    /// The time in which no packet passes.
    pub down: Range<Duration>,
}

/// A bottleneck.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Queue {
    /// In bytes per second.
    pub rate: u64,
    /// The queue's capacity in bytes; what does not fit is dropped.
    pub bytes: u64,
    /// How it marks packets (ECN); `None` if it does not.
    pub marking: Option<Marking>,
}

/// Drops what exceeds its rate once its burst is used up.
///
/// Once a train at full speed exceeds the burst, a real policer drops most of its remaining packets,
/// and the sender retransmits almost the whole message. So a train passes whole or not at all, unless
/// [`Link::polices_packets`] is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policer {
    /// In bytes per second.
    pub rate: u64,
    /// The bytes that may pass at once after a pause.
    pub burst: u64,
}

impl Link {
    /// A path without faults.
    pub fn new(rate: u64, delay: Duration) -> Self {
        Self {
            rate,
            delay,
            reroute: None,
            jitter: Duration::ZERO,
            queue: None,
            policer: None,
            repolice: None,
            polices_packets: false,
            loss: 0.0,
            down: Duration::ZERO..Duration::ZERO,
        }
    }

    fn policer_at(&self, time: Duration) -> Option<Policer> {
        let later = self.repolice.filter(|(from, _)| time >= *from);
        later.map_or(self.policer, |(_, policer)| Some(policer))
    }

    fn delay_at(&self, time: Duration) -> Duration {
        let later = self.reroute.filter(|(from, _)| time >= *from);
        later.map_or(self.delay, |(_, delay)| delay)
    }
}

/// A direction of a path with its traffic.
#[derive(Debug)]
pub(crate) struct Wire {
    link: Link,
    /// Arrivals list the packets behind a missing one.
    tells_all: bool,
    /// When the port has sent its whole queue.
    free_at: Duration,
    /// When the queue will be empty.
    empty_at: Duration,
    /// The bytes that the policer lets pass at `filled_at`.
    tokens: f64,
    filled_at: Duration,
    /// When the last train arrives.
    last: Duration,
    /// When the last control packet arrives.
    last_control: Duration,
    dropped: u64,
}

/// The outcome of sending a train.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Passage {
    /// When its last packet leaves the port.
    pub(crate) leaves: Duration,
    /// `None` if no packet arrives.
    pub(crate) arrival: Option<Arrival>,
}

/// The packets of a train that a policer passes.
#[derive(Debug, Default)]
struct Policed {
    /// The leading packets that pass.
    packets: u64,
    /// Whether packets pass after the first one that is dropped.
    has_gap: bool,
    /// Those packets, where arrivals list them.
    later: Vec<Range<u64>>,
}

/// The packets of a train that arrive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Arrival {
    /// When its last part arrives.
    pub(crate) at: Duration,
    /// The leading packets that arrive.
    pub(crate) packets: u64,
    /// Whether packets arrive after the first one that is missing.
    pub(crate) has_gap: bool,
    /// Those packets, counted from the first one of the train; only of a wire that is [`Wire::telling_all`].
    pub(crate) later: Vec<Range<u64>>,
    /// The bottleneck has marked packets.
    pub(crate) is_marked: bool,
}

impl Wire {
    pub(crate) fn new(link: Link) -> Self {
        Self {
            tokens: link.policer.map_or(0.0, |policer| policer.burst as f64),
            link,
            tells_all: false,
            free_at: Duration::ZERO,
            empty_at: Duration::ZERO,
            filled_at: Duration::ZERO,
            last: Duration::ZERO,
            last_control: Duration::ZERO,
            dropped: 0,
        }
    }

    /// The same one, whose arrivals list the packets behind a missing one.
    pub(crate) fn telling_all(self) -> Self {
        Self {
            tells_all: true,
            ..self
        }
    }

    /// The rate of the port in bytes per second.
    pub(crate) fn rate(&self) -> u64 {
        self.link.rate
    }

    /// When the port can send.
    pub(crate) fn free_at(&self) -> Duration {
        self.free_at
    }

    /// The number of trains that lost packets.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Sends a train, which waits for the port.
    pub(crate) fn carry(
        &mut self,
        bytes: u64,
        packets: u64,
        now: Duration,
        random: &mut Random,
    ) -> Passage {
        let begins = self.free_at.max(now);
        let leaves = begins + time_of(bytes, self.link.rate);
        self.free_at = leaves;
        let mut is_marked = false;
        let mut arrival = self
            .wait(bytes, begins, leaves)
            .filter(|_| !self.link.down.contains(&leaves))
            .inspect(|&at| is_marked = self.marks(packets, at.saturating_sub(leaves), random))
            .and_then(|at| Some((at, self.police(bytes, packets, at)?)))
            .map(|(at, policed)| self.arrive(at, packets, policed, random));
        if let Some(arrival) = &mut arrival {
            arrival.is_marked = is_marked;
        }
        let is_whole = |arrival: &Arrival| arrival.packets == packets;
        if !arrival.as_ref().is_some_and(is_whole) {
            self.dropped += 1;
        }
        Passage {
            leaves,
            arrival: arrival.filter(|arrival| arrival.packets > 0 || arrival.has_gap),
        }
    }

    /// When a control packet arrives, if it does: acknowledgements are small and have priority.
    pub(crate) fn carry_control(&mut self, now: Duration, random: &mut Random) -> Option<Duration> {
        let is_lost = self.link.loss > 0.0 && random.share() < self.link.loss;
        if is_lost || self.link.down.contains(&now) {
            return None;
        }
        self.last_control =
            (now + self.link.delay_at(now) + self.jitter(random)).max(self.last_control);
        Some(self.last_control)
    }

    /// When data arrives whose sender retries until the path works, such as TCP.
    pub(crate) fn carry_reliably(&self, now: Duration) -> Duration {
        let is_down = self.link.down.contains(&now);
        let leaves = if is_down { self.link.down.end } else { now };
        leaves + self.link.delay_at(leaves) + self.link.jitter
    }

    /// When a train has left the queue; `None` if it does not fit.
    fn wait(&mut self, bytes: u64, begins: Duration, leaves: Duration) -> Option<Duration> {
        let Some(queue) = self.link.queue else {
            return Some(leaves);
        };
        let empty_at = self.empty_at.max(begins) + time_of(bytes, queue.rate);
        let waiting = time_of(queue.bytes, queue.rate);
        if empty_at.saturating_sub(leaves) > waiting {
            return None;
        }
        self.empty_at = empty_at.max(leaves);
        Some(self.empty_at)
    }

    /// Whether the bottleneck marks one of so many packets that wait in its queue for so long.
    fn marks(&self, packets: u64, waiting: Duration, random: &mut Random) -> bool {
        let queue = self.link.queue;
        let Some((rate, marking)) = queue.and_then(|queue| Some((queue.rate, queue.marking?)))
        else {
            return false;
        };
        let share = marking.share(waiting.as_secs_f64() * rate as f64);
        share > 0.0 && random.share() >= (1.0 - share).powf(packets as f64)
    }

    /// The packets that the policer passes of a train whose last packet reaches it at `at`; `None` if
    /// it drops all.
    fn police(&mut self, bytes: u64, packets: u64, at: Duration) -> Option<Policed> {
        let mut policed = Policed::default();
        let Some(policer) = self.link.policer_at(at) else {
            policed.packets = packets;
            return Some(policed);
        };
        let judged = if self.link.polices_packets {
            packets
        } else {
            1
        };
        let began = at.saturating_sub(time_of(bytes, self.link.rate));
        let mut is_missing = false;
        for number in 1..=judged {
            let at = began + (at - began).mul_f64(number as f64 / judged as f64);
            if !self.conforms(policer, bytes as f64 / judged as f64, at) {
                is_missing = true;
            } else if is_missing {
                policed.has_gap = true;
                if self.tells_all {
                    policed.later.push(number - 1..number);
                }
            } else {
                policed.packets += packets / judged;
            }
        }
        (policed.packets > 0 || policed.has_gap).then_some(policed)
    }

    /// Whether the policer passes these bytes at `at`.
    fn conforms(&mut self, policer: Policer, bytes: f64, at: Duration) -> bool {
        let passed = at.saturating_sub(self.filled_at).as_secs_f64();
        self.tokens = (self.tokens + passed * policer.rate as f64).min(policer.burst as f64);
        self.filled_at = at.max(self.filled_at);
        // Times are whole nanoseconds; a fraction of a byte is tolerated.
        let conforms = self.tokens + 1.0 >= bytes;
        if conforms {
            self.tokens -= bytes;
        }
        conforms
    }

    fn arrive(
        &mut self,
        at: Duration,
        packets: u64,
        policed: Policed,
        random: &mut Random,
    ) -> Arrival {
        self.last = (at + self.link.delay_at(at) + self.jitter(random)).max(self.last);
        let mut arrival = Arrival {
            at: self.last,
            packets: policed.packets,
            has_gap: policed.has_gap,
            later: Vec::new(),
            is_marked: false,
        };
        if self.tells_all {
            let mut intact = self.survivors(policed, random);
            let has_first = intact.first().is_some_and(|range| range.start == 0);
            let first = has_first.then(|| intact.remove(0));
            arrival.packets = first.map_or(0, |first| first.end);
            arrival.has_gap = !intact.is_empty();
            arrival.later = intact;
            return arrival;
        }
        let intact = self.intact(random);
        if intact < policed.packets {
            (arrival.packets, arrival.has_gap) = (intact, intact + 1 < packets);
        }
        arrival
    }

    /// The packets that the policer has passed and that are not lost at random.
    fn survivors(&self, policed: Policed, random: &mut Random) -> Vec<Range<u64>> {
        let mut survivors = Vec::new();
        let mut intact = self.intact(random);
        for mut range in iter::once(0..policed.packets).chain(policed.later) {
            while range.end - range.start > intact {
                if intact > 0 {
                    survivors.push(range.start..range.start + intact);
                }
                range.start += intact + 1;
                intact = self.intact(random);
            }
            if !range.is_empty() {
                intact -= range.end - range.start;
                survivors.push(range);
            }
        }
        survivors
    }

    /// How many packets pass before one is lost at random.
    #[expect(clippy::cast_possible_truncation, reason = "`as` saturates")]
    #[expect(clippy::cast_sign_loss, reason = "both logarithms are negative")]
    fn intact(&self, random: &mut Random) -> u64 {
        if self.link.loss <= 0.0 {
            return u64::MAX;
        }
        // The geometric distribution, from a uniform one without 0.
        ((1.0 - random.share()).ln() / (1.0 - self.link.loss).ln()) as u64
    }

    fn jitter(&self, random: &mut Random) -> Duration {
        let most = u64::try_from(self.link.jitter.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(if most == 0 { 0 } else { random.below(most) })
    }
}

#[cfg(test)]
mod tests;
