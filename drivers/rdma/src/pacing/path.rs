//! The path to a peer, shared by all channels to it.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::bucket::Bucket;
use super::flight::Flight;
use super::search::Search;
use super::turn_queue::TurnQueue;

/// How fast messages may be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rate {
    /// Not limited.
    Any,
    /// Limited to this rate in bytes per second.
    Fixed(u64),
    /// Limited to the rate that a search finds, at most the rate of the port in bytes per second if
    /// that is known.
    Auto { port: Option<u64> },
}

/// A path. Times are counted from one moment that is the same for all of its channels.
#[derive(Debug)]
pub(crate) struct Path {
    state: Mutex<State>,
    /// Bytes that arrived over all of its channels, as far as arrivals are counted.
    arrived: Arc<AtomicU64>,
}

#[derive(Debug)]
struct State {
    bucket: Bucket,
    /// For [`Rate::Fixed`].
    flight: Option<Flight>,
    /// For [`Rate::Auto`].
    search: Option<Search>,
    turns: TurnQueue,
    /// How many channels have joined so far.
    channels: u64,
}

/// The number of paths that are kept, so that the next transfer starts with the known rate.
const MOST_PATHS: usize = 64;

/// Identifies a path: the peer and the options.
type Key = (IpAddr, Rate, u64);

/// The least recently used first. A list is enough for so few entries, and saves the dependency on
/// the crate `lru`.
static PATHS: Mutex<VecDeque<(Key, Arc<Path>)>> = Mutex::new(VecDeque::new());

impl Path {
    /// A path that is not shared. `burst` is the number of bytes that may be sent together, and for
    /// [`Rate::Auto`] the longest message.
    pub(crate) fn new(rate: Rate, burst: u64) -> Arc<Self> {
        let search = match rate {
            Rate::Auto { port } => Some(Search::new(port, burst)),
            Rate::Any | Rate::Fixed(_) => None,
        };
        let flight = match rate {
            Rate::Fixed(rate) => Some(Flight::new(rate, burst)),
            Rate::Any | Rate::Auto { .. } => None,
        };
        let fixed = match rate {
            Rate::Fixed(rate) => Some(rate),
            Rate::Any => None,
            Rate::Auto { .. } => search.as_ref().map(Search::rate),
        };
        let state = State {
            bucket: Bucket::new(fixed, burst),
            flight,
            search,
            turns: TurnQueue::default(),
            channels: 0,
        };
        Arc::new(Self {
            state: Mutex::new(state),
            arrived: Arc::default(),
        })
    }

    /// The path to a peer that all channels with the same options share.
    pub(crate) fn to(peer: IpAddr, rate: Rate, burst: u64) -> Arc<Self> {
        let key = (peer, rate, burst);
        let mut paths = PATHS.lock().unwrap_or_else(PoisonError::into_inner);
        let found = paths.iter().position(|(other, _)| *other == key);
        let entry = found.and_then(|found| paths.remove(found));
        let (_, path) = entry.unwrap_or_else(|| (key, Self::new(rate, burst)));
        // The least recently used path is dropped first.
        if paths.len() >= MOST_PATHS {
            paths.pop_front();
        }
        paths.push_back((key, Arc::clone(&path)));
        path
    }

    /// Sets the round trip time without load, as measured elsewhere.
    pub(crate) fn expect(&self, round_trip: Duration) {
        if let Some(flight) = &mut self.state().flight {
            flight.expect(round_trip);
        }
    }

    /// The paced rate in bytes per second; `None` if messages are not paced.
    pub(crate) fn rate(&self) -> Option<u64> {
        self.state().bucket.rate()
    }

    /// The counter of bytes that arrived over all channels.
    pub(super) fn arrived(&self) -> &Arc<AtomicU64> {
        &self.arrived
    }

    /// The longest message to try, if the length is being searched for.
    pub(super) fn message_bytes(&self) -> Option<u64> {
        self.state().search.as_ref().map(Search::message_bytes)
    }

    /// Adds a channel and returns its number.
    pub(super) fn join(&self) -> u64 {
        let mut state = self.state();
        state.channels += 1;
        state.channels
    }

    /// A channel is closed.
    pub(super) fn leave(&self, channel: u64) {
        self.state().turns.leaves(channel);
    }

    /// When this many bytes could pass.
    pub(super) fn ready_at(&self, bytes: u64, now: Duration) -> Duration {
        self.state().ready_at(bytes, now)
    }

    /// Reserves the next slot for this many bytes and returns its time. Slots are given in the
    /// order of calls.
    pub(super) fn reserve(&self, bytes: u64, now: Duration) -> Duration {
        let mut state = self.state();
        let at = state.ready_at(bytes, now);
        state.bucket.pass(bytes, at);
        at
    }

    /// Whether the slot at `slot` has expired. A sender that is scheduled a little late keeps its slot
    /// and so its rate. After a long pause it must not, or it would exceed the burst by one message.
    pub(super) fn is_over(&self, slot: Duration, bytes: u64, now: Duration) -> bool {
        let state = self.state();
        now.saturating_sub(slot) > state.bucket.time_of(bytes) || state.pause() > now
    }

    /// A channel sends this many bytes.
    pub(super) fn posted(&self, channel: u64, bytes: u64, now: Duration) {
        let mut state = self.state();
        state.turns.sends(channel, bytes, now);
        if let Some(flight) = &mut state.flight {
            flight.posted(bytes);
        }
        state.learn(|search| search.posted(bytes, now));
    }

    /// A message that was sent at `posted_at` has arrived, and so have all earlier ones of its queue
    /// pair.
    pub(super) fn completed(&self, bytes: u64, posted_at: Duration, now: Duration) {
        let mut state = self.state();
        if let Some(flight) = &mut state.flight {
            flight.arrived(bytes, posted_at, now);
        }
        state.learn(|search| search.completed(bytes, posted_at, now));
    }

    /// `bytes` in messages sent since `posted_at` were lost: their queue pair broke, or they timed
    /// out.
    pub(super) fn lost(&self, bytes: u64, posted_at: Duration) {
        let mut state = self.state();
        state.gone(bytes);
        state.learn(|search| search.lost(posted_at));
    }

    /// No completion will be reported for this many bytes.
    pub(super) fn forget(&self, bytes: u64) {
        self.state().gone(bytes);
    }

    /// The time before which a channel may not send this many bytes, because of the bytes in flight or
    /// because another channel sends. This call may detect that too much is in flight, which counts as
    /// a loss.
    pub(super) fn hold(&self, channel: u64, bytes: u64, now: Duration) -> Option<Duration> {
        let mut state = self.state();
        let flight = state.flight.as_ref();
        let mut until = flight.and_then(|flight| flight.hold(bytes, now));
        state.learn(|search| until = search.hold(now));
        let Some(burst) = state.bounding_burst() else {
            return until;
        };
        let rate = state.bucket.rate().unwrap_or(u64::MAX);
        if let Some(again) = state.turns.look(channel, burst, rate, now) {
            return Some(again);
        }
        until.map(|until| state.turns.first_look(until, now))
    }

    /// A channel polled this much later than it had planned.
    pub(super) fn overslept(&self, by: Duration, now: Duration) {
        self.state().learn(|search| search.overslept(by, now));
    }

    /// Whether a channel's device has retransmitted since its counter was read last.
    pub(super) fn counted(&self, went_back: bool, now: Duration) {
        self.state().learn(|search| search.counted(went_back, now));
    }

    /// Whether the peer's device has reported a loss since the counters were read at `since`.
    pub(super) fn looked(&self, since: Duration, has_missed: bool, now: Duration) {
        self.state()
            .learn(|search| search.looked(since, has_missed, now));
    }

    /// Whether the path uses the device's counters.
    pub(super) fn searches(&self) -> bool {
        self.state().search.is_some()
    }

    /// Whether the path uses arrivals and losses of messages.
    pub(super) fn learns(&self) -> bool {
        let state = self.state();
        state.search.is_some() || state.flight.is_some()
    }

    /// Whether the path needs the time of each arrival without delay.
    pub(super) fn awaits_arrivals(&self) -> bool {
        let state = self.state();
        let flight = state.flight.as_ref();
        flight.map_or_else(|| state.search.is_some(), Flight::is_bounded)
    }

    /// When a message sent at `posted_at` counts as lost; `None` if the path has no timeout.
    pub(super) fn lost_at(&self, posted_at: Duration) -> Option<Duration> {
        let state = self.state();
        Some(state.search.as_ref()?.lost_at(posted_at))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change leaves the state consistent, so a poisoned lock can be used.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn ready_at(&self, bytes: u64, now: Duration) -> Duration {
        self.bucket.ready_at(bytes, now.max(self.pause()))
    }

    /// The bound of the bytes in flight, if the path is short enough to have one.
    fn bounding_burst(&self) -> Option<u64> {
        let flight = self.flight.as_ref().and_then(Flight::bounding_burst);
        let search = self.search.as_ref();
        flight.or_else(|| search.filter(|search| search.is_short()).map(Search::burst))
    }

    fn pause(&self) -> Duration {
        self.search.as_ref().map_or(Duration::ZERO, Search::pause)
    }

    /// These bytes are no longer in flight.
    fn gone(&mut self, bytes: u64) {
        if let Some(flight) = &mut self.flight {
            flight.gone(bytes);
        }
        self.learn(|search| search.gone(bytes));
    }

    fn learn(&mut self, event: impl FnOnce(&mut Search)) {
        if let Some(search) = &mut self.search {
            event(search);
            self.bucket.set(Some(search.rate()), search.burst());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn to(last: u8, rate: Rate) -> Arc<Path> {
        Path::to(Ipv4Addr::new(192, 0, 2, last).into(), rate, 10)
    }

    #[test]
    fn channels_to_one_peer_share_what_they_may_send() {
        let [one, other] = [(); 2].map(|()| to(1, Rate::Fixed(10)));
        assert_eq!(one.reserve(10, Duration::ZERO), Duration::ZERO);
        assert_eq!(other.reserve(10, Duration::ZERO), Duration::from_secs(1));
        assert_eq!(one.reserve(10, Duration::ZERO), Duration::from_secs(2));
        let elsewhere = [to(2, Rate::Fixed(10)), to(1, Rate::Fixed(11))];
        for path in elsewhere {
            assert_eq!(path.reserve(10, Duration::ZERO), Duration::ZERO);
        }
    }

    #[test]
    fn paths_are_forgotten_in_the_order_of_their_use() {
        let rate = Rate::Fixed(77);
        let path = to(0, rate);
        for last in 1..=255 {
            to(last, rate);
            assert!(Arc::ptr_eq(&path, &to(0, rate)));
        }
        let paths = PATHS.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(paths.len() <= MOST_PATHS);
    }
}
