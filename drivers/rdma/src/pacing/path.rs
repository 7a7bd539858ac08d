//! The path to a peer, shared by all channels to it.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::flight::Flight;
use super::limits::Limits;
use super::pace::{Burst, Rate};
use super::search::Search;
use super::slots::Slots;
use super::turn_queue::TurnQueue;
use crate::provider::{Gids, part_of_rate};

/// A path. Times are counted from one moment that is the same for all of its channels.
#[derive(Debug)]
pub(crate) struct Path {
    state: Mutex<State>,
    /// Bytes that arrived over all of its channels, as far as arrivals are counted.
    arrived: Arc<AtomicU64>,
}

#[derive(Debug)]
struct State {
    slots: Slots,
    /// For [`Rate::Fixed`], if a policer's burst is known.
    flight: Option<Flight>,
    /// For [`Rate::Auto`].
    search: Option<Search>,
    turns: TurnQueue,
    /// How many channels have joined so far.
    channels: u64,
    /// Channels that have not left.
    present: u64,
    /// Those of them whose adapter limits the rate.
    limits: Limits,
    /// The burst of the options, and one with room for threads that wake up late.
    bursts: [u64; 2],
}

/// The number of paths that are kept, so that the next transfer starts with the known rate.
const MOST_PATHS: usize = 64;

/// Identifies a path: the peer, the ports where it has others than the data connection, and the options. The number of a rail does
/// not: later ones get lower numbers where one is left out. A peer may claim any GID, and gets its own paths only.
type Key = (IpAddr, Option<Gids>, Rate, Burst);

/// The least recently used first. A list is enough for so few entries, and saves the dependency on
/// the crate `lru`.
static PATHS: Mutex<VecDeque<(Key, Arc<Path>)>> = Mutex::new(VecDeque::new());

impl Path {
    /// A path that is not shared. `burst` is for [`Rate::Auto`] the longest message.
    pub(crate) fn new(rate: Rate, burst: impl Into<Burst>) -> Arc<Self> {
        let burst = burst.into();
        let search = match rate {
            Rate::Auto { port } => Some(Search::new(port, burst.bytes)),
            Rate::Any | Rate::Fixed(_) => None,
        };
        let flight = match rate {
            Rate::Fixed(rate) if burst.is_policers => Some(Flight::new(rate, burst.bytes)),
            Rate::Any | Rate::Fixed(_) | Rate::Auto { .. } => None,
        };
        let fixed = match rate {
            Rate::Fixed(rate) => Some(rate),
            Rate::Any => None,
            Rate::Auto { .. } => search.as_ref().map(Search::rate),
        };
        let state = State {
            slots: Slots::new(fixed, burst.bytes),
            flight,
            search,
            turns: TurnQueue::default(),
            channels: 0,
            present: 0,
            limits: Limits::default(),
            bursts: [burst.bytes; 2],
        };
        Arc::new(Self {
            state: Mutex::new(state),
            arrived: Arc::default(),
        })
    }

    /// The path to a peer, between these ports, that all channels with the same options share.
    pub(crate) fn to(
        peer: IpAddr,
        gids: Option<Gids>,
        rate: Rate,
        burst: impl Into<Burst>,
    ) -> Arc<Self> {
        let burst = burst.into();
        // A RoCE port with the peer's own address is on the path of iWARP in user space to it.
        let peer = peer.to_canonical();
        let is_other = |gids: &Gids| IpAddr::V6(gids.peer.into()).to_canonical() != peer;
        let key = (peer, gids.filter(is_other), rate, burst);
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
        self.state().slots.rate()
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
        state.present += 1;
        state.set_burst();
        state.channels
    }

    /// A channel is closed.
    pub(super) fn leave(&self, channel: u64) {
        let mut state = self.state();
        state.turns.leaves(channel);
        state.present = state.present.saturating_sub(1);
        state.set_burst();
    }

    /// The adapter of a channel spaces packets by itself, and limits each of so many queue pairs to their part of the rate if so many
    /// channels share it. So many bytes may be handed to it at once while that holds for all channels. Returns that limit in bytes per
    /// second; `None` if messages are not paced.
    pub(super) fn begin_limit(
        &self,
        channel: u64,
        [queue_pairs, channels]: [usize; 2],
        burst: u64,
    ) -> Option<u64> {
        let mut state = self.state();
        let rate = part_of_rate(state.slots.rate()?, queue_pairs * channels.max(1));
        state.limits.begin(channel, queue_pairs, rate);
        state.bursts[1] = state.bursts[1].max(burst);
        state.set_burst();
        Some(rate)
    }

    /// The limit that each queue pair of a channel should have now, in bytes per second; `None` if it pauses.
    pub(super) fn limit(&self, channel: u64, now: Duration) -> Option<u64> {
        let mut state = self.state();
        let rate = state.slots.rate()?;
        let limit = state.limits.part(channel, rate, now);
        state.set_burst();
        limit
    }

    /// The adapter of a channel limits each queue pair to this rate from now on.
    pub(super) fn set_limit(&self, channel: u64, rate: u64) {
        let mut state = self.state();
        state.limits.set(channel, rate);
        state.set_burst();
    }

    /// It limits them no longer, or the channel is closed.
    pub(super) fn end_limit(&self, channel: u64) {
        let mut state = self.state();
        state.limits.end(channel);
        state.set_burst();
    }

    /// A channel with such an adapter sends a message.
    pub(super) fn sends_within_limit(&self, channel: u64, now: Duration) {
        let mut state = self.state();
        if state.limits.sends(channel, now) {
            state.set_burst();
        }
    }

    /// When this many bytes can pass in a channel's slot, or in the next free one.
    pub(super) fn ready_at(&self, slot: Option<Duration>, bytes: u64, now: Duration) -> Duration {
        let state = self.state();
        state.slots.ready_at(slot, bytes, now.max(state.pause()))
    }

    /// Sends this many bytes if their time has come. Otherwise returns that time, and `slot` becomes the
    /// time slot of the channel. Slots are given in the order of calls.
    pub(super) fn pass(
        &self,
        slot: &mut Option<Duration>,
        bytes: u64,
        now: Duration,
    ) -> Option<Duration> {
        let mut state = self.state();
        let from = now.max(state.pause());
        if from > now {
            return Some(state.slots.ready_at(*slot, bytes, from));
        }
        state.slots.pass(slot, bytes, now)
    }

    /// Whether a channel that sleeps until it may send this many bytes would send less than the rate.
    pub(super) fn needs_exact_time(&self, bytes: u64) -> bool {
        self.state().slots.needs_exact_time(bytes)
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
        let flight = state.flight();
        let mut until = flight.and_then(|flight| flight.hold(bytes, now));
        state.learn(|search| until = search.hold(now));
        let Some(burst) = state.bounding_burst() else {
            return until;
        };
        let rate = state.slots.rate().unwrap_or(u64::MAX);
        if let Some(again) = state.turns.look(channel, burst, rate, now) {
            return Some(again);
        }
        until.map(|until| state.turns.first_look(until, now))
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
        let flight = state.flight();
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
    /// The adapters of all channels limit the rate, to no more than that of the path together.
    fn is_limited(&self) -> bool {
        let channels = self.limits.channels();
        let rate = self.slots.rate().unwrap_or(u64::MAX);
        channels > 0 && channels >= self.present && self.limits.keep(rate)
    }

    /// The bytes in flight, if they matter: adapters that limit the rate do not send several messages at once.
    fn flight(&self) -> Option<&Flight> {
        self.flight.as_ref().filter(|_| !self.is_limited())
    }

    /// A search sets its own burst.
    fn set_burst(&mut self) {
        if self.search.is_none() {
            let burst = self.bursts[usize::from(self.is_limited())];
            self.slots.set(self.slots.rate(), burst);
        }
    }

    /// The bound of the bytes in flight, if the path is short enough to have one.
    fn bounding_burst(&self) -> Option<u64> {
        let flight = self.flight().and_then(Flight::bounding_burst);
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
            self.slots.set(Some(search.rate()), search.burst());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn to(last: u8, rate: Rate) -> Arc<Path> {
        Path::to(Ipv4Addr::new(192, 0, 2, last).into(), None, rate, 10)
    }

    #[test]
    fn channels_to_one_peer_share_what_they_may_send() {
        let [one, other] = [(); 2].map(|()| to(1, Rate::Fixed(10)));
        let pass = |path: &Path, slot: &mut _| path.pass(slot, 10, Duration::ZERO);
        assert_eq!(pass(&one, &mut None), None);
        let mut slot = None;
        assert_eq!(pass(&other, &mut slot), Some(Duration::from_secs(1)));
        assert_eq!(pass(&other, &mut slot), Some(Duration::from_secs(1)));
        assert_eq!(pass(&one, &mut None), Some(Duration::from_secs(2)));
        let peer_address = Ipv4Addr::new(192, 0, 2, 1).into();
        let gids = |local| {
            let (local, peer) = ([local; 16], [9; 16]);
            Path::to(
                peer_address,
                Some(Gids { local, peer }),
                Rate::Fixed(10),
                10,
            )
        };
        let elsewhere = [to(2, Rate::Fixed(10)), to(1, Rate::Fixed(11)), gids(1)];
        for path in elsewhere {
            assert_eq!(pass(&path, &mut None), None);
        }
        assert_eq!(pass(&gids(1), &mut None), Some(Duration::from_secs(1)));
        assert_eq!(pass(&gids(2), &mut None), None);
        let own = Gids {
            local: [1; 16],
            peer: Ipv4Addr::new(192, 0, 2, 1).to_ipv6_mapped().octets(),
        };
        let own = Path::to(peer_address, Some(own), Rate::Fixed(10), 10);
        assert!(Arc::ptr_eq(&own, &one), "the port has the peer's address");
    }

    #[test]
    fn adapters_that_limit_the_rate_get_more_at_once() {
        let path = Path::new(Rate::Fixed(1000), 10);
        let passes = |at: u64, bytes| {
            let now = Duration::from_secs(at);
            let passed = path.pass(&mut None, bytes, now).is_none();
            passed && path.pass(&mut None, bytes, now).is_none()
        };
        let first = path.join();
        assert!(!passes(1, 10));
        assert_eq!(path.begin_limit(first, [2, 1], 100), Some(500));
        assert!(passes(2, 10), "it was idle");
        // Another channel has an adapter without a limiter.
        let other = path.join();
        assert!(!passes(3, 10));
        path.leave(other);
        assert!(passes(4, 10));
        path.end_limit(first);
        assert!(!passes(5, 10));
    }

    #[test]
    fn limits_that_are_higher_than_the_rate_together_do_not_space_packets() {
        let path = Path::new(Rate::Fixed(1000), 10);
        let now = Duration::from_secs(1);
        let is_limited = || path.state().is_limited();
        let channels = [path.join(), path.join()];
        for channel in channels {
            assert_eq!(path.begin_limit(channel, [1, 1], 100), Some(1000));
        }
        path.sends_within_limit(channels[0], now);
        assert!(is_limited(), "one of them sends");
        path.sends_within_limit(channels[1], now);
        assert!(!is_limited(), "each has all of it");
        for channel in channels {
            assert_eq!(path.limit(channel, now), Some(500));
            path.set_limit(channel, 500);
        }
        assert!(is_limited());
        let later = Duration::from_secs(9);
        path.sends_within_limit(channels[1], later);
        assert_eq!(path.limit(channels[1], later), Some(1000), "it is alone");
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
