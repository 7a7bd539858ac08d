//! Limits of wrong passwords by network and user, across connections.
//!
//! Failures add to three debts ([`Debts`]), and time pays them off:
//!
//! - **of a user from a network**: ten failures at once, then one in ten seconds. That is a client that retries with an old
//!   password. It uses up only its own debt, so others behind the same address log in.
//! - **of a network**: a hundred failures at once, then one in two seconds: guesses at many users.
//! - **of a user from anywhere**: a hundred failures at once, then one in ten seconds: guesses of many networks at one
//!   user. Above it, a network that has failed with this user must wait for a minute for each failure, instead of
//!   having ten at once. Its first attempt is always checked. So an attacker cannot lock a user out, even in a network where
//!   the user has never been before, and has one guess for each network in a minute.
//!
//! Where a user has logged in from a network in the last week, only the first debt counts for this user from there: to lock
//! such a user out, an attacker must share the network.
//!
//! Names count whether or not there is such a user, so the budget does not reveal which users exist. Names are kept as keyed
//! hashes of 64 bits, so that long names need no more memory.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::admission::Network;
use crate::debts::{Debts, Family};

/// The debt of a failure of a user from a network, and the largest debt with which attempts are checked.
const PAIR: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(90));

/// The same while many networks guess at the user.
const PAIR_WHILE_GUESSED: (Duration, Duration) = (Duration::from_secs(60), Duration::ZERO);

/// The same for a network.
const NETWORK: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(198));

/// The same for a user.
const NAME: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(990));

/// A login exempts its network for this time.
const KNOWN: Duration = Duration::from_secs(7 * 24 * 3600);

/// Entries of each kind and family: some 20 MB in all, if all are used.
const REMEMBERED: usize = 32_768;

/// The debts of all networks and users.
#[derive(Debug)]
pub(super) struct Budget {
    hasher: RandomState,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    pairs: Debts<Pair>,
    networks: Debts<Network>,
    names: Debts<Name>,
    /// The networks from which users logged in, until that is forgotten.
    known: Debts<Pair>,
}

/// The hash of a user's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Name(u64);

/// A user from a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Pair {
    name: Name,
    network: Network,
}

impl Family for Name {
    fn is_ipv6(&self) -> bool {
        false
    }
}

impl Family for Pair {
    fn is_ipv6(&self) -> bool {
        self.network.is_ipv6()
    }
}

impl Budget {
    pub(super) fn new() -> Self {
        let state = State {
            pairs: Debts::new(REMEMBERED, Duration::from_secs(600)),
            networks: Debts::new(REMEMBERED, NETWORK.0 + NETWORK.1),
            names: Debts::new(REMEMBERED, NAME.0 + NAME.1),
            known: Debts::new(REMEMBERED, KNOWN),
        };
        Self {
            hasher: RandomState::new(),
            state: Mutex::new(state),
        }
    }

    /// A user from a network.
    pub(super) fn pair(&self, name: &str, network: Network) -> Pair {
        let name = Name(self.hasher.hash_one(name));
        Pair { name, network }
    }

    /// Whether an attempt is checked now, or the time until then.
    pub(super) fn allows(&self, pair: Pair, now: Instant) -> Result<(), Duration> {
        let state = self.lock();
        let over = |debt: Duration, limit: Duration| debt.saturating_sub(limit);
        let own = state.pairs.of(pair, now);
        let mut wait = over(own, PAIR.1);
        if !state.is_known(pair, now) {
            wait = wait.max(over(state.networks.of(pair.network, now), NETWORK.1));
            if state.is_guessed(pair, now) {
                wait = wait.max(over(own, PAIR_WHILE_GUESSED.1));
            }
        }
        if wait.is_zero() { Ok(()) } else { Err(wait) }
    }

    /// Counts a wrong password or an unknown user.
    pub(super) fn failed(&self, pair: Pair, now: Instant) {
        let mut state = self.lock();
        if state.is_known(pair, now) {
            state.pairs.add(pair, PAIR.0, now);
            return;
        }
        let amount = if state.is_guessed(pair, now) {
            PAIR_WHILE_GUESSED.0
        } else {
            PAIR.0
        };
        state.pairs.add(pair, amount, now);
        state.networks.add(pair.network, NETWORK.0, now);
        state.names.add(pair.name, NAME.0, now);
    }

    /// Counts a right password.
    pub(super) fn succeeded(&self, pair: Pair, now: Instant) {
        let mut state = self.lock();
        state.pairs.forgive(pair, Duration::MAX, now);
        state.known.add(pair, KNOWN, now);
    }

    /// A panic elsewhere leaves counts that are accurate enough.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn is_known(&self, pair: Pair, now: Instant) -> bool {
        !self.known.of(pair, now).is_zero()
    }

    fn is_guessed(&self, pair: Pair, now: Instant) -> bool {
        self.names.of(pair.name, now) > NAME.1
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn network(number: u32) -> Network {
        Network::of(IpAddr::from((0x0a00_0000 + number).to_be_bytes()))
    }

    /// Fails until an attempt is refused; how often that was, and how long to wait.
    fn exhaust(budget: &Budget, pair: Pair, now: Instant) -> (u32, Duration) {
        for count in 0..1000 {
            if let Err(wait) = budget.allows(pair, now) {
                return (count, wait);
            }
            budget.failed(pair, now);
        }
        panic!("there is no end");
    }

    #[test]
    fn a_client_with_an_old_password_locks_out_itself_only() {
        let budget = Budget::new();
        let now = Instant::now();
        let (ann, bob) = (
            budget.pair("ann", network(1)),
            budget.pair("bob", network(1)),
        );
        assert_eq!(exhaust(&budget, ann, now), (10, 10 * SECOND));
        assert_eq!(budget.allows(bob, now), Ok(()));
        assert_eq!(budget.allows(budget.pair("ann", network(2)), now), Ok(()));
        assert!(budget.allows(ann, now + 9 * SECOND).is_err());
        assert_eq!(budget.allows(ann, now + 10 * SECOND), Ok(()));
        budget.succeeded(ann, now + 10 * SECOND);
        assert_eq!(exhaust(&budget, ann, now + 10 * SECOND).0, 10);
    }

    #[test]
    fn guesses_at_many_users_from_one_network_come_to_an_end() {
        let budget = Budget::new();
        let now = Instant::now();
        let at_home = budget.pair("ann", network(1));
        budget.succeeded(at_home, now);
        let pair = |number: usize| budget.pair(&format!("user{number}"), network(1));
        let heard = (0..450).filter(|number| {
            let allowed = budget.allows(pair(*number), now).is_ok();
            if allowed {
                budget.failed(pair(*number), now);
            }
            allowed
        });
        assert_eq!(heard.count(), 100);
        assert_eq!(budget.allows(at_home, now), Ok(()), "she was here before");
        assert!(budget.allows(budget.pair("eve", network(1)), now).is_err());
        assert_eq!(budget.allows(budget.pair("eve", network(2)), now), Ok(()));
        assert_eq!(budget.allows(pair(0), now + 2 * SECOND), Ok(()));
    }

    #[test]
    fn many_networks_cannot_lock_a_user_out_and_have_one_guess_a_minute_each() {
        let budget = Budget::new();
        let now = Instant::now();
        let at_home = budget.pair("ann", network(1));
        budget.succeeded(at_home, now);
        for number in 100..400 {
            exhaust(&budget, budget.pair("ann", network(number)), now);
        }
        // At home she even has typing errors.
        budget.failed(at_home, now);
        assert_eq!(budget.allows(at_home, now), Ok(()));
        // Somewhere else she has an attempt.
        let travelling = budget.pair("ann", network(2));
        assert_eq!(exhaust(&budget, travelling, now), (1, 60 * SECOND));
        budget.succeeded(travelling, now);
        assert_eq!(budget.allows(travelling, now), Ok(()));
        // Others are not concerned.
        assert_eq!(exhaust(&budget, budget.pair("bob", network(2)), now).0, 10);
        // It ends when the guessing ends.
        let later = now + 20 * SECOND;
        let elsewhere = budget.pair("ann", network(3));
        assert_eq!(
            exhaust(&budget, elsewhere, later).0,
            2,
            "then it is guessing again"
        );
    }

    #[test]
    fn names_without_a_user_count_as_others_do() {
        // The budget does not know who exists: nothing but the name goes in.
        let budget = Budget::new();
        assert_eq!(
            budget.pair("ann", network(1)),
            budget.pair("ann", network(1))
        );
        assert_ne!(
            budget.pair("ann", network(1)),
            budget.pair("eve", network(1))
        );
    }
}
