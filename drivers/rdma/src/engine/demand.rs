//! How long a ring a stream needs, from what its receiver takes out in a round trip.
//!
//! A ring that is shorter than the path is full before credit for its first byte is back, so about one
//! ring is delivered in each round trip. A ring that is long enough delivers what the slowest part of
//! the path can, which is less. So what is delivered in a round trip, as a share of the ring, tells
//! whether the ring is the limit, at any rate of the path.

use std::time::Duration;

/// What a stream was observed to need.
#[derive(Debug)]
pub(super) struct Demand {
    round_trip: Duration,
    /// The length of the first ring in bytes, below which none is shrunk.
    first: u64,
    /// No ring is longer than the path needs, because its rate is known.
    knows_path: bool,
    /// The present observation.
    since: Option<Observation>,
    /// Since when most of the ring was not used.
    unused_since: Option<Duration>,
    /// Nothing is asked for before.
    rests_until: Duration,
}

#[derive(Debug, Clone, Copy)]
struct Observation {
    at: Duration,
    /// The position of the stream.
    position: u64,
    /// The least number of arrived bytes that waited in the ring.
    least_waiting: u64,
    /// The most bytes that were in it.
    most_held: u64,
}

/// Another ring that a stream should have, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wish {
    pub(super) bytes: u64,
    /// A shorter one is not worth the move.
    pub(super) least: u64,
}

/// The state of a stream.
#[derive(Debug, Clone, Copy)]
pub(super) struct State {
    /// The position up to which it was taken out of the ring.
    pub(super) position: u64,
    /// Arrived bytes that wait in the ring.
    pub(super) waiting: u64,
    /// The same with those that arrived before others that precede them in the stream.
    pub(super) held: u64,
    /// The length of the ring.
    pub(super) ring: u64,
    /// How much of it the sender can use.
    pub(super) window: u64,
}

/// An observation takes a round trip, but at least this long: shorter ones measure bursts.
const LEAST_TIME: Duration = Duration::from_millis(50);

/// The ring is the limit if a round trip delivers so many percent of it. Credit comes back by quarters of the
/// ring, so that a ring of one bandwidth-delay product delivers 0.8 of itself, and one of two 0.5. The
/// round trip was measured before, and may have become longer.
const LIMITING: u64 = 60;

/// From so many percent on the ring has less than 0.7 bandwidth-delay products.
const FAR_TOO_SHORT: u64 = 85;

/// A ring of which no more than so many percent are delivered in a round trip may shrink, unless more wait in it: it buffers
/// for a receiver that pauses, and would not be free before they are read.
const UNUSED: u64 = 25;

/// If it is so for this time, or if others wait for memory.
const LONG: Duration = Duration::from_secs(30);

/// After a refusal, memory is not asked for again for this time.
const REST: Duration = Duration::from_secs(1);

impl Demand {
    /// Without any observation. `first` is the length of the ring in bytes. With `knows_path` no ring becomes longer than the path
    /// needs.
    pub(super) fn new(round_trip: Duration, first: u64, knows_path: bool) -> Self {
        Self {
            round_trip,
            first,
            knows_path,
            since: None,
            unused_since: None,
            rests_until: Duration::ZERO,
        }
    }

    /// The stream has moved to another ring.
    pub(super) fn moved(&mut self) {
        (self.since, self.unused_since) = (None, None);
    }

    /// The wish was refused.
    pub(super) fn refused(&mut self, now: Duration) {
        self.since = None;
        self.rests_until = now + REST;
    }

    /// Looks at the stream. Returns a wish if it needs another ring. `is_contended` returns whether
    /// others wait for memory.
    pub(super) fn look(
        &mut self,
        now: Duration,
        state: State,
        is_contended: impl FnOnce() -> bool,
    ) -> Option<Wish> {
        if self.round_trip.is_zero() || now < self.rests_until || state.position == 0 {
            return None;
        }
        let observation = self.since.get_or_insert(Observation {
            at: now,
            position: state.position,
            least_waiting: state.waiting,
            most_held: state.held,
        });
        observation.least_waiting = observation.least_waiting.min(state.waiting);
        observation.most_held = observation.most_held.max(state.held);
        let observed = *observation;
        let time = now - observed.at;
        if time < self.round_trip.max(LEAST_TIME) {
            return None;
        }
        self.since = None;
        let product = product(state.position - observed.position, self.round_trip, time);
        if let Some(wish) = self.longer(product, observed.least_waiting, state) {
            self.unused_since = None;
            return Some(wish);
        }
        if percent(product.max(observed.most_held), state.ring) > UNUSED {
            self.unused_since = None;
            return None;
        }
        let since = *self.unused_since.get_or_insert(now);
        let is_over = now >= since + LONG || is_contended();
        is_over.then(|| self.shorter(product, state)).flatten()
    }

    /// A longer ring, if the ring is what limits the stream: its receiver empties it, and the sender uses
    /// all of it. Where the rate of the port is known, no ring becomes longer than its path needs, so steps are longer: the first ring
    /// of a client becomes as long as a client may have it at once. They are bounded nevertheless, because the peer may only claim its
    /// rate, and because a part of the path may be slower.
    fn longer(&self, product: u64, least_waiting: u64, state: State) -> Option<Wish> {
        let share = percent(product, state.window);
        let is_used = state.window >= state.ring / 3 * 2;
        if share < LIMITING || least_waiting > state.ring / 4 || !is_used {
            return None;
        }
        let factor = match (share < FAR_TOO_SHORT, self.knows_path) {
            (true, false) => 2,
            (true, true) | (false, false) => 4,
            (false, true) => 10,
        };
        let least = state.ring.saturating_add(state.ring / 4);
        Some(Wish {
            bytes: product.saturating_mul(factor).max(least),
            least,
        })
    }

    fn shorter(&self, product: u64, state: State) -> Option<Wish> {
        let bytes = product.saturating_mul(2).max(self.first);
        (bytes <= state.ring / 2).then_some(Wish {
            bytes,
            least: bytes,
        })
    }
}

/// What is delivered in a round trip, if so many bytes are in this time.
fn product(bytes: u64, round_trip: Duration, time: Duration) -> u64 {
    let product = u128::from(bytes) * round_trip.as_nanos() / time.as_nanos().max(1);
    u64::try_from(product).unwrap_or(u64::MAX)
}

fn percent(part: u64, whole: u64) -> u64 {
    let percent = u128::from(part) * 100 / u128::from(whole.max(1));
    u64::try_from(percent).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: Duration = Duration::from_millis(1);
    const RING: u64 = 1_000_000;

    /// A stream of so many percent of a ring in each round trip of 100 ms, looked at for so long.
    fn wish(
        percent: u64,
        time: Duration,
        state: State,
        is_contended: bool,
    ) -> Option<(Duration, Wish)> {
        let mut demand = Demand::new(100 * MILLISECOND, RING, false);
        let mut now = Duration::ZERO;
        while now < time {
            now += MILLISECOND;
            let of_ring = percent * state.ring / 100;
            let position = product(of_ring, now, 100 * MILLISECOND);
            let state = State { position, ..state };
            if let Some(wish) = demand.look(now, state, || is_contended) {
                return Some((now, wish));
            }
        }
        None
    }

    const STATE: State = State {
        position: 0,
        waiting: 0,
        held: 0,
        ring: RING,
        window: RING,
    };

    #[test]
    fn a_ring_that_is_delivered_in_a_round_trip_is_too_short() {
        let soon = 300 * MILLISECOND;
        let bytes = |percent, state| wish(percent, soon, state, false).map(|(_, wish)| wish.bytes);
        let near = |bytes: Option<u64>, expected: u64| {
            bytes.is_some_and(|bytes| bytes.abs_diff(expected) < expected / 50)
        };
        assert!(near(bytes(100, STATE), 4 * RING));
        assert!(near(bytes(75, STATE), RING / 2 * 3));
        assert_eq!(bytes(50, STATE), None, "two bandwidth-delay products");
        let slow = State {
            waiting: RING / 2,
            ..STATE
        };
        assert_eq!(bytes(100, slow), None, "the receiver does not empty it");
        let halved = State {
            window: RING / 2,
            ..STATE
        };
        assert_eq!(bytes(50, halved), None, "the sender has no memory");
    }

    #[test]
    fn a_ring_that_is_too_short_grows_in_longer_steps_where_the_path_is_known() {
        let wished = |share, knows_path| {
            let mut demand = Demand::new(100 * MILLISECOND, RING, knows_path);
            let mut wishes = (0..300_u32).filter_map(|millisecond| {
                let now = millisecond * MILLISECOND;
                let position = product(share * RING / 100, now, 100 * MILLISECOND);
                demand.look(now, State { position, ..STATE }, || false)
            });
            wishes.next().map(|wish| wish.bytes * 10 / RING)
        };
        assert_eq!(wished(100, false), Some(40));
        assert_eq!(wished(100, true), Some(100));
        assert_eq!(wished(75, true), Some(30));
        assert_eq!(wished(50, true), None);
    }

    #[test]
    fn a_ring_that_is_not_used_shrinks_after_a_while_or_when_others_wait() {
        let long = State {
            ring: 10 * RING,
            window: 10 * RING,
            ..STATE
        };
        let minute = Duration::from_secs(60);
        let (at, shorter) = wish(10, minute, long, false).unwrap();
        assert!(at > LONG, "{at:?}");
        assert!(shorter.bytes.abs_diff(2 * RING) < RING / 10, "{shorter:?}");
        let (at, _) = wish(10, minute, long, true).unwrap();
        assert!(at < Duration::from_secs(1), "{at:?}");
        let first = wish(10, minute, STATE, true);
        assert_eq!(first, None, "it is the first one");
    }

    #[test]
    fn a_ring_in_which_bytes_wait_does_not_shrink() {
        let with = |held| State {
            waiting: held,
            held,
            ring: 10 * RING,
            window: 10 * RING,
            ..STATE
        };
        let minute = Duration::from_secs(60);
        for is_contended in [false, true] {
            let few = wish(10, minute, with(5 * RING / 2), is_contended);
            assert!(few.is_some(), "a quarter");
            let many = wish(10, minute, with(3 * RING), is_contended);
            assert_eq!(many, None, "is contended: {is_contended}");
        }
    }

    /// A receiver takes everything once in 20 round trips. Between that the ring is full.
    #[test]
    fn a_ring_that_is_full_at_times_does_not_shrink() {
        let mut demand = Demand::new(100 * MILLISECOND, RING, false);
        let ring = 10 * RING;
        for millisecond in 1..=60_000 {
            let taken = u64::from(millisecond / 2000 + 1) * ring;
            let arrived = u64::from(millisecond % 2000) * ring / 100;
            let state = State {
                position: taken,
                waiting: arrived.min(ring),
                held: arrived.min(ring),
                ring,
                window: ring,
            };
            let wish = demand.look(millisecond * MILLISECOND, state, || true);
            let is_longer = wish.is_none_or(|wish| wish.bytes > ring);
            assert!(is_longer, "{wish:?} after {millisecond} ms");
        }
    }

    #[test]
    fn a_refused_wish_is_repeated_later() {
        let mut demand = Demand::new(100 * MILLISECOND, RING, false);
        let mut wishes = 0;
        for millisecond in 1..=3000 {
            let now = millisecond * MILLISECOND;
            let position = u64::from(millisecond) * RING / 100;
            let state = State { position, ..STATE };
            if demand.look(now, state, || false).is_some() {
                wishes += 1;
                demand.refused(now);
            }
        }
        assert_eq!(wishes, 3);
    }
}
