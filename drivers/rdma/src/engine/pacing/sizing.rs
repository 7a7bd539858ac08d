//! How long messages may be.
//!
//! A message that is longer than a policer's burst is repeated in vain at any rate. So messages go in groups, each group
//! longer than the one before, until messages are wished no longer or one of them is lost.
//!
//! When one is lost, and what that says of the rate, is not decided here.

use std::time::Duration;

use super::bucket::time_of;

/// The length of messages, and the group under trial. Time is that since some moment, as everywhere in pacing.
#[derive(Debug)]
pub(super) struct Sizing {
    /// The longest message, in bytes, and the longest that is wanted.
    message_bytes: u64,
    wanted_bytes: u64,
    /// The longest group that has passed, in bytes.
    passed_bytes: u64,
    /// Bytes of the group that are there.
    arrived_bytes: u64,
    /// When the next group may leave: the policer's burst is whole again.
    next_group: Duration,
}

/// Messages that are tried together. A burst that takes four of them has room for one that comes a little early, and for what
/// a device repeats.
const GROUP: u64 = 4;

/// How long the messages of the first group are.
const FIRST_MESSAGE_BYTES: u64 = 32 << 10;

const LEAST_MESSAGE_BYTES: u64 = 4096;

impl Sizing {
    /// `wanted_bytes` is the longest message that is wanted.
    pub(super) fn new(wanted_bytes: u64) -> Self {
        Self {
            message_bytes: wanted_bytes.min(FIRST_MESSAGE_BYTES),
            wanted_bytes,
            passed_bytes: 0,
            arrived_bytes: 0,
            next_group: Duration::ZERO,
        }
    }

    /// The longest message, in bytes.
    pub(super) fn message_bytes(&self) -> u64 {
        self.message_bytes
    }

    /// How long a group is.
    pub(super) fn group_bytes(&self) -> u64 {
        GROUP * self.message_bytes
    }

    /// What has passed together, in bytes, less some room for headers; no more than messages in a group, as long as they are.
    pub(super) fn passed_bytes(&self) -> u64 {
        self.passed_bytes / 8 * 7
    }

    /// When the next group may leave.
    pub(super) fn next_group(&self) -> Duration {
        self.next_group
    }

    /// A message of a group is there. Whether it was the last one.
    pub(super) fn arrived(&mut self, bytes: u64) -> bool {
        self.arrived_bytes += bytes;
        self.arrived_bytes >= self.group_bytes()
    }

    /// The group has passed.
    pub(super) fn passed(&mut self) {
        self.passed_bytes = self.group_bytes();
    }

    /// Another group follows, when a burst at `rate`, in bytes per second, has room for it.
    pub(super) fn follow(&mut self, now: Duration, rate: u64) {
        self.arrived_bytes = 0;
        self.next_group = now + time_of(self.group_bytes(), rate);
    }

    pub(super) fn lengthen(&mut self) {
        self.message_bytes = (2 * self.message_bytes).min(self.wanted_bytes);
    }

    /// What is there of a group was too long, and no longer counts.
    pub(super) fn shorten(&mut self) {
        self.arrived_bytes = 0;
        self.message_bytes =
            (self.message_bytes / 2).max(LEAST_MESSAGE_BYTES.min(self.wanted_bytes));
        self.passed_bytes = self.passed_bytes.min(self.group_bytes());
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

    /// Groups arrive until messages are as long as they are wanted; returns how long they were.
    fn lengths(wanted: u64) -> Vec<u64> {
        let mut sizing = Sizing::new(wanted);
        let mut lengths = vec![sizing.message_bytes()];
        loop {
            for _ in 1..GROUP {
                assert!(!sizing.arrived(sizing.message_bytes()));
            }
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
    fn groups_grow_until_messages_are_as_long_as_they_are_wanted() {
        assert_eq!(lengths(1000), [1000]);
        assert_eq!(lengths(32 << 10), [32 << 10]);
        assert_eq!(lengths(100 << 10), [32 << 10, 64 << 10, 100 << 10]);
    }

    #[test]
    fn a_group_counts_when_as_much_as_its_messages_is_there() {
        let mut sizing = Sizing::new(1 << 20);
        // The rest of a piece, and then whole ones.
        assert!(!sizing.arrived(1));
        for _ in 1..GROUP {
            assert!(!sizing.arrived(32 << 10));
        }
        assert!(sizing.arrived(32 << 10));
        sizing.follow(Duration::from_secs(1), RATE);
        assert!(!sizing.arrived(32 << 10), "a group has its own messages");
        let refilled = Duration::from_secs(1) + time_of(128 << 10, RATE);
        assert_eq!(sizing.next_group(), refilled);
    }

    #[test]
    fn what_has_passed_together_counts_as_messages_become_shorter() {
        let mut sizing = Sizing::new(1 << 20);
        sizing.passed();
        sizing.lengthen();
        sizing.shorten();
        assert_eq!(sizing.passed_bytes(), 112 << 10);
        sizing.shorten();
        assert_eq!(sizing.passed_bytes(), 56 << 10);
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
