//! Several adapters that one channel uses at once.
//!
//! A *rail* is a path between a port of one end and a port of the other. The queue pairs of a channel take turns with the
//! rails. Each adapter registers the rings in a protection domain of its own, so a ring has another key on each rail.

use super::{Endpoint, Remote};

/// The most rails of a channel, and the most adapters of an end.
pub const MAX_RAILS: usize = 4;

/// The rail of a queue pair among so many rails.
pub(crate) fn rail_of(queue_pair: usize, rails: usize) -> usize {
    queue_pair % rails.max(1)
}

/// How many of so many queue pairs are on a rail.
pub(crate) fn queue_pairs_on(rail: usize, queue_pairs: usize, rails: usize) -> usize {
    (0..queue_pairs)
        .filter(|number| rail_of(*number, rails) == rail)
        .count()
}

/// The part of a rate that each of so many queue pairs has. All parts together are no less.
pub(crate) fn part_of_rate(rate: u64, queue_pairs: usize) -> u64 {
    rate.div_ceil(queue_pairs.max(1) as u64)
}

/// The adapter of an end with so many adapters that a rail uses: where the ends have different numbers, the adapters of the
/// end with fewer take turns.
pub(crate) fn adapter_of(rail: usize, adapters: usize) -> usize {
    rail % adapters.max(1)
}

/// The retransmissions of all rails; `None` if no device counts them.
pub(crate) fn all_repeats(endpoint: &dyn Endpoint) -> Option<u64> {
    let rails = 0..endpoint.limits().rails;
    let counts = rails.filter_map(|rail| endpoint.repeats(rail));
    counts.reduce(u64::saturating_add)
}

/// The peer's ring, with its key on each rail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RemoteRing {
    address: u64,
    keys: [u32; MAX_RAILS],
    rails: usize,
}

impl RemoteRing {
    /// A ring on one rail.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn new(address: u64, key: u32) -> Self {
        Self {
            address,
            keys: [key; MAX_RAILS],
            rails: 1,
        }
    }

    /// A ring on so many rails, with the keys of the peer's adapters. `None` if a number is 0 or too large.
    pub(crate) fn over(rails: usize, address: u64, adapter_keys: &[u32]) -> Option<Self> {
        let counts = 1..=MAX_RAILS;
        let is_valid = counts.contains(&rails) && counts.contains(&adapter_keys.len());
        is_valid.then(|| Self {
            address,
            keys: std::array::from_fn(|rail| adapter_keys[adapter_of(rail, adapter_keys.len())]),
            rails,
        })
    }

    /// The number of rails.
    pub(crate) fn rails(&self) -> usize {
        self.rails
    }

    /// The same ring without one of several rails.
    pub(crate) fn without(mut self, rail: usize) -> Self {
        debug_assert!(rail < self.rails && self.rails > 1, "another rail is left");
        self.keys[rail..self.rails].rotate_left(1);
        self.rails -= 1;
        self
    }

    /// The place at an offset, for a request of this queue pair.
    pub(crate) fn at(&self, queue_pair: usize, offset: usize) -> Remote {
        Remote {
            address: self.address.wrapping_add(offset as u64),
            key: self.keys[rail_of(queue_pair, self.rails)],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_pair_uses_the_key_of_its_adapter() {
        let keys = |ring: RemoteRing| [0, 1, 2, 3, 4].map(|queue_pair| ring.at(queue_pair, 0).key);
        assert_eq!(keys(RemoteRing::new(7, 5)), [5; 5]);
        let equal = RemoteRing::over(2, 7, &[5, 6]).unwrap();
        assert_eq!(keys(equal), [5, 6, 5, 6, 5]);
        assert_eq!(equal.at(1, 10).address, 17);
        // Three rails to two adapters.
        let uneven = RemoteRing::over(3, 7, &[5, 6]).unwrap();
        assert_eq!(keys(uneven), [5, 6, 5, 5, 6]);
        assert_eq!(keys(uneven.without(0)), [6, 5, 6, 5, 6]);
        assert_eq!(uneven.without(1).rails(), 2);
        let one = RemoteRing::over(2, 7, &[5]).unwrap();
        assert_eq!(keys(one), [5; 5]);
    }

    #[test]
    fn numbers_are_bounded() {
        assert_eq!(RemoteRing::over(0, 0, &[1]), None);
        assert_eq!(RemoteRing::over(MAX_RAILS + 1, 0, &[1]), None);
        assert_eq!(RemoteRing::over(1, 0, &[]), None);
        assert_eq!(RemoteRing::over(1, 0, &[1; MAX_RAILS + 1]), None);
    }
}
