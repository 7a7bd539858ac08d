//! The token bucket of a path, and time slots of the channels that share it.
//!
//! A channel that must wait reserves the next slot, so channels send in the order in which they asked.
//! The slot only says when to wake up. Whether the channel may send then depends on what was really
//! sent: a channel that wakes up late keeps its slot and what the bucket has gained in between, up
//! to the burst, and the path never gets more than a policer with this rate and burst passes.

use std::time::Duration;

use super::WAKE_UP;
use super::bucket::Bucket;

/// A bucket with reservations. Times are counted from one moment, as everywhere in pacing.
#[derive(Debug)]
pub(super) struct Slots {
    /// What was sent.
    sent: Bucket,
    /// What was sent, and what was reserved.
    reserved: Bucket,
}

impl Slots {
    /// `rate` is in bytes per second, `burst` in bytes.
    pub(super) fn new(rate: Option<u64>, burst: u64) -> Self {
        let bucket = Bucket::new(rate, burst);
        Self {
            sent: bucket,
            reserved: bucket,
        }
    }

    /// In bytes per second.
    pub(super) fn rate(&self) -> Option<u64> {
        self.sent.rate()
    }

    /// Changes the limits.
    pub(super) fn set(&mut self, rate: Option<u64>, burst: u64) {
        self.sent.set(rate, burst);
        self.reserved.set(rate, burst);
    }

    /// Sends this many bytes if the time of the slot has come. Otherwise returns that time, and `slot` is
    /// reserved.
    pub(super) fn pass(
        &mut self,
        slot: &mut Option<Duration>,
        bytes: u64,
        now: Duration,
    ) -> Option<Duration> {
        let at = *slot.get_or_insert_with(|| self.reserve(bytes, now));
        if at > now {
            return Some(at);
        }
        if self.sent.ready_at(bytes, now) > now {
            // Other channels have used the time of this slot. Without another one, channels that always poll
            // first would go on doing so.
            let at = self.reserve(bytes, now);
            *slot = Some(at);
            return Some(at);
        }
        *slot = None;
        self.sent.pass(bytes, now);
        // What a late sender did not use in time beyond the burst is lost to later slots too.
        self.reserved.follow(&self.sent);
        None
    }

    /// Reserves the next slot for this many bytes and returns its time, `now` or later.
    fn reserve(&mut self, bytes: u64, now: Duration) -> Duration {
        let at = self.reserved.ready_at(bytes, now);
        self.reserved.pass(bytes, at);
        at
    }

    /// When this many bytes may be sent in a slot, or in the next free one: `now` or later.
    pub(super) fn ready_at(&self, slot: Option<Duration>, bytes: u64, now: Duration) -> Duration {
        match slot {
            Some(slot) => self.sent.ready_at(bytes, now).max(slot),
            None => self.reserved.ready_at(bytes, now),
        }
    }

    /// Whether the burst has no room for what the rate allows while a thread wakes up late: a channel that
    /// sleeps until its slot would send less than the rate.
    pub(super) fn needs_exact_time(&self, bytes: u64) -> bool {
        self.sent.slack(bytes).is_some_and(|slack| slack < WAKE_UP)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::pacing::pace::bytes_in_wake_up;

    const MICROSECOND: Duration = Duration::from_micros(1);

    #[test]
    fn a_late_sender_keeps_its_slot_and_its_rate() {
        // A megabyte per second: a message of 100 bytes takes 100 µs.
        let mut slots = Slots::new(Some(1_000_000), 300);
        let (mut now, mut slot, mut sent) = (Duration::ZERO, None, 0);
        while now < Duration::from_millis(100) {
            match slots.pass(&mut slot, 100, now) {
                None => sent += 100,
                Some(at) => now = at + 150 * MICROSECOND,
            }
        }
        assert!((99_800..=100_600).contains(&sent), "{sent}");
    }

    #[test]
    fn time_beyond_the_burst_is_lost() {
        let mut slots = Slots::new(Some(1_000_000), 150);
        assert_eq!(slots.pass(&mut None, 150, Duration::ZERO), None);
        let mut slot = None;
        let at = slots.pass(&mut slot, 100, Duration::ZERO);
        assert_eq!(at, Some(100 * MICROSECOND));
        let late = Duration::from_millis(10);
        assert_eq!(slots.pass(&mut slot, 100, late), None);
        let next = slots.pass(&mut slot, 100, late);
        assert_eq!(next, Some(late + 50 * MICROSECOND), "half was left");
    }

    #[test]
    fn slots_are_given_in_order() {
        let mut slots = Slots::new(Some(1_000_000), 100);
        let given = [(); 4].map(|()| slots.pass(&mut None, 100, Duration::ZERO));
        let times = [100, 200, 300].map(|time| Some(time * MICROSECOND));
        assert_eq!(given[0], None);
        assert_eq!(given[1..], times);
        let next = slots.ready_at(None, 100, Duration::ZERO);
        assert_eq!(next, 400 * MICROSECOND);
    }

    /// After a pause all channels are due, and the one that polls first each time must not send alone.
    #[test]
    fn a_channel_whose_slot_was_used_gets_another_one() {
        let mut slots = Slots::new(Some(1_000_000), 100);
        let mut waiting = [None, None];
        let mut sent = [0_u32; 2];
        for slot in &mut waiting {
            slots.pass(slot, 100, Duration::ZERO);
        }
        let mut now = Duration::from_secs(1);
        for _ in 0..100 {
            let mut due = Duration::MAX;
            for (slot, sent) in waiting.iter_mut().zip(&mut sent) {
                match slots.pass(slot, 100, now) {
                    None => *sent += 1,
                    Some(at) => due = due.min(at),
                }
            }
            now = due.max(now);
        }
        assert!(sent[0].abs_diff(sent[1]) <= 2, "{sent:?}");
    }

    #[test]
    fn a_short_burst_needs_exact_time() {
        // 200 µs are 200 bytes.
        let slots = Slots::new(Some(1_000_000), 300);
        assert!(!slots.needs_exact_time(100) && slots.needs_exact_time(101));
        assert!(!Slots::new(None, 0).needs_exact_time(100));
        for rate in [1, 999, 1_234_567_891, 50_000_000_001] {
            let burst = 100 + bytes_in_wake_up(rate);
            let slots = Slots::new(Some(rate), burst);
            assert!(!slots.needs_exact_time(100), "{rate}");
        }
    }

    proptest! {
        /// However late channels wake up, a policer with this rate and burst drops no message.
        #[test]
        fn a_policer_passes_late_channels(
            rate in 1_000_u64..10_000_000_000,
            burst in 100_u64..10_000_000,
            channels in 1_u64..5,
            messages in proptest::collection::vec((1_u64..=1000, 0_u32..2_000_000), 1..100),
        ) {
            let mut slots = Slots::new(Some(rate), burst);
            let (mut tokens, mut last) = (burst as f64, Duration::ZERO);
            // When each channel polls, its slot and its message.
            let mut waiting = BTreeMap::new();
            for channel in 0..channels {
                waiting.insert((Duration::ZERO, channel), (None, None));
            }
            for (share, late) in messages {
                let ((now, channel), (mut slot, waits)) = waiting.pop_first().unwrap();
                let bytes = waits.unwrap_or_else(|| (burst * share / 1000).max(1));
                if let Some(at) = slots.pass(&mut slot, bytes, now) {
                    let polls = at + Duration::from_nanos(late.into());
                    waiting.insert((polls, channel), (slot, Some(bytes)));
                    continue;
                }
                tokens = (tokens + (now - last).as_secs_f64() * rate as f64).min(burst as f64);
                last = now;
                tokens -= bytes as f64;
                prop_assert!(tokens >= -1.0 - 1e-6 * burst as f64, "{tokens} tokens are left");
                waiting.insert((now, channel), (None, None));
            }
        }
    }
}
