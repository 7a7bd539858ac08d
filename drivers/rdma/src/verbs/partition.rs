//! Partitions of InfiniBand: the P_Key of a queue pair.
//!
//! The subnet manager writes a port's table of P_Keys. A packet carries the key at the index that its queue pair has, and the
//! other end discards packets of other partitions without an answer. Where the table has several, the ends must choose the same.

use std::fmt;

/// The bit of full members.
const FULL: u16 = 0x8000;

/// An entry of a port's table of P_Keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Partition {
    pub(super) index: u16,
    pub(super) key: PartitionKey,
}

/// A P_Key: the number of a partition, and the kind of membership.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct PartitionKey(pub(super) u16);

impl Partition {
    /// The only entry of RoCE (InfiniBand architecture, volume 1, annex A17).
    pub(super) const DEFAULT: Self = Self {
        index: 0,
        key: PartitionKey(0xffff),
    };

    /// The entry to use: of the wanted partition, or of any. The first full membership, as UCX chooses it (ib_iface.c), because limited
    /// members only reach full ones; otherwise the first limited one.
    pub(super) fn choose(table: &[u16], wanted: Option<PartitionKey>) -> Option<Self> {
        let entries = (0..).zip(table).map(|(index, &key)| Self {
            index,
            key: PartitionKey(key),
        });
        let mut usable = entries.filter(|entry| {
            let is_wanted = wanted.is_none_or(|wanted| wanted.number() == entry.key.number());
            entry.key.number() != 0 && is_wanted
        });
        usable
            .clone()
            .find(|entry| entry.key.is_full())
            .or_else(|| usable.next())
    }
}

impl PartitionKey {
    /// The partition without the kind of membership; 0 is an empty entry.
    pub(super) fn number(self) -> u16 {
        self.0 & !FULL
    }

    fn is_full(self) -> bool {
        self.0 & FULL != 0
    }

    /// Why packets of one key are not accepted at the other (InfiniBand architecture, volume 1, 10.9.3).
    pub(super) fn check_with(self, peer: Self) -> Result<(), String> {
        if self.number() != peer.number() {
            return Err(format!(
                "this end is in the partition {self} of InfiniBand, and the other end in {peer}: set the option pkey at both ends"
            ));
        }
        if !self.is_full() && !peer.is_full() {
            return Err(format!(
                "both ends are limited members of the partition {self} of InfiniBand, which do not reach each other: make one a full \
                 member at the subnet manager, or set the option pkey to another partition at both ends"
            ));
        }
        Ok(())
    }
}

impl fmt::Display for PartitionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#06x}", self.0)
    }
}

impl fmt::Debug for PartitionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(table: &[u16], wanted: Option<u16>) -> Option<(u16, u16)> {
        Partition::choose(table, wanted.map(PartitionKey)).map(|entry| (entry.index, entry.key.0))
    }

    #[test]
    fn the_first_full_membership_is_chosen() {
        assert_eq!(chosen(&[0xffff], None), Some((0, 0xffff)));
        assert_eq!(
            chosen(&[0x7fff, 0, 0x8001, 0x8002], None),
            Some((2, 0x8001))
        );
        assert_eq!(chosen(&[0, 0x7fff, 0x0001], None), Some((1, 0x7fff)));
        assert_eq!(
            chosen(&[0, 0x8000], None),
            None,
            "the number 0 is no partition"
        );
        assert_eq!(chosen(&[], None), None);
    }

    #[test]
    fn a_wanted_partition_may_name_either_membership() {
        let table = [0xffff, 0x0001, 0x8001, 0x0002];
        assert_eq!(chosen(&table, Some(0x0001)), Some((2, 0x8001)));
        assert_eq!(chosen(&table, Some(0x8002)), Some((3, 0x0002)));
        assert_eq!(chosen(&table, Some(0x8003)), None);
    }

    #[test]
    fn one_end_must_be_a_full_member() {
        let check = |ours, theirs| PartitionKey(ours).check_with(PartitionKey(theirs));
        assert_eq!(check(0x8001, 0x8001), Ok(()));
        assert_eq!(check(0x8001, 0x0001), Ok(()));
        let words = check(0x0001, 0x0001).unwrap_err();
        assert!(
            words.contains("limited members of the partition 0x0001"),
            "{words}"
        );
        let words = check(0x8001, 0xffff).unwrap_err();
        assert!(
            words.contains("0x8001") && words.contains("0xffff"),
            "{words}"
        );
    }
}
