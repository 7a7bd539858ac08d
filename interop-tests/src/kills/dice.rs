//! Random numbers that follow from a seed (SplitMix64).

/// A sequence of numbers.
#[derive(Debug, Clone)]
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `limit`, which is not 0.
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (word ^ (word >> 31)) % limit
    }

    /// One of these values.
    pub(super) fn one_of<T: Copy>(&mut self, values: &[T]) -> T {
        let place = self.below(values.len() as u64);
        values[usize::try_from(place).unwrap_or_default()]
    }
}
