//! The load of a queue pair: the bytes in flight on it, and how fast it delivers them.
//!
//! The queue pairs of a channel share a port, but not always a path: switches choose among equal paths
//! by a hash of each packet's addresses (ECMP, LAG), and queue pairs that meet other traffic on theirs
//! are slower. The receiver consumes data in the order of the stream, so a slow queue pair that gets as
//! much as the others holds them up. Therefore each piece goes over the queue pair that is expected to
//! deliver it first.

use std::collections::VecDeque;
use std::time::Duration;

use super::{Sender, SenderSettings};

/// The state of a queue pair.
#[derive(Debug, Clone)]
pub(super) struct QueuePair {
    /// Requests that have not completed.
    pub(super) load: Load,
    /// When the last one completed, or the first one was posted.
    pub(super) progress: Duration,
    /// Since when at least one request has been outstanding without a break.
    pub(super) busy: Duration,
    pub(super) lost: bool,
    /// How many times it was restored.
    pub(super) generation: u32,
    /// Requests so far.
    pub(super) posted: u64,
}

/// The requests in flight on a queue pair, and its rate.
#[derive(Debug, Clone)]
pub(super) struct Load {
    /// The bytes of each request, the oldest first: requests of a queue pair complete in order.
    requests: VecDeque<u64>,
    /// Their sum.
    bytes: u64,
    /// The first and the last time a request completed since the queue pair was idle.
    busy: Option<[Duration; 2]>,
    /// Bytes that were delivered in `seconds`.
    delivered: f64,
    seconds: f64,
    /// Both are halved after so many bytes, so that the rate follows the path.
    horizon: f64,
}

/// The messages over which a rate is measured, at least.
const LEAST_MEASURED: u64 = 32;

/// How much slower than the fastest queue pair one may count. A slower one still gets something, so
/// that its rate is measured again.
const MOST_SLOWDOWN: f64 = 16.0;

/// A rate counts after this part of the horizon.
const SAMPLE: f64 = 1.0 / 8.0;

impl QueuePair {
    pub(super) fn new(settings: &SenderSettings) -> Self {
        Self {
            load: Load::new(horizon(settings.ring.bytes(), settings)),
            progress: Duration::ZERO,
            busy: Duration::ZERO,
            lost: false,
            generation: 0,
            posted: 0,
        }
    }

    /// The rings have another length.
    pub(super) fn measure_in(&mut self, ring_bytes: u64, settings: &SenderSettings) {
        self.load.horizon = horizon(ring_bytes, settings) as f64;
    }

    /// Requests that have completed, or never will.
    pub(super) fn completed(&self) -> u64 {
        self.posted - self.pending() as u64
    }

    pub(super) fn pending(&self) -> usize {
        self.load.requests.len()
    }

    /// Counts a request.
    pub(super) fn count(&mut self, bytes: u64, now: Duration) {
        if self.pending() == 0 {
            (self.progress, self.busy) = (now, now);
        }
        self.posted += 1;
        self.load.posted(bytes);
    }
}

/// Half of a queue pair's part of the ring, or some messages.
fn horizon(ring_bytes: u64, settings: &SenderSettings) -> u64 {
    let part = ring_bytes / (2 * settings.queue_pairs.max(1) as u64);
    part.max(LEAST_MEASURED * settings.message_bytes)
}

impl Load {
    /// Without requests, and with an unknown rate.
    fn new(horizon: u64) -> Self {
        Self {
            requests: VecDeque::new(),
            bytes: 0,
            busy: None,
            delivered: 0.0,
            seconds: 0.0,
            horizon: horizon as f64,
        }
    }

    /// Forgets everything: the queue pair is lost. Another one may take another path.
    pub(super) fn clear(&mut self) {
        self.requests.clear();
        (self.bytes, self.busy) = (0, None);
        (self.delivered, self.seconds) = (0.0, 0.0);
    }

    /// A request was posted.
    fn posted(&mut self, bytes: u64) {
        self.requests.push_back(bytes);
        self.bytes += bytes;
    }

    /// The oldest request has completed.
    pub(super) fn completed(&mut self, now: Duration) {
        let Some(bytes) = self.requests.pop_front() else {
            return;
        };
        self.bytes -= bytes;
        // The first completion after a pause comes after a round trip, however fast the path is.
        let [first, last] = self.busy.get_or_insert([now; 2]);
        if *first < now {
            self.delivered += bytes as f64;
            self.seconds += now.saturating_sub(*last).as_secs_f64();
        }
        *last = now;
        if self.requests.is_empty() {
            self.busy = None;
        }
        if self.delivered > self.horizon {
            (self.delivered, self.seconds) = (self.delivered / 2.0, self.seconds / 2.0);
        }
    }

    /// In bytes per second, if it is known.
    fn rate(&self) -> Option<f64> {
        let is_known = self.delivered >= self.horizon * SAMPLE && self.seconds > 0.0;
        is_known.then(|| self.delivered / self.seconds)
    }

    /// A measure of the time until so many more bytes are delivered. Where no rate is known, only the
    /// bytes count. `fastest` is [`fastest`] of all queue pairs.
    fn cost(&self, more: u64, fastest: f64) -> f64 {
        let slowdown = self.rate().map_or(1.0, |rate| fastest / rate);
        (self.bytes + more) as f64 * slowdown.clamp(1.0, MOST_SLOWDOWN)
    }
}

/// The highest known rate; 0 if none is known.
fn fastest<'a>(loads: impl Iterator<Item = &'a Load>) -> f64 {
    loads.filter_map(Load::rate).fold(0.0, f64::max)
}

impl Sender {
    /// The queue pair over which so many bytes will be delivered first among those that may be used, if it has room. `first`
    /// wins among equal ones, or the next one after it.
    ///
    /// A slower one with room is not taken instead, because the receiver would wait for it.
    pub(in crate::engine) fn quickest(
        &self,
        first: usize,
        bytes: u64,
        may_use: impl Fn(usize) -> bool,
        has_room: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let is_connected = |number: usize| !self.queue_pairs[number].lost;
        self.least_cost(first, bytes, |number| {
            is_connected(number) && may_use(number)
        })
        .filter(|&number| has_room(number))
    }

    /// The queue pair with the least cost among those that may be used.
    pub(super) fn least_cost(
        &self,
        first: usize,
        bytes: u64,
        may_use: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let count = self.queue_pairs.len();
        let loads = self.queue_pairs.iter().map(|queue_pair| &queue_pair.load);
        let fastest = fastest(loads);
        (0..count)
            .map(|step| (first + step) % count)
            .filter(|&number| may_use(number))
            .map(|number| (number, self.queue_pairs[number].load.cost(bytes, fastest)))
            .min_by(|(_, one), (_, other)| one.total_cmp(other))
            .map(|(number, _)| number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A queue pair that delivered requests of 1000 bytes at this rate, with a few in flight.
    fn measured(bytes_per_second: u64) -> Load {
        let mut load = Load::new(100_000);
        let mut now = Duration::from_secs(1);
        (0..4).for_each(|_| load.posted(1000));
        for _ in 0..1000 {
            now += Duration::from_nanos(1_000_000_000_000 / bytes_per_second);
            load.posted(1000);
            load.completed(now);
        }
        load
    }

    #[test]
    fn a_slower_queue_pair_costs_more() {
        let [fast, slow] = [1_000_000, 250_000].map(measured);
        let best = fastest([&fast, &slow].into_iter());
        assert!((best / 1e6 - 1.0).abs() < 0.01, "{best}");
        let ratio = slow.cost(0, best) / fast.cost(0, best);
        assert!((ratio - 4.0).abs() < 0.1, "{ratio}");
        // An idle one counts as slow as it was, within a limit.
        let [mut idle, hardly] = [250_000, 1000].map(measured);
        (0..4).for_each(|_| idle.completed(Duration::from_secs(5)));
        assert!(idle.cost(1000, best) < fast.cost(1000, best));
        assert!(hardly.cost(0, best) <= 16.0 * fast.cost(0, best));
    }

    #[test]
    fn without_rates_only_bytes_count() {
        let [mut one, mut other] = [100_000; 2].map(Load::new);
        one.posted(5);
        other.posted(6);
        let best = fastest([&one, &other].into_iter());
        assert!(one.cost(1, best) < other.cost(1, best));
        one.clear();
        assert_eq!((one.requests.len(), one.bytes), (0, 0));
    }

    /// Completions that are noticed together are not an infinite rate.
    #[test]
    fn the_round_trip_is_not_part_of_the_rate() {
        let mut load = Load::new(8000);
        for second in 1..100 {
            (0..5).for_each(|_| load.posted(1000));
            (0..5).for_each(|_| load.completed(Duration::from_secs(second)));
        }
        assert_eq!(
            load.rate(),
            None,
            "each time the queue pair was idle before"
        );
        (0..5).for_each(|_| load.posted(1000));
        for second in 100..104 {
            load.posted(1000);
            load.completed(Duration::from_secs(second));
        }
        assert_eq!(load.rate(), Some(1000.0));
    }
}
