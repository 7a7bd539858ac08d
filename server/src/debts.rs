//! Debts that time pays off: the record of peers that are gone.
//!
//! A debt is a duration. Each offence adds to it, and it shrinks by a second each second, so an entry is one instant: the
//! time when the debt will be paid (the generic cell rate algorithm, ITU-T I.371, in its form of virtual scheduling).

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::time::{Duration, Instant};

use gridhaul_shares::Network;

/// Debts by key, with bounds on each debt and on their number.
///
/// When the table is full, the smallest debt is dropped. To make the server drop an offender, an attacker must fill the
/// table with other keys, each with a larger debt. Keys of IPv4 and of IPv6 have separate tables, because a single owner of
/// a /48 has as many IPv6 networks as a table has entries.
#[derive(Debug)]
pub(crate) struct Debts<K> {
    capacity: usize,
    most: Duration,
    families: [Table<K>; 2],
}

/// The family of a key.
pub(crate) trait Family {
    /// Whether the key is of an IPv6 network.
    fn is_ipv6(&self) -> bool;
}

impl Family for Network {
    fn is_ipv6(&self) -> bool {
        Self::is_ipv6(self)
    }
}

#[derive(Debug)]
struct Table<K> {
    /// The time when each debt will be paid.
    paid: HashMap<K, Instant>,
    /// The same, in order of time.
    order: BTreeSet<(Instant, K)>,
}

impl<K: Copy + Eq + Hash + Ord + Family> Debts<K> {
    /// An empty table for at most `capacity` keys of each family, with debts of at most `most`.
    pub(crate) fn new(capacity: usize, most: Duration) -> Self {
        let table = || Table {
            paid: HashMap::new(),
            order: BTreeSet::new(),
        };
        Self {
            capacity,
            most,
            families: [table(), table()],
        }
    }

    /// The remaining debt.
    pub(crate) fn of(&self, key: K, now: Instant) -> Duration {
        let paid = self.families[usize::from(key.is_ipv6())].paid.get(&key);
        paid.map_or(Duration::ZERO, |paid| paid.saturating_duration_since(now))
    }

    /// Adds to a debt, up to the bound.
    pub(crate) fn add(&mut self, key: K, amount: Duration, now: Instant) {
        let debt = (self.of(key, now) + amount).min(self.most);
        self.set(key, debt, now);
    }

    /// Subtracts from a debt.
    pub(crate) fn forgive(&mut self, key: K, amount: Duration, now: Instant) {
        let debt = self.of(key, now).saturating_sub(amount);
        self.set(key, debt, now);
    }

    fn set(&mut self, key: K, debt: Duration, now: Instant) {
        let capacity = self.capacity;
        let table = &mut self.families[usize::from(key.is_ipv6())];
        table.remove(key);
        table.drop_paid(now);
        if debt.is_zero() {
            return;
        }
        if table.paid.len() >= capacity {
            table
                .order
                .pop_first()
                .map(|(_, key)| table.paid.remove(&key));
        }
        table.paid.insert(key, now + debt);
        table.order.insert((now + debt, key));
    }

    /// Keys with a debt, and perhaps some whose debt has been paid since.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.families.iter().map(|table| table.paid.len()).sum()
    }
}

impl<K: Copy + Eq + Hash + Ord> Table<K> {
    fn remove(&mut self, key: K) {
        if let Some(paid) = self.paid.remove(&key) {
            self.order.remove(&(paid, key));
        }
    }

    fn drop_paid(&mut self, now: Instant) {
        while let Some(&(paid, key)) = self.order.first()
            && paid <= now
        {
            self.order.pop_first();
            self.paid.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn v4(number: u32) -> Network {
        Network::of(IpAddr::from(number.to_be_bytes()))
    }

    fn v6(number: u64) -> Network {
        Network::of(IpAddr::from(
            (u128::from(number) << 64 | 1 << 125).to_be_bytes(),
        ))
    }

    #[test]
    fn debts_add_up_to_a_bound_and_time_pays_them() {
        let mut debts = Debts::new(10, 5 * SECOND);
        let now = Instant::now();
        for _ in 0..3 {
            debts.add(v4(1), SECOND, now);
        }
        assert_eq!(debts.of(v4(1), now), 3 * SECOND);
        assert_eq!(debts.of(v4(1), now + 2 * SECOND), SECOND);
        assert_eq!(debts.of(v4(1), now + 9 * SECOND), Duration::ZERO);
        for _ in 0..30 {
            debts.add(v4(1), SECOND, now);
        }
        assert_eq!(debts.of(v4(1), now), 5 * SECOND);
        debts.forgive(v4(1), 4 * SECOND, now);
        assert_eq!(debts.of(v4(1), now), SECOND);
        debts.forgive(v4(1), 4 * SECOND, now);
        assert_eq!(debts.len(), 0);
    }

    #[test]
    fn an_offender_is_not_forgotten_for_many_small_ones() {
        let mut debts = Debts::new(100, 60 * SECOND);
        let now = Instant::now();
        debts.add(v4(1), 10 * SECOND, now);
        for other in 2..10_000 {
            debts.add(v4(other), SECOND, now);
            assert!(debts.len() <= 100);
        }
        assert_eq!(debts.of(v4(1), now), 10 * SECOND);
    }

    #[test]
    fn ipv6_networks_are_cheap_and_push_no_ipv4_ones_out() {
        let mut debts = Debts::new(100, 60 * SECOND);
        let now = Instant::now();
        debts.add(v4(1), SECOND, now);
        for other in 0..10_000 {
            debts.add(v6(other), 50 * SECOND, now);
        }
        assert_eq!(debts.of(v4(1), now), SECOND);
    }

    proptest! {
        /// The model adds and pays in the plain way, and has no bound on keys.
        #[test]
        fn debts_are_those_of_the_model(
            steps in prop::collection::vec((0..4_u32, 0..9_u32, any::<bool>(), 0..3_u32), 1..60),
        ) {
            let mut debts = Debts::new(4, 20 * SECOND);
            let mut model = [Duration::ZERO; 4];
            let mut now = Instant::now();
            for (key, seconds, adds, passed) in steps {
                now += passed * SECOND;
                for debt in &mut model {
                    *debt = debt.saturating_sub(passed * SECOND);
                }
                let (amount, debt) = (seconds * SECOND, &mut model[key as usize]);
                if adds {
                    debts.add(v4(key), amount, now);
                    *debt = (*debt + amount).min(20 * SECOND);
                } else {
                    debts.forgive(v4(key), amount, now);
                    *debt = debt.saturating_sub(amount);
                }
                for (key, debt) in (0..).zip(model) {
                    prop_assert_eq!(debts.of(v4(key), now), debt);
                }
            }
        }
    }
}
