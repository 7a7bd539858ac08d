//! A queue with round-robin scheduling of networks.

use std::collections::{HashMap, VecDeque};

use super::Network;

/// Items in order for each network, with one item of each network in a round. The waiting time depends on the number of
/// networks, and not on the number of items that others have queued.
#[derive(Debug)]
pub(super) struct FairQueue<T> {
    most: usize,
    most_per_network: usize,
    count: usize,
    by_network: HashMap<Network, VecDeque<T>>,
    /// Each network with items, once.
    round: VecDeque<Network>,
}

impl<T> FairQueue<T> {
    /// At most `most` items, and at most `most_per_network` of one network.
    pub(super) fn new(most: usize, most_per_network: usize) -> Self {
        Self {
            most,
            most_per_network,
            count: 0,
            by_network: HashMap::new(),
            round: VecDeque::new(),
        }
    }

    /// Adds an item. Returns the item that finds no room: this one, or, if the queue is full and another network has more
    /// items than this one would have, the last item of that network.
    pub(super) fn push(&mut self, network: Network, thing: T) -> Option<T> {
        let own = self.by_network.get(&network).map_or(0, VecDeque::len);
        if own >= self.most_per_network {
            return Some(thing);
        }
        let refused = if self.count >= self.most {
            match self.pop_last_of_largest(own + 1) {
                Some(last) => Some(last),
                None => return Some(thing),
            }
        } else {
            None
        };
        let things = self.by_network.entry(network).or_default();
        if things.is_empty() {
            self.round.push_back(network);
        }
        things.push_back(thing);
        self.count += 1;
        refused
    }

    /// Removes the next item.
    pub(super) fn pop(&mut self) -> Option<T> {
        let network = self.round.pop_front()?;
        let things = self.by_network.get_mut(&network)?;
        let thing = things.pop_front()?;
        if things.is_empty() {
            self.by_network.remove(&network);
        } else {
            self.round.push_back(network);
        }
        self.count -= 1;
        Some(thing)
    }

    fn pop_last_of_largest(&mut self, than: usize) -> Option<T> {
        let (network, things) = self
            .by_network
            .iter_mut()
            .max_by_key(|(_, things)| things.len())
            .filter(|(_, things)| things.len() > than)?;
        let (network, last) = (*network, things.pop_back());
        if things.is_empty() {
            self.by_network.remove(&network);
            self.round.retain(|waiting| *waiting != network);
        }
        self.count -= 1;
        last
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use proptest::prelude::*;

    use super::*;

    fn network(number: u8) -> Network {
        Network::of(IpAddr::from([192, 0, 2, number]))
    }

    #[test]
    fn a_flood_of_one_network_is_a_place_in_each_round() {
        let mut queue = FairQueue::new(1000, 100);
        for number in 0..100 {
            assert_eq!(queue.push(network(1), (1, number)), None);
        }
        assert_eq!(queue.push(network(1), (1, 100)), Some((1, 100)));
        queue.push(network(2), (2, 0));
        queue.push(network(3), (3, 0));
        let first: Vec<_> = std::iter::from_fn(|| queue.pop()).take(4).collect();
        assert_eq!(first, [(1, 0), (2, 0), (3, 0), (1, 1)]);
    }

    #[test]
    fn a_full_queue_has_room_for_those_who_have_less() {
        let mut queue = FairQueue::new(10, 10);
        for number in 0..10 {
            queue.push(network(1), (1, number));
        }
        assert_eq!(queue.push(network(2), (2, 0)), Some((1, 9)));
        assert_eq!(queue.push(network(1), (1, 10)), Some((1, 10)));
        for number in 1..4 {
            assert_eq!(
                queue.push(network(2), (2, number)).map(|(one, _)| one),
                Some(1)
            );
        }
        // Six and four: one more would only change who has most.
        assert!(
            queue
                .push(network(2), (2, 4))
                .is_some_and(|(one, _)| one == 1)
        );
        assert_eq!(queue.push(network(2), (2, 5)), Some((2, 5)));
    }

    proptest! {
        #[test]
        fn what_goes_in_comes_out_once_and_in_order(
            steps in prop::collection::vec((0..4_u8, any::<bool>()), 0..200),
        ) {
            let mut queue = FairQueue::new(12, 6);
            let (mut inside, mut next) = (Vec::new(), 0);
            let mut seen = [None::<u32>; 4];
            for (owner, pushes) in steps {
                if pushes {
                    next += 1;
                    let refused = queue.push(network(owner), (owner, next));
                    inside.push((owner, next));
                    inside.retain(|thing| Some(*thing) != refused);
                    prop_assert!(inside.len() <= 12);
                } else {
                    let popped = queue.pop();
                    prop_assert_eq!(popped.is_none(), inside.is_empty());
                    if let Some((owner, number)) = popped {
                        prop_assert!(inside.contains(&(owner, number)));
                        inside.retain(|thing| *thing != (owner, number));
                        prop_assert!(seen[usize::from(owner)] < Some(number));
                        seen[usize::from(owner)] = Some(number);
                    }
                }
                prop_assert_eq!(queue.count, inside.len());
                prop_assert_eq!(queue.round.len(), queue.by_network.len());
            }
        }
    }
}
