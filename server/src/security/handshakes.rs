//! Limits of handshakes by network: how many at a time, and how many failed recently.
//!
//! A handshake costs the server a signature before the client has proved anything, so a network with many failed handshakes
//! has to wait.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::admission::Network;
use crate::debts::Debts;

/// The failures of this number of networks of each family are kept.
const REMEMBERED: usize = 10_000;

/// A network may fail `most_failed` times within this time. Each failure adds this time divided by `most_failed` to the
/// network's debt, and no handshake begins when another failure would raise the debt above this time.
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
    /// The networks with handshakes in progress; the limit of connections bounds their number.
    under_way: HashMap<Network, usize>,
    failures: Debts<Network>,
}

/// A handshake in progress. Dropped without [`HandshakePermit::succeeded`], it counts as failed.
#[derive(Debug)]
pub(crate) struct HandshakePermit {
    handshakes: Arc<Handshakes>,
    network: Network,
    failed: bool,
}

/// The reason why no handshake may begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HandshakeRefusal {
    /// The network has too many handshakes in progress.
    #[error("Too many handshakes from your address are under way; please try again later")]
    UnderWay,
    /// Too many handshakes of the network have failed.
    #[error("Too many handshakes from your address have failed; please try again in a minute")]
    Failed,
}

impl Handshakes {
    /// Allows `most_under_way` at a time and `most_failed` failures a minute, for each network.
    pub(super) fn new(most_under_way: usize, most_failed: usize) -> Arc<Self> {
        let state = State {
            most_under_way,
            most_failed,
            under_way: HashMap::new(),
            failures: Debts::new(REMEMBERED, PERIOD),
        };
        Arc::new(Self {
            state: Mutex::new(state),
        })
    }

    /// Sets new limits.
    pub(super) fn set(&self, most_under_way: usize, most_failed: usize) {
        let mut state = self.lock();
        state.most_under_way = most_under_way;
        state.most_failed = most_failed;
    }

    /// Begins a handshake with `peer`, or refuses it.
    pub(super) fn admit(
        self: &Arc<Self>,
        peer: IpAddr,
        now: Instant,
    ) -> Result<HandshakePermit, HandshakeRefusal> {
        let network = Network::of(peer);
        let mut state = self.lock();
        let under_way = state.under_way.get(&network).copied().unwrap_or(0);
        if under_way >= state.most_under_way {
            return Err(HandshakeRefusal::UnderWay);
        }
        if state.failures.of(network, now) + state.failure() > PERIOD {
            return Err(HandshakeRefusal::Failed);
        }
        state.under_way.insert(network, under_way + 1);
        Ok(HandshakePermit {
            handshakes: Arc::clone(self),
            network,
            failed: true,
        })
    }

    fn end(&self, network: Network, failed: bool, now: Instant) {
        let mut state = self.lock();
        if let Some(count) = state.under_way.get_mut(&network) {
            *count -= 1;
            if *count == 0 {
                state.under_way.remove(&network);
            }
        }
        if failed {
            let failure = state.failure();
            state.failures.add(network, failure, now);
        }
    }

    /// The counts are complete at every unlock, so a panic elsewhere leaves no partial state.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The debt of a failure. Limits are at least 1 and at most a million.
    fn failure(&self) -> Duration {
        PERIOD / u32::try_from(self.most_failed).unwrap_or(u32::MAX).max(1)
    }
}

impl HandshakePermit {
    /// The handshake has authenticated the peer.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().expect(text)
    }

    #[test]
    fn so_many_may_be_under_way_from_one_network() {
        let handshakes = Handshakes::new(2, 100);
        let now = Instant::now();
        let one = address("2001:db8::1");
        let first = handshakes.admit(one, now).expect("the first");
        let _second = handshakes.admit(one, now).expect("the second");
        let same = address("2001:db8::ffff:1");
        let refusal = handshakes.admit(same, now).expect_err("the third");
        assert_eq!(refusal, HandshakeRefusal::UnderWay);
        handshakes
            .admit(address("2001:db8:0:1::1"), now)
            .expect("another network")
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
    fn nothing_is_kept_of_networks_that_did_no_harm() {
        let handshakes = Handshakes::new(2, 2);
        let now = Instant::now();
        let permit = handshakes.admit(address("192.0.2.1"), now).expect("one");
        permit.succeeded();
        let state = handshakes.lock();
        assert!(state.under_way.is_empty());
        assert_eq!(state.failures.len(), 0);
    }
}
