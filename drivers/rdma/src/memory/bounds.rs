//! The bounds of a process, and the rings that count against each.

use std::collections::HashMap;
use std::fmt;
use std::num::NonZeroU64;

use gridhaul_shares::policy;
use gridhaul_stack::{Party, Side};

use super::budget::{Budget, size_class_below};
use super::lengths::{LEAST_RING_BYTES, Lengths};

/// The owner of a channel's rings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) side: Side,
    /// The devices that pin the memory, so that the kernel's limit counts as well: it counts the memory once for each.
    pub(crate) pins: u64,
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
        (limit / (2 * MANY) / 4 * 3).max(LEAST_RING_BYTES.get())
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

    /// The lengths that two rings may have; `None` if less than the least is free. `page` is the
    /// size of a page.
    pub(super) fn offer(&self, holder: Holder, wanted: Lengths, page: u64) -> Option<Lengths> {
        let all = wanted.bytes(page);
        let least = wanted.up_to(LEAST_RING_BYTES).bytes(page);
        let offer = self
            .applying(holder)
            .map(|(bound, times)| {
                let [all, least] = [all, least].map(|bytes| bytes.saturating_mul(times));
                Some(bound.offer(holder, all, least)? / times)
            })
            .min()
            .flatten()?;
        if offer >= all {
            return Some(wanted);
        }
        // The longer ring is cut first, and both where half is not enough for the shorter one.
        let shorter = wanted.shorter().get().next_multiple_of(page);
        let most = offer - shorter.min(offer / 2);
        let most = NonZeroU64::new(size_class_below(most / page) * page);
        Some(wanted.up_to(most.map_or(LEAST_RING_BYTES, |most| most.max(LEAST_RING_BYTES))))
    }

    /// A new holder takes this many bytes.
    pub(super) fn take(&mut self, holder: Holder, bytes: u64) {
        self.applying_mut(holder).for_each(|(bound, times)| {
            let bytes = bytes.saturating_mul(times);
            bound.change(holder, |budget| budget.take(bytes));
            bound.add(holder, bytes);
        });
    }

    /// A holder takes this many bytes more, if all bounds allow it.
    pub(super) fn grow(&mut self, holder: Holder, bytes: u64) -> bool {
        let is_spared = self
            .applying(holder)
            .all(|(bound, times)| bound.spares(holder, bytes.saturating_mul(times)));
        if is_spared {
            self.applying_mut(holder).for_each(|(bound, times)| {
                let bytes = bytes.saturating_mul(times);
                bound.change(holder, |budget| budget.grow(bytes));
                bound.add(holder, bytes);
            });
        }
        is_spared
    }

    /// A holder of `held` bytes takes up to `most` more, and at least `least`, as far as all bounds allow, in whole pages of `page`
    /// bytes: a mapping has no part of one, and would exceed what is counted.
    pub(super) fn extend(
        &mut self,
        holder: Holder,
        held: u64,
        [least, most]: [u64; 2],
        page: u64,
    ) -> Option<u64> {
        let spare = self.applying(holder).map(|(bound, times)| {
            let held = held.saturating_mul(times);
            bound.spare(holder, held) / times
        });
        let bytes = spare.min().unwrap_or(0).min(most);
        let bytes = bytes - bytes % page;
        let bytes = Some(bytes).filter(|&bytes| bytes >= least && bytes > 0)?;
        self.applying_mut(holder).for_each(|(bound, times)| {
            let bytes = bytes.saturating_mul(times);
            bound.change(holder, |budget| budget.grow(bytes));
            bound.add(holder, bytes);
        });
        Some(bytes)
    }

    /// A holder gives back some bytes and takes others, if the bounds allow that without a reserve for
    /// further holders.
    pub(super) fn exchange(&mut self, holder: Holder, back: u64, more: u64) -> bool {
        let fits = |budget: &Budget, times: u64| {
            let taken = budget.taken().saturating_sub(back.saturating_mul(times));
            more.saturating_mul(times) <= budget.limit().saturating_sub(taken)
        };
        let is_within = self.applying(holder).all(|(bound, times)| {
            more <= back || bound.budgets(holder).all(|budget| fits(budget, times))
        });
        if is_within {
            self.shrink(holder, back);
            self.applying_mut(holder).for_each(|(bound, times)| {
                let more = more.saturating_mul(times);
                bound.change(holder, |budget| budget.grow(more));
                bound.add(holder, more);
            });
        }
        is_within
    }

    /// A holder gives back this many bytes.
    pub(super) fn shrink(&mut self, holder: Holder, bytes: u64) {
        self.applying_mut(holder).for_each(|(bound, times)| {
            let bytes = bytes.saturating_mul(times);
            bound.change(holder, |budget| budget.shrink(bytes));
            bound.subtract(holder, bytes);
        });
    }

    /// Fewer devices, `pins` of them and one at least, pin this many bytes of a holder.
    pub(super) fn unpin(&mut self, holder: Holder, pins: u64, bytes: u64) {
        let bytes = bytes.saturating_mul(holder.pins.saturating_sub(pins));
        self.pinned.change(holder, |budget| budget.shrink(bytes));
        self.pinned.subtract(holder, bytes);
    }

    /// A holder leaves, with this many bytes.
    pub(super) fn give_back(&mut self, holder: Holder, bytes: u64) {
        self.applying_mut(holder).for_each(|(bound, times)| {
            let bytes = bytes.saturating_mul(times);
            bound.change(holder, |budget| budget.give_back(bytes));
            bound.subtract(holder, bytes);
        });
    }

    /// The bound that leaves least to a holder.
    pub(super) fn narrowest(&self, holder: Holder) -> Narrowest {
        let left = |budget: &Budget| budget.limit().saturating_sub(budget.taken());
        let is_pinned = holder.pins > 0 && left(&self.pinned.all) < left(&self.memory.all);
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

    /// The bounds that apply to a holder, and how many times each counts the holder's memory.
    fn applying(&self, holder: Holder) -> impl Iterator<Item = (&Bound, u64)> {
        let pinned = (holder.pins > 0).then_some((&self.pinned, holder.pins));
        [Some((&self.memory, 1)), pinned].into_iter().flatten()
    }

    fn applying_mut(&mut self, holder: Holder) -> impl Iterator<Item = (&mut Bound, u64)> {
        let pinned = (holder.pins > 0).then_some((&mut self.pinned, holder.pins));
        [Some((&mut self.memory, 1)), pinned].into_iter().flatten()
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

    /// How many bytes more a holder of `held` bytes may have.
    fn spare(&self, holder: Holder, held: u64) -> u64 {
        let spare = self.budgets(holder).map(|budget| budget.spare(held));
        spare.min().unwrap_or(0).min(self.most(holder))
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
mod tests;
