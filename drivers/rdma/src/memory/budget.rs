//! How memory is divided among channels. Arithmetic only: this module does not map, wait or lock.
//!
//! Half of the bound is reserved in equal shares for the expected number of channels. The other half
//! goes to channels that want more than a share, in the order of requests. None gets more than its
//! part of it if all present channels had as much. So one channel may have a ring for a long and fast
//! path, hundreds more have rings as well, and when channels come and go, their rings become equal.

/// Channels for which shares are reserved.
const CHANNELS: u64 = 256;

/// A bound, and the memory in use, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Budget {
    limit: u64,
    taken: u64,
    holders: u64,
}

impl Budget {
    pub(super) fn new(limit: u64) -> Self {
        Self {
            limit,
            taken: 0,
            holders: 0,
        }
    }

    pub(super) fn limit(&self) -> u64 {
        self.limit
    }

    /// If the new bound is below the memory in use, no more is taken until enough has come back.
    pub(super) fn set_limit(&mut self, limit: u64) {
        self.limit = limit;
    }

    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    pub(super) fn holders(&self) -> u64 {
        self.holders
    }

    /// How much of `wanted` a further holder may have, if that is at least `least`: all of it, unless
    /// that would reduce the shares of others.
    pub(super) fn offer(&self, wanted: u64, least: u64) -> Option<u64> {
        let free = self.limit.saturating_sub(self.taken);
        let share = (self.limit / (2 * CHANNELS)).max(least).max(1);
        let channels = CHANNELS.min(self.limit / (2 * share));
        let reserved = share * channels.saturating_sub(self.holders + 1);
        let offer = free.saturating_sub(reserved).max(share.min(free));
        let part = share + (self.limit - share * channels) / (self.holders + 1);
        Some(wanted.min(offer).min(part)).filter(|offer| *offer >= least)
    }

    pub(super) fn take(&mut self, bytes: u64) {
        self.taken += bytes;
        self.holders += 1;
    }

    /// Whether a holder may have this many bytes more: no more than a further holder could have.
    pub(super) fn spares(&self, bytes: u64) -> bool {
        self.offer(bytes, 1) == Some(bytes)
    }

    /// How many bytes more a holder of `held` bytes may have: shares stay reserved for further holders, and
    /// it gets no more than its part if all present ones had as much.
    pub(super) fn spare(&self, held: u64) -> u64 {
        let free = self.limit.saturating_sub(self.taken);
        let share = (self.limit / (2 * CHANNELS)).max(1);
        let channels = CHANNELS.min(self.limit / (2 * share));
        let reserved = share * channels.saturating_sub(self.holders);
        let part = share + (self.limit - share * channels) / self.holders.max(1);
        let left = part.saturating_sub(held);
        free.saturating_sub(reserved).min(left)
    }

    /// A holder takes this many bytes more.
    pub(super) fn grow(&mut self, bytes: u64) {
        self.taken += bytes;
    }

    /// A holder gives back this many bytes.
    pub(super) fn shrink(&mut self, bytes: u64) {
        self.taken = self.taken.saturating_sub(bytes);
    }

    /// A holder leaves, with this many bytes.
    pub(super) fn give_back(&mut self, bytes: u64) {
        self.shrink(bytes);
        self.holders = self.holders.saturating_sub(1);
    }
}

/// The largest size class that is not above `bytes`: powers of two, and one and a half times those.
/// With few sizes, rings that come back fit the next channels.
pub(super) fn size_class_below(bytes: u64) -> u64 {
    let Some(power) = bytes.checked_ilog2() else {
        return 0;
    };
    let power = 1_u64 << power;
    let between = power + power / 2;
    if between <= bytes { between } else { power }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn one_channel_leaves_shares_for_the_others() {
        let mut budget = Budget::new(1024 * MIB);
        let first = budget.offer(u64::MAX, MIB).unwrap();
        assert_eq!(first, (1024 - 255 * 2) * MIB);
        budget.take(first);
        for _ in 1..256 {
            let offer = budget.offer(u64::MAX, MIB).unwrap();
            assert_eq!(offer, 2 * MIB);
            budget.take(offer);
        }
        assert_eq!(budget.offer(MIB, MIB), None);
        budget.give_back(2 * MIB);
        assert_eq!(budget.offer(u64::MAX, MIB), Some(2 * MIB));
    }

    #[test]
    fn a_small_request_is_granted() {
        let mut budget = Budget::new(64 * MIB);
        for _ in 0..64 {
            assert_eq!(budget.offer(MIB, MIB / 2), Some(MIB));
            budget.take(MIB);
        }
        assert_eq!(budget.offer(MIB, 1), None);
    }

    #[test]
    fn a_small_bound_serves_one_after_the_other() {
        let mut budget = Budget::new(3);
        assert_eq!(budget.offer(10, 4), None);
        assert_eq!(budget.offer(10, 2), Some(3));
        budget.take(3);
        assert_eq!(budget.offer(10, 1), None);
    }

    #[test]
    fn size_classes_are_close_to_each_other() {
        let classes = [0, 1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 100].map(size_class_below);
        assert_eq!(classes, [0, 1, 2, 3, 4, 4, 6, 6, 8, 8, 12, 96]);
    }

    proptest! {
        #[test]
        fn an_offer_is_within_the_bound(
            limit in 0..1_u64 << 40,
            taken in 0..1_u64 << 41,
            holders in 0..200_u64,
            wanted in 1..1_u64 << 42,
            least in 1..1_u64 << 20,
        ) {
            let budget = Budget { limit, taken, holders };
            if let Some(offer) = budget.offer(wanted, least) {
                prop_assert!(offer <= wanted && offer >= least);
                prop_assert!(taken + offer <= limit);
            } else {
                prop_assert!(wanted < least || taken + least > limit);
            }
        }
    }
}
