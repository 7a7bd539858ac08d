//! How long messages may be.
//!
//! A message that is longer than a policer's burst is repeated in vain at any rate. So pairs of messages go by themselves,
//! each pair longer than the one before, until one is wished no longer or does not arrive in time.
//!
//! When a pair is lost, and what that says of the rate, is not decided here.

use std::time::Duration;

use super::bucket::time_of;

/// The length of messages, and the pair under trial. Time is that since some moment, as everywhere in pacing.
#[derive(Debug)]
pub(super) struct Sizing {
    /// The longest message, in bytes, and the longest that is wanted.
    message_bytes: u64,
    wanted_bytes: u64,
    /// Messages of the full length of the pair that are there.
    whole: u64,
    /// When the next pair may leave: the policer's burst is whole again.
    next_pair: Duration,
}

/// Messages that are tried together. A burst that takes two of them has room for one that comes a little early.
const PAIR: u64 = 2;

/// How long the messages of the first pair are.
const FIRST_MESSAGE_BYTES: u64 = 32 << 10;

const LEAST_MESSAGE_BYTES: u64 = 4096;

impl Sizing {
    /// `wanted_bytes` is the longest message that is wanted.
    pub(super) fn new(wanted_bytes: u64) -> Self {
        Self {
            message_bytes: wanted_bytes.min(FIRST_MESSAGE_BYTES),
            wanted_bytes,
            whole: 0,
            next_pair: Duration::ZERO,
        }
    }

    /// The longest message, in bytes.
    pub(super) fn message_bytes(&self) -> u64 {
        self.message_bytes
    }

    /// How long a pair is.
    pub(super) fn pair_bytes(&self) -> u64 {
        PAIR * self.message_bytes
    }

    /// When the next pair may leave.
    pub(super) fn next_pair(&self) -> Duration {
        self.next_pair
    }

    /// A message of a pair is there. Whether it was the last one, and both had the full length.
    pub(super) fn arrived(&mut self, bytes: u64) -> bool {
        self.whole += u64::from(bytes == self.message_bytes);
        self.whole == PAIR
    }

    /// Another pair follows, when a burst at `rate`, in bytes per second, has room for it.
    pub(super) fn follow(&mut self, now: Duration, rate: u64) {
        self.whole = 0;
        self.next_pair = now + time_of(self.pair_bytes(), rate);
    }

    pub(super) fn lengthen(&mut self) {
        self.message_bytes = (2 * self.message_bytes).min(self.wanted_bytes);
    }

    /// What is there of a pair was too long, and no longer counts.
    pub(super) fn shorten(&mut self) {
        self.whole = 0;
        self.message_bytes =
            (self.message_bytes / 2).max(LEAST_MESSAGE_BYTES.min(self.wanted_bytes));
    }

    /// Messages are as long as they are wanted.
    pub(super) fn is_longest(&self) -> bool {
        self.message_bytes == self.wanted_bytes
    }

    /// They become no shorter.
    pub(super) fn is_shortest(&self) -> bool {
        self.message_bytes <= LEAST_MESSAGE_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: u64 = 1_000_000;

    /// Pairs arrive until messages are as long as they are wanted; returns how long they were.
    fn lengths(wanted: u64) -> Vec<u64> {
        let mut sizing = Sizing::new(wanted);
        let mut lengths = vec![sizing.message_bytes()];
        loop {
            assert!(!sizing.arrived(sizing.message_bytes()));
            assert!(sizing.arrived(sizing.message_bytes()));
            if sizing.is_longest() {
                return lengths;
            }
            sizing.lengthen();
            sizing.follow(Duration::ZERO, RATE);
            lengths.push(sizing.message_bytes());
        }
    }

    #[test]
    fn pairs_grow_until_messages_are_as_long_as_they_are_wanted() {
        assert_eq!(lengths(1000), [1000]);
        assert_eq!(lengths(32 << 10), [32 << 10]);
        assert_eq!(lengths(100 << 10), [32 << 10, 64 << 10, 100 << 10]);
    }

    #[test]
    fn a_pair_counts_if_both_messages_have_the_full_length() {
        let mut sizing = Sizing::new(1 << 20);
        assert!(!sizing.arrived(1));
        assert!(!sizing.arrived(32 << 10));
        sizing.follow(Duration::from_secs(1), RATE);
        assert!(!sizing.arrived(32 << 10), "a pair has its own messages");
        let refilled = Duration::from_secs(1) + time_of(64 << 10, RATE);
        assert_eq!(sizing.next_pair(), refilled);
    }

    #[test]
    fn messages_become_no_shorter_than_is_sensible_or_wanted() {
        for (wanted, least) in [(1 << 20, LEAST_MESSAGE_BYTES), (1000, 1000)] {
            let mut sizing = Sizing::new(wanted);
            for _ in 0..64 {
                sizing.shorten();
            }
            assert!(sizing.is_shortest());
            assert_eq!(sizing.message_bytes(), least);
        }
    }
}
