//! Several adapters that one channel uses at once.
//!
//! A *rail* is a path between a port of one end and a port of the other. The queue pairs of a channel take turns with the
//! rails. Each adapter registers the rings in a protection domain of its own, so a ring has another key on each rail.

use super::{Endpoint, Region, Remote};

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

/// The keys of a ring at the adapters of its end, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Keys {
    /// Those from `count` on are 0.
    keys: [u32; MAX_RAILS],
    count: usize,
}

impl Keys {
    /// Of a ring that the peer does not access.
    pub(crate) const NONE: Self = Self {
        keys: [0; MAX_RAILS],
        count: 0,
    };

    /// `None` if there are more than an end can have adapters.
    pub(crate) fn of(adapter_keys: &[u32]) -> Option<Self> {
        let mut keys = [0; MAX_RAILS];
        keys.get_mut(..adapter_keys.len())?
            .copy_from_slice(adapter_keys);
        Some(Self {
            keys,
            count: adapter_keys.len(),
        })
    }

    pub(crate) fn as_slice(&self) -> &[u32] {
        &self.keys[..self.count]
    }

    fn remove(&mut self, adapter: usize) {
        self.keys[adapter] = 0;
        self.keys[adapter..].rotate_left(1);
        self.count -= 1;
    }
}

/// The keys of a region at all adapters of this end.
pub(crate) fn keys_of(endpoint: &dyn Endpoint, region: Region) -> Keys {
    let mut keys = vec![region.key];
    keys.extend(endpoint.further_keys(region.id));
    Keys::of(&keys).expect("an end has few adapters")
}

/// The peer's ring, with its key on each rail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RemoteRing {
    address: u64,
    keys: Keys,
    /// The peer's adapter on each rail.
    adapters: [usize; MAX_RAILS],
    rails: usize,
}

impl RemoteRing {
    /// A ring on one rail.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn new(address: u64, key: u32) -> Self {
        Self::over(1, address, &[key]).expect("one rail")
    }

    /// A ring on so many rails, with the keys of the peer's adapters. `None` if a number is 0 or too large.
    pub(crate) fn over(rails: usize, address: u64, adapter_keys: &[u32]) -> Option<Self> {
        let counts = 1..=MAX_RAILS;
        let is_valid = counts.contains(&rails) && !adapter_keys.is_empty();
        let keys = Keys::of(adapter_keys).filter(|_| is_valid)?;
        Some(Self {
            address,
            keys,
            adapters: std::array::from_fn(|rail| adapter_of(rail, adapter_keys.len())),
            rails,
        })
    }

    /// Another ring of the peer, on the same rails. `None` unless it has a key at each of the peer's adapters.
    pub(crate) fn exchanged_for(&self, address: u64, keys: Keys) -> Option<Self> {
        (keys.count == self.keys.count).then_some(Self {
            address,
            keys,
            ..*self
        })
    }

    /// The number of rails.
    pub(crate) fn rails(&self) -> usize {
        self.rails
    }

    /// The same ring without one of several rails. The peer closes an adapter that has no rail any more.
    pub(crate) fn without(mut self, rail: usize) -> Self {
        debug_assert!(rail < self.rails && self.rails > 1, "another rail is left");
        let closed = self.adapters[rail];
        self.adapters[rail..self.rails].rotate_left(1);
        self.rails -= 1;
        let left = &mut self.adapters[..self.rails];
        if !left.contains(&closed) {
            let later = left.iter_mut().filter(|adapter| **adapter > closed);
            later.for_each(|adapter| *adapter -= 1);
            self.keys.remove(closed);
        }
        self
    }

    /// The place at an offset, for a request of this queue pair.
    pub(crate) fn at(&self, queue_pair: usize, offset: usize) -> Remote {
        let adapter = self.adapters[rail_of(queue_pair, self.rails)];
        Remote {
            address: self.address.wrapping_add(offset as u64),
            key: self.keys.keys[adapter],
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
        assert_eq!(Keys::of(&[1; MAX_RAILS + 1]), None);
    }

    /// Further rings are registered with the adapters that are left.
    #[test]
    fn another_ring_is_on_the_same_rails() {
        let keys = |keys: &[u32]| Keys::of(keys).unwrap();
        let on = |ring: RemoteRing| [0, 1, 2].map(|queue_pair| ring.at(queue_pair, 1).key);
        let one_each = RemoteRing::over(3, 7, &[5, 6, 7]).unwrap().without(1);
        assert_eq!(on(one_each), [5, 7, 5]);
        let next = one_each.exchanged_for(100, keys(&[15, 17])).unwrap();
        assert_eq!(on(next), [15, 17, 15]);
        assert_eq!((next.at(0, 1).address, next.rails()), (101, 2));
        for count in [0, 1, 3, 4] {
            assert_eq!(one_each.exchanged_for(0, keys(&[1; 4][..count])), None);
        }
        // Two of three rails are on the first adapter of the peer.
        let shared = RemoteRing::over(3, 7, &[5, 6]).unwrap();
        let without_first = shared.without(0).exchanged_for(0, keys(&[15, 16]));
        assert_eq!(on(without_first.unwrap()), [16, 15, 16]);
        let without_second = shared.without(1).exchanged_for(0, keys(&[15]));
        assert_eq!(on(without_second.unwrap()), [15; 3]);
    }
}
