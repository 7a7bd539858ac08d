//! Selective repeat: the responder holds what arrives behind a missing packet, and the requester repeats only what is missing.
//!
//! As in IRN (Mittal et al., "Revisiting Network Support for RDMA", SIGCOMM 2018): a NAK names the packet that the responder
//! awaits and those that have just arrived. The path keeps the order of packets, so holes before these were lost. Each is repeated
//! once. The requester's timer notices the loss of a repetition, and that of the last packets.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

/// Packets behind the first unacknowledged one.
#[derive(Debug, Default)]
pub(super) struct Repair {
    /// Those that have arrived: the first ones, with the ends. They neither overlap nor touch.
    arrived: BTreeMap<u64, u64>,
    /// Those to be repeated.
    wanted: VecDeque<Range<u64>>,
    /// Holes before this packet have been repeated, or are about to be.
    examined: u64,
}

impl Repair {
    /// The responder has told that these packets have arrived behind a missing one. Returns whether holes before them are new.
    pub(super) fn heard(&mut self, acknowledged: u64, arrived: &[Range<u64>]) -> bool {
        for range in arrived {
            self.insert(range.clone());
        }
        self.acknowledge(acknowledged);
        let end = self.arrived.last_key_value().map_or(0, |(_, &end)| end);
        let holes = self.holes(self.examined.max(acknowledged)..end);
        self.examined = self.examined.max(end);
        let are_new = !holes.is_empty();
        self.wanted.extend(holes);
        are_new
    }

    /// Nothing was acknowledged for too long: everything that is not known to have arrived is repeated.
    pub(super) fn repeat_all(&mut self, unacknowledged: Range<u64>) {
        self.examined = unacknowledged.end;
        self.wanted = self.holes(unacknowledged.clone()).into();
        if self.wanted.is_empty() {
            // All have arrived, and the acknowledgement of the last one is lost.
            self.wanted.push_back(unacknowledged);
        }
    }

    /// The requester goes back to this packet, and sends everything from there on again.
    pub(super) fn go_back(&mut self, packet: u64) {
        self.examined = packet;
        self.wanted.clear();
    }

    /// The responder has taken everything before this packet.
    pub(super) fn acknowledge(&mut self, packet: u64) {
        while let Some(entry) = self.arrived.first_entry()
            && *entry.get() <= packet
        {
            entry.remove();
        }
        while let Some(first) = self.wanted.front_mut()
            && first.start < packet
        {
            first.start = packet.min(first.end);
            if first.is_empty() {
                self.wanted.pop_front();
            }
        }
    }

    /// The first packets to be repeated.
    pub(super) fn next(&mut self) -> Option<Range<u64>> {
        self.wanted.pop_front()
    }

    /// These are still to be repeated.
    pub(super) fn put_back(&mut self, rest: Range<u64>) {
        if !rest.is_empty() {
            self.wanted.push_front(rest);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.wanted.is_empty()
    }

    fn insert(&mut self, mut range: Range<u64>) {
        while let Some((&first, &end)) = self.arrived.range(..=range.end).next_back()
            && end >= range.start
        {
            range = range.start.min(first)..range.end.max(end);
            self.arrived.remove(&first);
        }
        self.arrived.insert(range.start, range.end);
    }

    /// The packets of a range that have not arrived.
    fn holes(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let mut holes = Vec::new();
        let mut from = range.start;
        for (&first, &end) in &self.arrived {
            if first > from && from < range.end {
                holes.push(from..first.min(range.end));
            }
            from = from.max(end);
        }
        if from < range.end {
            holes.push(from..range.end);
        }
        holes
    }
}

/// Trains that have arrived behind a missing packet: the first packets, with the ends and what they are.
#[derive(Debug)]
pub(super) struct Held<K>(BTreeMap<u64, (u64, K)>);

impl<K> Held<K> {
    pub(super) fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// Holds packets until those before them have arrived.
    pub(super) fn hold(&mut self, packets: Range<u64>, kind: K) {
        let held = self.0.entry(packets.start).or_insert((packets.end, kind));
        held.0 = held.0.max(packets.end);
    }

    /// Takes the packets that begin with the awaited one, if they have arrived; all of one message.
    pub(super) fn take(&mut self, awaited: u64) -> Option<(Range<u64>, K)> {
        while let Some(entry) = self.0.first_entry()
            && *entry.key() <= awaited
        {
            let (end, kind) = entry.remove();
            if end > awaited {
                return Some((awaited..end, kind));
            }
        }
        None
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// The packets that are repeated next.
    fn wanted(repair: &mut Repair) -> Vec<u64> {
        std::iter::from_fn(|| repair.next()).flatten().collect()
    }

    #[test]
    fn each_hole_is_repeated_once() {
        let mut repair = Repair::default();
        assert!(repair.heard(2, &[4..6, 8..9]));
        assert_eq!(wanted(&mut repair), [2, 3, 6, 7]);
        assert!(
            !repair.heard(2, &[9..10, 10..12]),
            "nothing is missing before these"
        );
        assert!(repair.heard(2, &[13..14, 14..15]));
        assert_eq!(wanted(&mut repair), [12]);
        repair.repeat_all(2..17);
        assert_eq!(wanted(&mut repair), [2, 3, 6, 7, 12, 15, 16]);
    }

    #[test]
    fn what_is_acknowledged_is_not_repeated() {
        let mut repair = Repair::default();
        repair.heard(0, &[5..6, 9..10]);
        repair.acknowledge(7);
        assert_eq!(wanted(&mut repair), [7, 8]);
        repair.acknowledge(10);
        repair.repeat_all(10..12);
        repair.acknowledge(12);
        assert!(repair.is_empty());
    }

    proptest! {
        /// Holes are what a set of all packets lacks.
        #[test]
        fn holes_are_the_packets_that_have_not_arrived(
            ranges in proptest::collection::vec((0_u64..60, 1_u64..9), 0..20),
            acknowledged in 0_u64..70,
        ) {
            let (mut repair, mut model) = (Repair::default(), BTreeSet::new());
            for (first, length) in ranges {
                repair.insert(first..first + length);
                model.extend(first..first + length);
            }
            let missing: Vec<u64> = (acknowledged..70).filter(|packet| !model.contains(packet)).collect();
            repair.acknowledge(acknowledged);
            let found: Vec<u64> = repair.holes(acknowledged..70).into_iter().flatten().collect();
            prop_assert_eq!(found, missing);
        }

        /// Trains are taken in order, whole, and once.
        #[test]
        fn packets_are_taken_in_order(
            mut trains in shuffled_trains(),
        ) {
            let count = trains.iter().map(|train| train.end).max().unwrap();
            let (mut held, mut taken) = (Held::new(), 0);
            while let Some(train) = trains.pop() {
                held.hold(train, ());
                while let Some((packets, _)) = held.take(taken) {
                    prop_assert_eq!(packets.start, taken);
                    taken = packets.end;
                }
            }
            prop_assert!(held.is_empty() && taken == count);
        }
    }

    /// Consecutive trains in any order.
    fn shuffled_trains() -> impl Strategy<Value = Vec<Range<u64>>> {
        let trains = |lengths: Vec<u64>| {
            let mut end = 0;
            let train = |length| {
                let first = end;
                end += length;
                first..end
            };
            lengths.into_iter().map(train).collect::<Vec<_>>()
        };
        let lengths = proptest::collection::vec(1_u64..9, 1..20);
        lengths.prop_map(trains).prop_shuffle()
    }
}
