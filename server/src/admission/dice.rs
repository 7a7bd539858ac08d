//! Random numbers for choices that peers must not predict, but that protect no secret.

use std::hash::{BuildHasher, RandomState};

/// SplitMix64 (Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", 2014).
#[derive(Debug)]
pub(super) struct Dice(u64);

impl Dice {
    /// With a seed from the system.
    pub(super) fn new() -> Self {
        Self(RandomState::new().hash_one(0))
    }

    #[cfg(test)]
    pub(super) fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `bound`; 0 if the bound is 0.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        let scaled = (u128::from(mixed) * bound as u128) >> 64;
        usize::try_from(scaled).unwrap_or(0)
    }
}
