//! What one sender has to do with its path.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use super::LOOKS;
use super::path::Path;
use crate::provider::Endpoint;

/// One sender's turns on its path, and what it has under way there.
#[derive(Debug)]
pub(crate) struct Pacer {
    path: Arc<Path>,
    /// By which the path knows it.
    channel: u64,
    /// The turn that was taken and not used: when it comes.
    turn: Option<Duration>,
    /// When somebody should look again who was told to wait.
    due: Option<Duration>,
    /// How often the device had gone back, how often because the peer's missed something, and when that was asked last.
    repeats: Option<u64>,
    misses: Option<u64>,
    looked_at: Option<Duration>,
    /// By queue pair, in the order in which they complete.
    under_way: Vec<VecDeque<Posted>>,
    /// How many bytes that are, in all, and how many have completed.
    under_way_bytes: u64,
    completed_bytes: u64,
    /// It matters to the path what becomes of messages.
    learns: bool,
    /// And what devices count.
    searches: bool,
}

/// A message that has left.
#[derive(Debug, Clone, Copy)]
struct Posted {
    bytes: u64,
    at: Duration,
}

/// Nobody is awake to the millisecond.
const OVERSLEPT: Duration = Duration::from_millis(5);

impl Pacer {
    /// Without `queue_pairs` nobody tells it what becomes of messages.
    pub(crate) fn new(path: Arc<Path>, queue_pairs: usize) -> Self {
        Self {
            learns: queue_pairs > 0 && path.learns(),
            searches: queue_pairs > 0 && path.searches(),
            channel: path.join(),
            path,
            turn: None,
            due: None,
            repeats: None,
            misses: None,
            looked_at: None,
            under_way: vec![VecDeque::new(); queue_pairs],
            under_way_bytes: 0,
            completed_bytes: 0,
        }
    }

    /// How fast messages leave, in bytes per second, if they are held back.
    pub(crate) fn rate(&self) -> Option<u64> {
        self.path.rate()
    }

    /// The longest message, of at most `wanted` bytes.
    pub(crate) fn message_bytes(&self, wanted: u64) -> u64 {
        let most = self.path.message_bytes();
        most.map_or(wanted, |most| wanted.min(most))
    }

    /// Somebody looks. Who does so late was kept from it, and so was perhaps the device.
    pub(crate) fn wake(&mut self, now: Duration, endpoint: &dyn Endpoint) {
        if self.searches && self.looked_at.is_none_or(|at| now >= at + LOOKS) {
            self.look(now, endpoint);
        }
        if let Some(due) = self.due.take_if(|due| *due <= now)
            && now - due > OVERSLEPT
        {
            self.path.overslept(now - due, now);
        }
    }

    /// Asks what the device has counted.
    fn look(&mut self, now: Duration, endpoint: &dyn Endpoint) {
        let since = self.looked_at.replace(now).unwrap_or(now);
        if let Some(repeats) = endpoint.repeats() {
            let before = self.repeats.replace(repeats);
            let went_back = before.is_some_and(|before| before != repeats);
            self.path.counted(went_back, now);
        }
        if let Some(misses) = endpoint.misses() {
            let before = self.misses.replace(misses);
            let has_missed = before.is_some_and(|before| before != misses);
            self.path.looked(since, has_missed, now);
        }
    }

    /// When a message may leave: `now` or later.
    pub(crate) fn ready_at(&self, bytes: u64, now: Duration) -> Duration {
        let turn = self.turn;
        let turn = turn.map_or_else(|| self.path.ready_at(bytes, now), |turn| turn.max(now));
        self.hold(bytes, now).map_or(turn, |until| turn.max(until))
    }

    /// Until when nothing may leave, whoever's turn it is.
    fn hold(&self, bytes: u64, now: Duration) -> Option<Duration> {
        self.learns
            .then(|| self.path.hold(self.channel, bytes, now))
            .flatten()
    }

    /// Takes a turn for a message, and uses it if it has come. `false` if it has not.
    pub(crate) fn pass(&mut self, queue_pair: usize, bytes: u64, now: Duration) -> bool {
        if let Some(until) = self.hold(bytes, now) {
            self.due = Some(until);
            return false;
        }
        let turn = self
            .turn
            .filter(|&turn| !self.path.is_over(turn, bytes, now));
        let turn = turn.unwrap_or_else(|| self.path.reserve(bytes, now));
        self.turn = Some(turn).filter(|&turn| turn > now);
        self.due = self.turn;
        if self.turn.is_some() {
            return false;
        }
        if let Some(under_way) = self.under_way.get_mut(queue_pair) {
            under_way.push_back(Posted { bytes, at: now });
            self.under_way_bytes += bytes;
            if self.learns {
                self.path.posted(self.channel, bytes, now);
            }
        }
        true
    }

    /// The message that left first of those on a queue pair is there.
    pub(crate) fn completed(&mut self, queue_pair: usize, now: Duration) {
        let under_way = self.under_way.get_mut(queue_pair);
        if let Some(posted) = under_way.and_then(VecDeque::pop_front) {
            self.under_way_bytes -= posted.bytes;
            self.completed_bytes += posted.bytes;
            if self.learns {
                self.path.completed(posted.bytes, posted.at, now);
            }
        }
    }

    /// Whether it matters when messages complete.
    pub(crate) fn awaits_completions(&self) -> bool {
        self.learns && self.path.awaits_arrivals()
    }

    /// Bytes that left and have not completed, and bytes that have.
    pub(crate) fn progress(&self) -> (u64, u64) {
        (self.under_way_bytes, self.completed_bytes)
    }

    /// Where all channels of the path count what arrives.
    pub(crate) fn arrived(&self) -> Arc<AtomicU64> {
        Arc::clone(self.path.arrived())
    }

    /// Nothing that is under way on a queue pair arrives any more.
    pub(crate) fn lost(&mut self, queue_pair: usize) {
        self.due = None;
        if let Some(under_way) = self.under_way.get_mut(queue_pair)
            && let Some(first) = under_way.front()
        {
            let bytes = under_way.iter().map(|posted| posted.bytes).sum();
            self.under_way_bytes -= bytes;
            self.path.lost(bytes, first.at);
            under_way.clear();
        }
    }

    /// When a queue pair should be given up, because a device would repeat for long what the path has dropped.
    pub(crate) fn overdue_at(&self, queue_pair: usize) -> Option<Duration> {
        if !self.learns {
            return None;
        }
        let first = self.under_way.get(queue_pair)?.front()?;
        self.path.lost_at(first.at)
    }
}

/// What a dropped channel had under way is in nobody's way.
impl Drop for Pacer {
    fn drop(&mut self) {
        self.path.leave(self.channel);
        if self.under_way_bytes > 0 {
            self.path.forget(self.under_way_bytes);
        }
    }
}
