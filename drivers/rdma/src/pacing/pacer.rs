//! One sender's share of its path.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use super::LOOK_INTERVAL;
use super::limiter::Limiter;
use super::path::Path;
use crate::provider::Endpoint;

/// One sender's reservations on its path, and its bytes in flight.
#[derive(Debug)]
pub(crate) struct Pacer {
    path: Arc<Path>,
    /// The path's number for this channel.
    channel: u64,
    /// A reserved time slot that was not used yet.
    slot: Option<Duration>,
    /// The device's counts of retransmissions, in all and because of losses at the peer, and when
    /// they were read.
    repeats: Option<u64>,
    misses: Option<u64>,
    looked_at: Option<Duration>,
    /// Messages in flight by queue pair, in the order in which they complete.
    under_way: Vec<VecDeque<Posted>>,
    /// Bytes in flight, and bytes that have completed.
    under_way_bytes: u64,
    completed_bytes: u64,
    /// The adapter limits the rate of this sender's queue pairs.
    limiter: Option<Limiter>,
    /// It did, and did not keep to it. The limits of the channel are lifted at the next poll.
    breaks_limit: bool,
    /// When their limit was last compared with their part of the rate.
    compared_at: Option<Duration>,
    /// The number of its rail, whose counters are read.
    rail: usize,
    /// The path uses arrivals and losses of messages.
    learns: bool,
    /// The path also uses the device's counters.
    searches: bool,
}

/// A message that was sent.
#[derive(Debug, Clone, Copy)]
struct Posted {
    bytes: u64,
    at: Duration,
}

/// How long a thread polls before a time slot that a sleep would miss: most wake-ups are later by no
/// more. For each message this is 5 % of a processor at 1 Gb/s with messages of 256 KiB.
const SPIN_TIME: Duration = Duration::from_micros(100);

/// How often limits follow what other channels of the path do. Setting one takes a command to the device.
const COMPARE_INTERVAL: Duration = Duration::from_secs(1);

impl Pacer {
    /// `queue_pairs` is 0 if completions are not reported to the pacer.
    pub(crate) fn new(path: Arc<Path>, queue_pairs: usize) -> Self {
        Self {
            learns: queue_pairs > 0 && path.learns(),
            searches: queue_pairs > 0 && path.searches(),
            channel: path.join(),
            rail: 0,
            limiter: None,
            breaks_limit: false,
            compared_at: None,
            path,
            slot: None,
            repeats: None,
            misses: None,
            looked_at: None,
            under_way: vec![VecDeque::new(); queue_pairs],
            under_way_bytes: 0,
            completed_bytes: 0,
        }
    }

    /// Has the adapter limit each of the queue pairs to its part of the path's rate, which so many channels share. So many bytes may
    /// then be handed to it at once. Returns whether the adapter does so.
    pub(super) fn limit(
        &mut self,
        channels: usize,
        burst: u64,
        endpoint: &mut dyn Endpoint,
    ) -> bool {
        let queue_pairs = self.under_way.len();
        if queue_pairs == 0 {
            return false;
        }
        let shared = [queue_pairs, channels];
        let Some(rate) = self.path.begin_limit(self.channel, shared, burst) else {
            return false;
        };
        self.limiter = Some(Limiter::new(rate, queue_pairs));
        endpoint.limit_rate(self.rail, rate)
    }

    /// The adapter does not limit the rate any more.
    pub(super) fn end_limit(&mut self) {
        if self.limiter.take().is_some() {
            self.path.end_limit(self.channel);
        }
    }

    /// Gives the queue pairs another limit, if their part of the rate has changed.
    fn compare_limit(&mut self, now: Duration, endpoint: &mut dyn Endpoint) {
        let Some(limiter) = &mut self.limiter else {
            return;
        };
        // At first the other channels are being opened.
        if now < *self.compared_at.get_or_insert(now) + COMPARE_INTERVAL {
            return;
        }
        self.compared_at = Some(now);
        let Some(wanted) = self.path.limit(self.channel, now) else {
            return;
        };
        if wanted.abs_diff(limiter.rate()) <= limiter.rate() / 16 {
            return;
        }
        if !endpoint.limit_rate(self.rail, wanted) {
            return self.end_limit();
        }
        let in_flight = self.under_way.iter().map(VecDeque::len);
        limiter.set(wanted, in_flight);
        self.path.set_limit(self.channel, wanted);
    }

    /// The pacer of this rail of the channel.
    pub(super) fn on_rail(mut self, rail: usize) -> Self {
        self.rail = rail;
        self
    }

    /// The paced rate in bytes per second; `None` if messages are not paced.
    pub(crate) fn rate(&self) -> Option<u64> {
        self.path.rate()
    }

    /// The longest message, at most `wanted` bytes.
    pub(crate) fn message_bytes(&self, wanted: u64) -> u64 {
        let most = self.path.message_bytes();
        most.map_or(wanted, |most| wanted.min(most))
    }

    /// To be called at each poll, before completions are reported: whether a late message was lost depends on the device's counters.
    pub(crate) fn wake(&mut self, now: Duration, endpoint: &mut dyn Endpoint) {
        if std::mem::take(&mut self.breaks_limit) {
            endpoint.lift_limits();
        }
        if self.limiter.is_some() && !endpoint.limits_rate() {
            self.end_limit();
        }
        self.compare_limit(now, endpoint);
        if self.searches && self.looked_at.is_none_or(|at| now >= at + LOOK_INTERVAL) {
            self.look(now, endpoint);
        }
    }

    /// Reads the device's counters.
    fn look(&mut self, now: Duration, endpoint: &dyn Endpoint) {
        let since = self.looked_at.replace(now).unwrap_or(now);
        if let Some(repeats) = endpoint.repeats(self.rail) {
            let before = self.repeats.replace(repeats);
            let went_back = before.is_some_and(|before| before != repeats);
            self.path.counted(went_back, now);
        }
        if let Some(misses) = endpoint.misses(self.rail) {
            let before = self.misses.replace(misses);
            let has_missed = before.is_some_and(|before| before != misses);
            self.path.looked(since, has_missed, now);
        }
    }

    /// When a message may be sent: `now` or later.
    pub(crate) fn ready_at(&self, bytes: u64, now: Duration) -> Duration {
        let ready_at = self.path.ready_at(self.slot, bytes, now);
        let hold = self.hold(bytes, now);
        hold.map_or(ready_at, |until| ready_at.max(until))
    }

    /// How long before its time slot the channel must be awake, because the burst is too short to make up
    /// for a thread that wakes up late; zero if it can sleep until then.
    pub(crate) fn spin_time(&self, bytes: u64) -> Duration {
        let must = self.slot.is_some() && self.path.needs_exact_time(bytes);
        if must { SPIN_TIME } else { Duration::ZERO }
    }

    /// The time before which this channel may not send, because of the bytes in flight or of another
    /// channel.
    fn hold(&self, bytes: u64, now: Duration) -> Option<Duration> {
        self.learns
            .then(|| self.path.hold(self.channel, bytes, now))
            .flatten()
    }

    /// Reserves a time slot for a message unless there is one, and uses it if its time has come. Returns
    /// `false` if it has not.
    pub(crate) fn pass(&mut self, queue_pair: usize, bytes: u64, now: Duration) -> bool {
        let is_early =
            self.hold(bytes, now).is_some() || self.path.pass(&mut self.slot, bytes, now).is_some();
        if is_early {
            return false;
        }
        if let Some(under_way) = self.under_way.get_mut(queue_pair) {
            if let Some(limiter) = self.limiter.as_mut().filter(|_| under_way.is_empty()) {
                limiter.begins(queue_pair, now);
            }
            under_way.push_back(Posted { bytes, at: now });
            self.under_way_bytes += bytes;
            if self.limiter.is_some() {
                self.path.sends_within_limit(self.channel, now);
            }
            if self.learns {
                self.path.posted(self.channel, bytes, now);
            }
        }
        true
    }

    /// The oldest message in flight on a queue pair has arrived.
    pub(crate) fn completed(&mut self, queue_pair: usize, now: Duration) {
        let under_way = self.under_way.get_mut(queue_pair);
        if let Some(posted) = under_way.and_then(VecDeque::pop_front) {
            self.under_way_bytes -= posted.bytes;
            self.completed_bytes += posted.bytes;
            let limiter = self.limiter.as_mut();
            let keeps = |limiter: &mut Limiter| limiter.arrived(queue_pair, posted.bytes, now);
            if !limiter.is_none_or(keeps) {
                self.breaks_limit = true;
                self.end_limit();
            }
            if self.learns {
                self.path.completed(posted.bytes, posted.at, now);
            }
        }
    }

    /// Whether the times of completions matter.
    pub(crate) fn awaits_completions(&self) -> bool {
        self.learns && self.path.awaits_arrivals()
    }

    /// Bytes in flight, and bytes that have completed.
    pub(crate) fn progress(&self) -> (u64, u64) {
        (self.under_way_bytes, self.completed_bytes)
    }

    /// The counter of bytes that arrived over all channels of the path.
    pub(crate) fn arrived(&self) -> Arc<AtomicU64> {
        Arc::clone(self.path.arrived())
    }

    /// The messages in flight on a queue pair were lost.
    pub(crate) fn lost(&mut self, queue_pair: usize) {
        if let Some(under_way) = self.under_way.get_mut(queue_pair)
            && let Some(first) = under_way.front()
        {
            let bytes = under_way.iter().map(|posted| posted.bytes).sum();
            self.under_way_bytes -= bytes;
            self.path.lost(bytes, first.at);
            under_way.clear();
        }
    }

    /// When a queue pair should be given up because the device would keep retransmitting what the
    /// path drops.
    pub(crate) fn overdue_at(&self, queue_pair: usize) -> Option<Duration> {
        if !self.learns {
            return None;
        }
        let first = self.under_way.get(queue_pair)?.front()?;
        self.path.lost_at(first.at)
    }
}

/// A dropped channel's bytes in flight no longer count.
impl Drop for Pacer {
    fn drop(&mut self) {
        self.end_limit();
        self.path.leave(self.channel);
        if self.under_way_bytes > 0 {
            self.path.forget(self.under_way_bytes);
        }
    }
}
