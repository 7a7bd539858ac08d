//! Random numbers that a seed reproduces.

/// A pseudo-random generator: SplitMix64 (Steele, Lea, Flood 2014).
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`; 0 if that is 0.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        let scaled = (u128::from(self.next()) * u128::from(limit)) >> 64;
        u64::try_from(scaled).unwrap_or(0)
    }

    /// The same for a size in memory.
    pub(crate) fn index(&mut self, limit: usize) -> usize {
        usize::try_from(self.below(limit as u64)).unwrap_or(0)
    }

    /// A number from 0 to 1, without 1.
    pub(crate) fn share(&mut self) -> f64 {
        const STEPS: f64 = (1_u64 << 53) as f64;
        (self.next() >> 11) as f64 / STEPS
    }
}
