//! Finds the longest message that the path passes.
//!
//! A message longer than a policer's burst never arrives, at any rate. So messages are
//! sent in groups, each longer than the one before, until the wanted length is reached or a message
//! is lost.
//!
//! [`super::search`] decides how such a loss affects the rate.

use std::time::Duration;

use super::bucket::time_of;

/// The length of messages, and the group that is being tried. Times are counted from one moment, as
/// everywhere in pacing.
#[derive(Debug)]
pub(super) struct Sizing {
    /// The present and the wanted length of messages in bytes.
    message_bytes: u64,
    wanted_bytes: u64,
    /// The longest group that has passed, in bytes.
    passed_bytes: u64,
    /// Bytes of the group that have arrived.
    arrived_bytes: u64,
    /// When the next group may be sent: a policer's burst has recovered.
    next_group: Duration,
}

/// Messages of a group. A burst that passes four of them has room for a message that is sent slightly
/// early and for retransmissions.
const GROUP: u64 = 4;

/// The length of the messages in the first group.
const FIRST_MESSAGE_BYTES: u64 = 32 << 10;

const LEAST_MESSAGE_BYTES: u64 = 4096;

impl Sizing {
    /// `wanted_bytes` is the longest message wanted.
    pub(super) fn new(wanted_bytes: u64) -> Self {
        Self {
            message_bytes: wanted_bytes.min(FIRST_MESSAGE_BYTES),
            wanted_bytes,
            passed_bytes: 0,
            arrived_bytes: 0,
            next_group: Duration::ZERO,
        }
    }

    /// The length of messages in bytes.
    pub(super) fn message_bytes(&self) -> u64 {
        self.message_bytes
    }

    /// The length of a group in bytes.
    pub(super) fn group_bytes(&self) -> u64 {
        GROUP * self.message_bytes
    }

    /// The bytes that have passed together, less some room for headers; at most a group of the
    /// present length.
    pub(super) fn passed_bytes(&self) -> u64 {
        self.passed_bytes / 8 * 7
    }

    /// When the next group may be sent.
    pub(super) fn next_group(&self) -> Duration {
        self.next_group
    }

    /// A message of a group has arrived. Returns whether it was the last.
    pub(super) fn arrived(&mut self, bytes: u64) -> bool {
        self.arrived_bytes += bytes;
        self.arrived_bytes >= self.group_bytes()
    }

    /// The group has passed.
    pub(super) fn passed(&mut self) {
        self.passed_bytes = self.group_bytes();
    }

    /// Schedules another group for when a burst at `rate`, in bytes per second, has recovered.
    pub(super) fn follow(&mut self, now: Duration, rate: u64) {
        self.arrived_bytes = 0;
        self.next_group = now + time_of(self.group_bytes(), rate);
    }

    pub(super) fn lengthen(&mut self) {
        self.message_bytes = (2 * self.message_bytes).min(self.wanted_bytes);
    }

    /// The group was too long; what arrived of it no longer counts.
    pub(super) fn shorten(&mut self) {
        self.arrived_bytes = 0;
        self.message_bytes =
            (self.message_bytes / 2).max(LEAST_MESSAGE_BYTES.min(self.wanted_bytes));
        self.passed_bytes = self.passed_bytes.min(self.group_bytes());
    }

    /// No more than this is known to pass at once, and a group of messages is to fit into it.
    pub(super) fn bound(&mut self, bytes: u64) {
        self.passed_bytes = self.passed_bytes.min(bytes / 7 * 8);
        let most = (self.passed_bytes / GROUP).max(LEAST_MESSAGE_BYTES);
        self.message_bytes = self.message_bytes.min(most);
    }

    /// Whether messages have the wanted length.
    pub(super) fn is_longest(&self) -> bool {
        self.message_bytes == self.wanted_bytes
    }

    /// Whether messages have the least length.
    pub(super) fn is_shortest(&self) -> bool {
        self.message_bytes <= LEAST_MESSAGE_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: u64 = 1_000_000;

    /// Passes groups until messages have the wanted length; returns their lengths.
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
        // The rest of a piece, then whole messages.
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
