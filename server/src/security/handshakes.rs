//! Handshakes by address: how many are under way, and how many failed of late.
//!
//! A handshake costs the server a signature before it knows anything of the client, so whoever makes
//! many that come to nothing is made to wait.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Addresses of which failures are remembered. Those with handshakes under way come on top; they are
/// bounded by the number of connections.
const MOST_REMEMBERED: usize = 10_000;

/// In this time an address may fail as often as is allowed at once.
const PERIOD: Duration = Duration::from_secs(60);

/// Counts handshakes.
#[derive(Debug)]
pub(super) struct Handshakes {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    most_under_way: usize,
    most_failed: usize,
    by_network: HashMap<IpAddr, Record>,
}

/// What is known of one address. Without an entry there is nothing to know.
#[derive(Debug)]
struct Record {
    under_way: usize,
    /// Failures that are not forgiven yet, as of `counted`; one is forgiven in `PERIOD / most_failed`.
    failures: f64,
    counted: Instant,
}

/// A handshake under way. Dropped without [`HandshakePermit::succeeded`], it counts as failed.
#[derive(Debug)]
pub(crate) struct HandshakePermit {
    handshakes: Arc<Handshakes>,
    network: IpAddr,
    failed: bool,
}

/// Why no handshake may begin now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HandshakeRefusal {
    /// Too many of them are under way.
    #[error("Too many handshakes from your address are under way; please try again later")]
    UnderWay,
    /// Too many failed.
    #[error("Too many handshakes from your address have failed; please try again in a minute")]
    Failed,
}

impl Handshakes {
    /// Allows `most_under_way` at a time and `most_failed` failures a minute, for each address.
    pub(super) fn new(most_under_way: usize, most_failed: usize) -> Arc<Self> {
        let state = State {
            most_under_way,
            most_failed,
            by_network: HashMap::new(),
        };
        Arc::new(Self {
            state: Mutex::new(state),
        })
    }

    /// Counts by new limits.
    pub(super) fn set(&self, most_under_way: usize, most_failed: usize) {
        let mut state = self.lock();
        state.most_under_way = most_under_way;
        state.most_failed = most_failed;
    }

    /// Begins a handshake with `peer`, or says why not.
    pub(super) fn admit(
        self: &Arc<Self>,
        peer: IpAddr,
        now: Instant,
    ) -> Result<HandshakePermit, HandshakeRefusal> {
        let network = network(peer);
        let mut state = self.lock();
        state.forgive(network, now);
        let (most_under_way, most_failed) = (state.most_under_way, state.most_failed);
        if let Some(record) = state.by_network.get(&network) {
            if record.under_way >= most_under_way {
                return Err(HandshakeRefusal::UnderWay);
            }
            if record.failures + 1.0 > as_failures(most_failed) {
                return Err(HandshakeRefusal::Failed);
            }
        }
        state.make_room();
        let record = state.by_network.entry(network).or_insert(Record {
            under_way: 0,
            failures: 0.0,
            counted: now,
        });
        record.under_way += 1;
        Ok(HandshakePermit {
            handshakes: Arc::clone(self),
            network,
            failed: true,
        })
    }

    fn end(&self, network: IpAddr, failed: bool, now: Instant) {
        let mut state = self.lock();
        state.forgive(network, now);
        if let Some(record) = state.by_network.get_mut(&network) {
            record.under_way -= 1;
            if failed {
                record.failures += 1.0;
            }
            if record.is_nothing() {
                state.by_network.remove(&network);
            }
        }
    }

    /// The counts are whole at every unlock, so a panic elsewhere does not spoil them.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Forgives what the time since the last look allows.
    fn forgive(&mut self, network: IpAddr, now: Instant) {
        let rate = as_failures(self.most_failed) / PERIOD.as_secs_f64();
        if let Some(record) = self.by_network.get_mut(&network) {
            let since = now.saturating_duration_since(record.counted);
            record.failures = (record.failures - since.as_secs_f64() * rate).max(0.0);
            record.counted = now;
        }
    }

    /// When too much is remembered, those that failed least are forgotten first.
    fn make_room(&mut self) {
        if self.by_network.len() < MOST_REMEMBERED {
            return;
        }
        let much = as_failures(self.most_failed) / 2.0;
        self.by_network
            .retain(|_, record| record.under_way > 0 || record.failures > much);
        if self.by_network.len() >= MOST_REMEMBERED {
            self.by_network.retain(|_, record| record.under_way > 0);
        }
    }
}

impl Record {
    fn is_nothing(&self) -> bool {
        self.under_way == 0 && self.failures <= 0.0
    }
}

impl HandshakePermit {
    /// The handshake is done, and the peer is known.
    pub(crate) fn succeeded(mut self) {
        self.failed = false;
    }
}

impl Drop for HandshakePermit {
    fn drop(&mut self) {
        self.handshakes
            .end(self.network, self.failed, Instant::now());
    }
}

/// Who has one address of IPv6 usually has the 64 bits behind it too.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let bits = address.to_bits() & !u128::from(u64::MAX);
            IpAddr::V6(Ipv6Addr::from_bits(bits))
        }
        address => address,
    }
}

/// Limits are at most a million, which is exact.
fn as_failures(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::INFINITY, f64::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().expect(text)
    }

    #[test]
    fn so_many_may_be_under_way_from_one_address() {
        let handshakes = Handshakes::new(2, 100);
        let now = Instant::now();
        let one = address("192.0.2.1");
        let first = handshakes.admit(one, now).expect("the first");
        let _second = handshakes.admit(one, now).expect("the second");
        let refusal = handshakes.admit(one, now).expect_err("the third");
        assert_eq!(refusal, HandshakeRefusal::UnderWay);
        handshakes
            .admit(address("192.0.2.2"), now)
            .expect("another address")
            .succeeded();
        first.succeeded();
        handshakes.admit(one, now).expect("there is room again");
    }

    #[test]
    fn failures_are_forgiven_with_time_and_successes_cost_nothing() {
        let handshakes = Handshakes::new(10, 3);
        let one = address("192.0.2.1");
        let admit = |now| handshakes.admit(one, now);
        for _ in 0..10 {
            admit(Instant::now()).expect("admitted").succeeded();
        }
        for _ in 0..3 {
            drop(admit(Instant::now()).expect("admitted"));
        }
        let now = Instant::now();
        assert_eq!(admit(now).expect_err("failed"), HandshakeRefusal::Failed);
        assert!(admit(now + PERIOD / 4).is_err());
        admit(now + PERIOD / 2)
            .expect("one is forgiven")
            .succeeded();
    }

    #[test]
    fn nothing_is_kept_of_addresses_that_did_no_harm() {
        let handshakes = Handshakes::new(2, 2);
        let now = Instant::now();
        let permit = handshakes.admit(address("192.0.2.1"), now).expect("one");
        permit.succeeded();
        assert!(handshakes.lock().by_network.is_empty());
    }

    #[test]
    fn memory_is_bounded_and_the_worst_are_remembered_longest() {
        let handshakes = Handshakes::new(2, 2);
        let now = Instant::now();
        let worst = address("192.0.2.1");
        for _ in 0..2 {
            drop(handshakes.admit(worst, now));
        }
        let busy = address("192.0.2.2");
        let _under_way = handshakes.admit(busy, now).expect("admitted");
        for number in 0..MOST_REMEMBERED {
            let number = u32::try_from(number).expect("small");
            let other = IpAddr::from((0x0a00_0000 + number).to_be_bytes());
            drop(handshakes.admit(other, now));
            assert!(handshakes.lock().by_network.len() <= MOST_REMEMBERED);
        }
        let remembered = &handshakes.lock().by_network;
        assert!(remembered.contains_key(&worst) && remembered.contains_key(&busy));
    }

    #[test]
    fn the_addresses_of_one_ipv6_network_are_one() {
        let of = |text| network(address(text));
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:192.0.2.1"), address("192.0.2.1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    }
}
