//! How much of a file a channel sends in one block.
//!
//! Large blocks cost fewer headers and system calls; with small ones all channels finish at about the same time. So a
//! fast channel takes larger pieces than a slow one, and towards the end of the file all pieces get smaller.

use std::time::Duration;

/// The size of a channel's next piece.
#[derive(Debug)]
pub(crate) struct Portion {
    /// All pieces except the last are multiples of this, so that they start at page boundaries of the file.
    least_bytes: u64,
    most_bytes: u64,
    wanted_bytes: u64,
    /// The channels of the stripe.
    channels: u64,
}

/// The largest piece as a multiple of the smallest: 16 MiB for 256 KiB.
const MOST: u64 = 64;

/// The limit for the pieces of all channels of a transfer together, as a multiple of the smallest piece: 64 MiB for
/// 256 KiB. A receiver that writes in order has to buffer that much.
const MOST_TOGETHER: u64 = 256;

/// The first piece of a channel as a multiple of the smallest.
const FIRST: u64 = 4;

/// A channel that sends a piece in less time takes larger ones.
const FAST: Duration = Duration::from_millis(25);

/// A channel that sends a piece in more time takes smaller ones.
const SLOW: Duration = Duration::from_millis(100);

impl Portion {
    /// For one of the `channels` of a stripe, when all stripes have `all_channels` together.
    pub(crate) fn new(least_bytes: u64, channels: usize, all_channels: usize) -> Self {
        let least_bytes = least_bytes.max(1);
        let most = (MOST_TOGETHER / all_channels.max(1) as u64).clamp(1, MOST);
        Self {
            least_bytes,
            most_bytes: least_bytes.saturating_mul(most),
            wanted_bytes: least_bytes.saturating_mul(FIRST.min(most)),
            channels: channels.max(1) as u64,
        }
    }

    /// The same with pieces of at most `bytes`, except that none is smaller than the smallest.
    pub(crate) fn at_most(self, bytes: u64) -> Self {
        let most_bytes = self.most_bytes.min(bytes).max(self.least_bytes);
        Self {
            most_bytes,
            wanted_bytes: self.wanted_bytes.min(most_bytes),
            ..self
        }
    }

    /// The size of the next piece when `left_bytes` of the stripe remain.
    pub(crate) fn of(&self, left_bytes: u64) -> u64 {
        let fair = match self.channels {
            1 => left_bytes,
            channels => left_bytes / (2 * channels),
        };
        let bytes = self.wanted_bytes.min(fair);
        (bytes - bytes % self.least_bytes).max(self.least_bytes)
    }

    /// Adapts to the time that sending a piece took.
    pub(crate) fn adapt(&mut self, taken: Duration) {
        if taken < FAST {
            self.wanted_bytes = self.wanted_bytes.saturating_mul(2).min(self.most_bytes);
        } else if taken > SLOW {
            self.wanted_bytes = (self.wanted_bytes / 2).max(self.least_bytes);
        }
    }

    /// Pieces of a fixed size.
    #[cfg(test)]
    pub(crate) fn fixed(bytes: u64) -> Self {
        Self {
            least_bytes: bytes,
            most_bytes: bytes,
            wanted_bytes: bytes,
            channels: 1,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const LEAST: u64 = 256 * 1024;
    const MUCH: u64 = 1 << 40;

    #[test]
    fn a_fast_channel_takes_large_pieces_and_a_slow_one_small_ones() {
        let mut portion = Portion::new(LEAST, 4, 4);
        assert_eq!(portion.of(MUCH), 1 << 20);
        for _ in 0..10 {
            portion.adapt(Duration::from_millis(1));
        }
        assert_eq!(portion.of(MUCH), 16 << 20);
        portion.adapt(Duration::from_millis(50));
        assert_eq!(portion.of(MUCH), 16 << 20);
        for _ in 0..10 {
            portion.adapt(Duration::from_secs(1));
        }
        assert_eq!(portion.of(MUCH), LEAST);
    }

    #[test]
    fn many_channels_hold_a_bounded_part_of_the_file() {
        for channels in [1, 4, 16, 64, 4096] {
            let mut portion = Portion::new(LEAST, channels, channels);
            for _ in 0..10 {
                portion.adapt(Duration::ZERO);
            }
            let together = portion.of(MUCH) * channels as u64;
            assert!(together <= (64 << 20).max(LEAST * channels as u64));
        }
    }

    #[test]
    fn the_last_pieces_are_small_and_all_are_multiples_of_the_smallest() {
        let mut portion = Portion::new(LEAST, 4, 4);
        for _ in 0..10 {
            portion.adapt(Duration::ZERO);
        }
        assert_eq!(portion.of(32 << 20), 4 << 20);
        assert_eq!(portion.of((9 << 20) + 5), 1 << 20);
        assert_eq!(portion.of(1), LEAST);
        let mut alone = Portion::new(LEAST, 1, 1);
        alone.adapt(Duration::ZERO);
        assert_eq!(alone.of((2 << 20) - 1) % LEAST, 0);
    }
}
