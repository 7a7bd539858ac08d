//! The bounds of a process, and the rings that count against each.

use std::collections::HashMap;
use std::fmt;

use gridhaul_shares::policy;
use gridhaul_stack::{Party, Side};

use super::budget::{Budget, size_class_below};

/// The owner of a channel's rings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) side: Side,
    /// The provider pins memory, so that the kernel's limit counts as well.
    pub(crate) pins: bool,
    /// The client that the channel serves. Parties leave memory for each other.
    pub(crate) party: Option<Party>,
}

/// The bounds of a process.
#[derive(Debug)]
pub(super) struct Bounds {
    memory: Bound,
    pinned: Bound,
}

/// A bound with a reserve for channels that this end accepts, shared among parties.
///
/// A connecting end has its rings before the accepting end reserves memory. If connecting ends could
/// take everything, the two ends of copies within one process, or between two, could deadlock. An
/// accepting end that has its rings waits for no further memory.
#[derive(Debug)]
struct Bound {
    all: Budget,
    connectors: Budget,
    /// The memory of each party in bytes.
    parties: HashMap<Party, u64>,
}

/// The smallest ring of a channel that wants a larger one, in bytes.
const LEAST_RING_BYTES: u64 = 64 << 10;

impl Bounds {
    /// Bounds in bytes: on all rings, and on those that a provider pins.
    pub(super) fn new(memory: u64, pinned: u64) -> Self {
        Self {
            memory: Bound::new(memory),
            pinned: Bound::new(pinned),
        }
    }

    /// The same bounds without any holder.
    pub(super) fn emptied(&self) -> Self {
        let limit = |bound: &Bound| bound.all.limit();
        Self::new(limit(&self.memory), limit(&self.pinned))
    }

    /// The length of rings that many holders can all have while shares are reserved for further ones.
    pub(super) fn common_ring_bytes(&self, pins: bool) -> u64 {
        /// Two ends of 64 channels.
        const MANY: u64 = 128;
        let pinned = self.pinned.all.limit();
        let memory = self.memory.all.limit();
        let limit = if pins { memory.min(pinned) } else { memory };
        (limit / (2 * MANY) / 4 * 3).max(LEAST_RING_BYTES)
    }

    pub(super) fn memory(&self) -> &Budget {
        &self.memory.all
    }

    pub(super) fn pinned(&self) -> &Budget {
        &self.pinned.all
    }

    pub(super) fn set_memory(&mut self, limit: u64) {
        self.memory.all.set_limit(limit);
        self.memory.connectors.set_limit(limit_of_connectors(limit));
    }

    /// The length that each of two rings may have; `None` if less than the least is free. `page` is
    /// the size of a page.
    pub(super) fn offer(&self, holder: Holder, ring_bytes: u64, page: u64) -> Option<u64> {
        let both = |bytes: u64| 2 * bytes.next_multiple_of(page);
        let wanted = both(ring_bytes);
        let least = both(ring_bytes.min(LEAST_RING_BYTES));
        let offer = self
            .applying(holder)
            .map(|bound| bound.offer(holder, wanted, least))
            .min()
            .flatten()?;
        if offer >= wanted {
            return Some(ring_bytes);
        }
        let pages = size_class_below(offer / 2 / page);
        Some((pages * page).max(least / 2).min(ring_bytes))
    }

    /// A new holder takes this many bytes.
    pub(super) fn take(&mut self, holder: Holder, bytes: u64) {
        self.applying_mut(holder).for_each(|bound| {
            bound.change(holder, |budget| budget.take(bytes));
            bound.add(holder, bytes);
        });
    }

    /// A holder takes this many bytes more, if all bounds allow it.
    pub(super) fn grow(&mut self, holder: Holder, bytes: u64) -> bool {
        let is_spared = self
            .applying(holder)
            .all(|bound| bound.spares(holder, bytes));
        if is_spared {
            self.applying_mut(holder).for_each(|bound| {
                bound.change(holder, |budget| budget.grow(bytes));
                bound.add(holder, bytes);
            });
        }
        is_spared
    }

    /// A holder gives back this many bytes.
    pub(super) fn shrink(&mut self, holder: Holder, bytes: u64) {
        self.applying_mut(holder).for_each(|bound| {
            bound.change(holder, |budget| budget.shrink(bytes));
            bound.subtract(holder, bytes);
        });
    }

    /// A holder leaves, with this many bytes.
    pub(super) fn give_back(&mut self, holder: Holder, bytes: u64) {
        self.applying_mut(holder).for_each(|bound| {
            bound.change(holder, |budget| budget.give_back(bytes));
            bound.subtract(holder, bytes);
        });
    }

    /// The bound that leaves least to a holder.
    pub(super) fn narrowest(&self, holder: Holder) -> Narrowest {
        let left = |budget: &Budget| budget.limit().saturating_sub(budget.taken());
        let is_pinned = holder.pins && left(&self.pinned.all) < left(&self.memory.all);
        let budget = if is_pinned {
            &self.pinned.all
        } else {
            &self.memory.all
        };
        Narrowest {
            taken: budget.taken(),
            limit: budget.limit(),
            holders: budget.holders(),
            is_pinned,
        }
    }

    fn applying(&self, holder: Holder) -> impl Iterator<Item = &Bound> {
        let pinned = holder.pins.then_some(&self.pinned);
        [Some(&self.memory), pinned].into_iter().flatten()
    }

    fn applying_mut(&mut self, holder: Holder) -> impl Iterator<Item = &mut Bound> {
        let pinned = holder.pins.then_some(&mut self.pinned);
        [Some(&mut self.memory), pinned].into_iter().flatten()
    }
}

impl Bound {
    fn new(limit: u64) -> Self {
        Self {
            all: Budget::new(limit),
            connectors: Budget::new(limit_of_connectors(limit)),
            parties: HashMap::new(),
        }
    }

    /// How much of `wanted` a further channel may have, if that is at least `least`.
    fn offer(&self, holder: Holder, wanted: u64, least: u64) -> Option<u64> {
        let wanted = wanted.min(self.most(holder));
        let offers = self
            .budgets(holder)
            .map(|budget| budget.offer(wanted, least));
        offers.min().flatten()
    }

    fn spares(&self, holder: Holder, bytes: u64) -> bool {
        bytes <= self.most(holder) && self.budgets(holder).all(|budget| budget.spares(bytes))
    }

    /// The most that a holder may take, so that other parties get their share. A party without memory
    /// is not restricted.
    fn most(&self, holder: Holder) -> u64 {
        let held = holder.party.and_then(|party| self.parties.get(&party));
        let Some(held) = held else {
            return u64::MAX;
        };
        let free = self.all.limit().saturating_sub(self.all.taken());
        let count = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        policy::most(count(*held), count(free)) as u64
    }

    fn budgets(&self, holder: Holder) -> impl Iterator<Item = &Budget> {
        let connectors = (holder.side == Side::Connector).then_some(&self.connectors);
        [Some(&self.all), connectors].into_iter().flatten()
    }

    fn change(&mut self, holder: Holder, change: impl Fn(&mut Budget)) {
        change(&mut self.all);
        if holder.side == Side::Connector {
            change(&mut self.connectors);
        }
    }

    fn add(&mut self, holder: Holder, bytes: u64) {
        if let Some(party) = holder.party {
            *self.parties.entry(party).or_default() += bytes;
        }
    }

    fn subtract(&mut self, holder: Holder, bytes: u64) {
        let Some(party) = holder.party else {
            return;
        };
        if let Some(held) = self.parties.get_mut(&party) {
            *held = held.saturating_sub(bytes);
            if *held == 0 {
                self.parties.remove(&party);
            }
        }
    }
}

fn limit_of_connectors(limit: u64) -> u64 {
    limit - limit / 4
}

/// A bound, for an error message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Narrowest {
    taken: u64,
    limit: u64,
    holders: u64,
    is_pinned: bool,
}

impl fmt::Display for Narrowest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            taken,
            limit,
            holders,
            is_pinned,
        } = self;
        write!(f, "{holders} channels have {taken} of the {limit} bytes ")?;
        f.write_str(if *is_pinned {
            "that this process may pin: see `ulimit -l`, or LimitMEMLOCK= of the service"
        } else {
            "that all rings of this process may take"
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const PAGE: u64 = 4096;

    fn holder(side: Side, pins: bool) -> Holder {
        Holder {
            side,
            pins,
            party: None,
        }
    }

    fn of_party(number: u64) -> Holder {
        Holder {
            party: Some(Party(number)),
            ..holder(Side::Acceptor, false)
        }
    }

    #[test]
    fn channels_of_one_party_leave_rings_to_another() {
        let mut bounds = Bounds::new(64 * MIB, u64::MAX);
        let mut held = Vec::new();
        while let Some(ring) = bounds.offer(of_party(1), 16 * MIB, PAGE) {
            bounds.take(of_party(1), 2 * ring);
            held.push((1, 2 * ring));
            assert!(held.len() < 1000, "it has no end");
        }
        let taken = bounds.memory().taken();
        assert!((40 * MIB..=48 * MIB).contains(&taken), "{taken}");
        assert!(!bounds.grow(of_party(1), 16 * MIB));
        // Later parties share the rest in the same way.
        for party in 2..6 {
            let ring = bounds.offer(of_party(party), MIB, PAGE).expect("a ring");
            bounds.take(of_party(party), 2 * ring);
            held.push((party, 2 * ring));
        }
        assert!(bounds.offer(of_party(1), MIB, PAGE).is_none());
        for (party, bytes) in held {
            bounds.give_back(of_party(party), bytes);
        }
        assert_eq!(bounds.memory().taken(), 0);
        assert!(bounds.memory.parties.is_empty());
    }

    #[test]
    fn connecting_ends_leave_something_to_accepting_ends() {
        let mut bounds = Bounds::new(4 * MIB, u64::MAX);
        let connector = holder(Side::Connector, false);
        while let Some(ring) = bounds.offer(connector, MIB, PAGE) {
            bounds.take(connector, 2 * ring);
        }
        assert!(bounds.memory().taken() <= 3 * MIB);
        let acceptor = holder(Side::Acceptor, false);
        assert!(bounds.offer(acceptor, MIB, PAGE).is_some());
    }

    #[test]
    fn many_channels_have_rings_of_one_length() {
        let free = [64, 247, 1000, 6000].map(|memory| (memory, u64::MAX, false));
        let pinning = [(247, u64::MAX, true), (1000, 247 * MIB, true)];
        for (memory, pinned, pins) in free.into_iter().chain(pinning) {
            let mut bounds = Bounds::new(memory * MIB, pinned);
            let ring = bounds.common_ring_bytes(pins).next_multiple_of(PAGE) - PAGE;
            for _ in 0..64 {
                for side in [Side::Connector, Side::Acceptor] {
                    let holder = holder(side, pins);
                    assert_eq!(bounds.offer(holder, ring, PAGE), Some(ring), "{memory}");
                    bounds.take(holder, 2 * ring);
                }
            }
        }
    }

    #[test]
    fn a_ring_that_is_cut_has_a_size_of_many() {
        let bounds = Bounds::new(1000 * MIB, u64::MAX);
        let acceptor = holder(Side::Acceptor, false);
        assert_eq!(bounds.offer(acceptor, 200 * MIB, PAGE), Some(200 * MIB));
        assert_eq!(bounds.offer(acceptor, 1000 * MIB, PAGE), Some(192 * MIB));
        assert_eq!(bounds.offer(acceptor, 5000, PAGE), Some(5000));
    }

    #[test]
    fn the_kernels_limit_counts_where_memory_is_pinned() {
        let bounds = Bounds::new(1000 * MIB, MIB);
        let soft = holder(Side::Acceptor, false);
        let pinning = holder(Side::Acceptor, true);
        assert_eq!(bounds.offer(soft, 16 * MIB, PAGE), Some(16 * MIB));
        let ring = bounds.offer(pinning, 16 * MIB, PAGE).unwrap();
        assert!((LEAST_RING_BYTES..=MIB / 2).contains(&ring), "{ring}");
        assert!(bounds.narrowest(pinning).to_string().contains("ulimit -l"));
        assert!(bounds.narrowest(soft).to_string().contains("all rings"));
    }

    #[test]
    fn nothing_fits_a_bound_that_is_too_small() {
        let bounds = Bounds::new(1000 * MIB, 8191);
        let pinning = holder(Side::Acceptor, true);
        assert_eq!(bounds.offer(pinning, 4096, PAGE), None);
    }
}
