//! The limits that adapters keep for the channels of a path.
//!
//! An adapter limits each queue pair by itself, and the rate is that of the path. So the queue pairs of the channels that send have
//! equal parts of it. A channel that pauses leaves its part to the others, which ask for theirs from time to time. Until all of them
//! have asked, the limits together may be higher than the rate, and the software paces as without limits.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::provider::part_of_rate;

/// The channels whose adapter limits their rate, by their number on the path.
#[derive(Debug, Default)]
pub(super) struct Limits(BTreeMap<u64, Limited>);

#[derive(Debug)]
struct Limited {
    queue_pairs: usize,
    /// The limit of each of them in bytes per second.
    rate: u64,
    /// When it last sent a message; `None` if it pauses.
    sent_at: Option<Duration>,
}

/// How long a channel that sends nothing keeps its part.
const PAUSE: Duration = Duration::from_secs(1);

impl Limited {
    /// The limits of all its queue pairs together.
    fn sum(&self) -> u128 {
        u128::from(self.rate) * self.queue_pairs as u128
    }
}

impl Limits {
    /// The adapter of a channel limits each of so many queue pairs to this rate.
    pub(super) fn begin(&mut self, channel: u64, queue_pairs: usize, rate: u64) {
        let limited = Limited {
            queue_pairs,
            rate,
            sent_at: None,
        };
        self.0.insert(channel, limited);
    }

    /// It limits them to another rate.
    pub(super) fn set(&mut self, channel: u64, rate: u64) {
        if let Some(limited) = self.0.get_mut(&channel) {
            limited.rate = rate;
        }
    }

    /// It does so no longer, or the channel is closed.
    pub(super) fn end(&mut self, channel: u64) {
        self.0.remove(&channel);
    }

    /// A channel sends. Returns whether it has paused before.
    pub(super) fn sends(&mut self, channel: u64, now: Duration) -> bool {
        let limited = self.0.get_mut(&channel);
        limited.is_some_and(|limited| limited.sent_at.replace(now).is_none())
    }

    /// The part of the path's rate that each queue pair of a channel should have, in bytes per second; `None` if it pauses.
    pub(super) fn part(&mut self, channel: u64, rate: u64, now: Duration) -> Option<u64> {
        for limited in self.0.values_mut() {
            limited.sent_at = limited.sent_at.filter(|at| now < *at + PAUSE);
        }
        self.0.get(&channel)?.sent_at?;
        let sharing = self.sending().map(|limited| limited.queue_pairs).sum();
        Some(part_of_rate(rate, sharing))
    }

    fn sending(&self) -> impl Iterator<Item = &Limited> {
        let limited = self.0.values();
        limited.filter(|limited| limited.sent_at.is_some())
    }

    /// The number of channels.
    pub(super) fn channels(&self) -> u64 {
        self.0.len() as u64
    }

    /// Whether the limits of the channels that send are together no higher than the rate of the path, but for what rounding adds.
    pub(super) fn keep(&self, rate: u64) -> bool {
        let sum: u128 = self.sending().map(Limited::sum).sum();
        let queue_pairs: usize = self.sending().map(|limited| limited.queue_pairs).sum();
        sum <= u128::from(rate) * 17 / 16 + queue_pairs as u128
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: u64 = 8_000_000;
    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn channels_that_send_share_the_rate() {
        let mut limits = Limits::default();
        // As if each had the path for itself.
        limits.begin(1, 2, RATE / 2);
        limits.begin(2, 2, RATE / 2);
        assert!(limits.sends(1, SECOND) && !limits.sends(1, SECOND));
        assert!(limits.keep(RATE), "the other one does not send");
        assert_eq!(limits.part(1, RATE, SECOND), Some(RATE / 2));
        assert_eq!(limits.part(2, RATE, SECOND), None);
        assert!(limits.sends(2, SECOND));
        assert!(!limits.keep(RATE), "twice as much");
        for channel in [1, 2] {
            let part = limits.part(channel, RATE, SECOND);
            assert_eq!(part, Some(RATE / 4));
            limits.set(channel, RATE / 4);
        }
        assert!(limits.keep(RATE));
        // One of them pauses, and the other one has all.
        let later = 3 * SECOND;
        limits.sends(1, later);
        assert_eq!(limits.part(1, RATE, later), Some(RATE / 2));
        // It may begin again with what it had.
        limits.set(1, RATE / 2);
        assert!(limits.keep(RATE));
        assert!(limits.sends(2, later) && !limits.keep(RATE));
        limits.end(1);
        assert!(limits.keep(RATE));
        assert_eq!(limits.channels(), 1);
    }

    #[test]
    fn all_parts_together_are_no_less_than_the_rate() {
        for channels in 1..20_u64 {
            let mut limits = Limits::default();
            for channel in 0..channels {
                limits.begin(channel, 3, 1);
                limits.sends(channel, SECOND);
            }
            let mut sum = 0;
            for channel in 0..channels {
                let part = limits.part(channel, RATE, SECOND).unwrap();
                limits.set(channel, part);
                sum += 3 * part;
            }
            assert!(sum >= RATE && limits.keep(RATE), "{sum} of {channels}");
        }
    }
}
