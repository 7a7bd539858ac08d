//! How a search reacts to losses that the device's counters reveal before messages are late.
//!
//! A device that receives a NAK retransmits everything in flight at once. A policer drops most of
//! that again, unless it is no more than its burst. On a path with so short a round trip that a
//! burst in flight keeps it busy, no more than what has passed at once is in flight: a loss is then
//! repaired in milliseconds, and no queue pair is given up. Such a loss cannot be seen by waiting,
//! so the device's counters are read.
//!
//! Retransmissions after a timeout of the device are not counted here, because its timer may expire
//! although no packet is missing.

use std::time::Duration;

use super::losses::MOST_REST;
use super::{Phase, STEP_TIME, Search};
use crate::pacing::bucket::time_of;
use crate::pacing::chance::Chance;
use crate::pacing::trial::Trial;
use crate::pacing::{LOOK_INTERVAL, RETRY_INTERVAL};

/// The state of losses that the peer's device has counted.
#[derive(Debug, Default)]
pub(super) struct Misses {
    /// The devices count them.
    are_counted: bool,
    /// Since when a whole group has arrived without the counters having been read.
    whole_since: Option<Duration>,
    /// Sending is paused until the device has repaired a loss.
    is_recovering: bool,
    /// Losses before this time were already handled.
    judged_until: Duration,
    /// When the last loss was noticed.
    lost_at: Option<Duration>,
    /// One loss at this rate so far: it may be random.
    is_suspect: bool,
    /// Reductions of the rate since losses were rare.
    eases: u32,
    /// The rate was reduced a lot, and the right one is somewhere in between.
    is_eased: bool,
    chance: Chance,
}

/// The time that a device on a short path has for some retransmissions before its queue pair is
/// given up.
pub(super) const MENDED_AFTER: Duration = Duration::from_secs(1);

/// A loss after this many bursts is random, or the rate exceeds the policer's only slightly.
const RARE: u64 = 1500;
/// A loss after fewer than this many means that the rate is some percent too high.
const OFTEN: u64 = 25;

/// The share by which a rate that had been found good is reduced then.
const MUCH_EASE: f64 = 0.04;

/// If losses are no rarer after this many reductions, the rate is not their cause.
const MOST_EASES: u32 = 8;

/// Without a policer, what has passed at once may be more than this.
const MOST_BURST_BYTES: u64 = 256 << 10;

impl Misses {
    pub(super) fn is_recovering(&self) -> bool {
        self.is_recovering
    }

    pub(super) fn awaits_look(&self) -> bool {
        self.whole_since.is_some()
    }

    /// A whole group has arrived. Returns whether the devices will reveal a loss in it.
    pub(super) fn await_look(&mut self, now: Duration) -> bool {
        self.whole_since = self.are_counted.then_some(now);
        self.are_counted
    }

    /// The time of a climb's step: after a first loss, until a second one would have shown.
    pub(super) fn step_time(&self) -> Duration {
        if self.is_suspect {
            STEP_TIME + 3 * LOOK_INTERVAL
        } else {
            STEP_TIME
        }
    }

    /// Another rate is searched for.
    pub(super) fn look_anew(&mut self) {
        self.is_eased = false;
        self.chance.forget();
    }

    pub(super) fn is_eased(&self) -> bool {
        self.is_eased
    }

    /// The reduced rate passes, and the interval can be narrowed again.
    pub(super) fn take_eased(&mut self) -> bool {
        let was_eased = std::mem::take(&mut self.is_eased);
        if was_eased {
            self.eases = 0;
        }
        was_eased
    }

    /// Another rate is tried.
    pub(super) fn begin_rate(&mut self) {
        self.is_suspect = false;
    }
}

impl Search {
    /// Whether the round trip is so short that no more than what has passed at once need be in
    /// flight, and devices count losses.
    pub(in crate::pacing) fn is_short(&self) -> bool {
        // Twice the round trip time, for acknowledgements that a busy host sends late.
        let bytes = self.rates.bytes_in(2 * self.estimator.round_trip());
        self.misses.are_counted && bytes + self.sizing.message_bytes() <= self.sizing.passed_bytes()
    }

    /// The time before which a short path takes no further message, or when to check again.
    pub(super) fn is_full_until(&mut self, now: Duration) -> Option<Duration> {
        self.window.set(self.rate(), self.sizing.passed_bytes());
        let bytes = self.under_way + self.sizing.message_bytes();
        let ready_at = self.window.ready_at(bytes, now);
        Some(ready_at.unwrap_or(now + RETRY_INTERVAL)).filter(|&at| at > now)
    }

    /// The latest time at which an arrived message can have been sent.
    pub(super) fn left_at(&self, posted_at: Duration, now: Duration) -> Duration {
        now.saturating_sub(self.estimator.round_trip())
            .max(posted_at)
    }

    /// A device's counters were read: whether the peer's device has reported a loss since `since`.
    pub(in crate::pacing) fn looked(&mut self, since: Duration, has_missed: bool, now: Duration) {
        self.misses.are_counted = true;
        if self.misses.is_recovering {
            if self.under_way == 0 {
                self.recovered(now);
            }
        } else if has_missed {
            self.missed(since, now);
        } else if let Some(whole) = self.misses.whole_since
            // By then every channel has read its counters.
            && now >= whole + 2 * LOOK_INTERVAL
        {
            self.misses.whole_since = None;
            self.group_passed(now);
        }
    }

    /// The device has repaired the loss.
    fn recovered(&mut self, now: Duration) {
        self.misses.is_recovering = false;
        self.misses.judged_until = now;
        // Its retransmission may have used up the policer's burst.
        let burst = self.sizing.passed_bytes().max(self.sizing.group_bytes());
        self.pause = Some(now + time_of(burst, self.rate()));
    }

    /// A packet was lost at `since` or later.
    fn missed(&mut self, since: Duration, now: Duration) {
        if since < self.misses.judged_until || self.trial.is_none() {
            return;
        }
        if self.phase == Phase::Sizing {
            self.misses.whole_since = None;
            self.misses.is_recovering = true;
            let arrived = std::mem::take(&mut self.arrived);
            self.group_lost(arrived);
            self.trial = None;
        } else if self.is_short() && self.misses.chance.explains(self.passed_bytes()) {
            self.misses.judged_until = now;
            self.accept_random_loss();
        } else if self.is_short() {
            let arrived = self.arrived_since_loss(now);
            self.react_to_loss(arrived);
        }
    }

    /// The bytes per second that arrived between the last loss and one that is noticed now.
    fn arrived_since_loss(&mut self, now: Duration) -> Option<f64> {
        let arrived = std::mem::take(&mut self.arrived);
        let lost_at = self.misses.lost_at.replace(now)?;
        Some(arrived as f64 / now.saturating_sub(lost_at).as_secs_f64())
    }

    /// By how much a passing rate may be too high, in bytes per second: the policer's burst has
    /// hidden it.
    pub(super) fn hidden(&self) -> f64 {
        let burst = self.sizing.passed_bytes().min(MOST_BURST_BYTES);
        burst as f64 / self.trial_time.as_secs_f64()
    }

    /// Reacts to a loss on a short path that the rate may have caused. So many bytes per second arrived
    /// since the one before, if that is known.
    pub(super) fn react_to_loss(&mut self, arrived: Option<f64>) {
        self.misses.is_recovering = true;
        match self.phase {
            Phase::Sizing => {}
            Phase::Resting => self.ease(),
            Phase::Probing => {
                if std::mem::take(&mut self.tries_longer) {
                    self.sizing.shorten();
                }
                self.rest = (2 * self.rest).min(MOST_REST);
                self.go(Phase::Resting, self.rates.low());
            }
            Phase::Climbing | Phase::Narrowing if !self.misses.is_suspect => {
                self.misses.is_suspect = true;
            }
            Phase::Climbing => {
                self.rates.climbed_too_far(Duration::MAX);
                // A policer's burst may have hidden many steps. Its bucket is empty at each loss, so
                // what arrived between two of them is at most its rate.
                if let Some(rate) = arrived {
                    self.rates.passes_only(rate);
                }
                self.bound_burst();
                self.halve();
            }
            Phase::Narrowing => {
                self.rates.failed();
                if self.rates.is_narrow(true) {
                    self.settle();
                } else {
                    self.halve();
                }
            }
        }
        self.trial = None;
    }

    /// The groups have passed at the port's rate, and a policer's burst may be shorter than they are.
    fn bound_burst(&mut self) {
        // With less in flight the path would not be used.
        let least = self.rates.bytes_in(4 * self.estimator.round_trip());
        let burst = self.rates.least_burst(self.sizing.passed_bytes());
        self.sizing.bound(burst.max(least));
    }

    /// Bytes sent since the last loss, or since the rate was set.
    fn passed_bytes(&self) -> u64 {
        self.trial.as_ref().map_or(0, Trial::bytes)
    }

    /// Lowers a rate that had passed. It may be too high by the excess that a policer's burst
    /// hid in that time.
    fn ease(&mut self) {
        let passed = self.passed_bytes();
        let burst = self.sizing.passed_bytes().min(MOST_BURST_BYTES);
        let misses = &mut self.misses;
        if passed >= RARE * burst {
            misses.eases = 0;
            if misses.chance.is_rarer(passed) {
                misses.chance.forget();
                return;
            }
        }
        misses.chance.suspect(self.rates.low());
        if passed < OFTEN * burst {
            self.ease_much();
        } else if let Some(share) = misses.chance.count(passed) {
            self.ease_by(share);
        } else {
            self.accept_random_loss();
            // The loss that ended the climb may have been hidden in the same way.
            self.go(Phase::Climbing, self.rates.low());
        }
    }

    /// If several reductions do not help, the rate is not the cause: perhaps more has passed at
    /// once than a policer's burst, because a busy host sent it late. The search begins again with
    /// half of that.
    fn ease_much(&mut self) {
        self.misses.eases += 1;
        if self.misses.eases > MOST_EASES {
            self.misses.eases = 0;
            self.sizing.shorten();
            self.go(Phase::Climbing, self.rates.low());
            return;
        }
        self.misses.is_eased = true;
        self.ease_by(MUCH_EASE);
    }

    fn ease_by(&mut self, share: f64) {
        self.rates.ease(share);
        self.try_rate(self.rates.low());
    }

    /// Accepts a random loss, and restores the rate from before the reductions.
    fn accept_random_loss(&mut self) {
        self.misses.eases = 0;
        self.misses.is_eased = false;
        self.trial = None;
        if let Some(rate) = self.misses.chance.forget() {
            self.rates.restore(rate);
            self.try_rate(rate);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_at_any_rate_shorten_messages() {
        let mut search = Search::new(Some(250_000_000), 64 << 10);
        search.misses.are_counted = true;
        search.sizing.lengthen();
        search.sizing.passed();
        search.rates.set(50e6);
        search.rates.passed();
        search.phase = Phase::Resting;
        for _ in 0..=MOST_EASES {
            assert_eq!(search.phase, Phase::Resting);
            assert_eq!(search.message_bytes(), 64 << 10);
            search.trial = Some(Trial::new(Duration::ZERO));
            search.react_to_loss(None);
        }
        assert_eq!(search.phase, Phase::Climbing);
        assert_eq!(search.message_bytes(), 32 << 10);
        assert_eq!(search.sizing.passed_bytes(), 112 << 10);
    }

    /// A loss right after a rate was found: earlier trials may have used up the policer's burst.
    #[test]
    fn a_large_reduction_is_followed_by_another_search() {
        const MESSAGE: u64 = 16 << 10;
        const INTERVAL: Duration = Duration::from_micros(341);
        let mut search = Search::new(Some(250_000_000), MESSAGE);
        search.misses.are_counted = true;
        search.sizing.passed();
        search.rates.set(50e6);
        search.rates.passed();
        search.phase = Phase::Resting;
        search.trial = Some(Trial::new(Duration::ZERO));
        search.react_to_loss(None);
        search.misses.is_recovering = false;
        assert_eq!(search.rate(), 48_000_000);
        let mut now = Duration::from_secs(1);
        for _ in 0..2900 {
            assert_eq!(search.phase, Phase::Resting);
            search.posted(MESSAGE, now);
            search.completed(MESSAGE, now, now + INTERVAL / 4);
            now += INTERVAL;
        }
        while search.phase == Phase::Resting {
            search.posted(MESSAGE, now);
            search.completed(MESSAGE, now, now + INTERVAL / 4);
            now += INTERVAL;
        }
        assert!(now < Duration::from_millis(2050));
        assert_eq!(search.phase, Phase::Narrowing);
        assert!((48_900_000..49_100_000).contains(&search.rate()));
    }

    /// A climb to 200 MB/s behind a policer of half of that, whose burst has hidden several steps.
    #[test]
    fn after_a_climb_only_what_arrived_between_two_losses_is_known_to_pass() {
        const SECOND: Duration = Duration::from_secs(1);
        let mut search = Search::new(Some(250_000_000), 1 << 20);
        search.misses.are_counted = true;
        search.sizing.lengthen();
        search.sizing.lengthen();
        search.sizing.passed();
        search.estimator.arrived(SECOND, SECOND + SECOND / 10_000);
        search.phase = Phase::Climbing;
        search.rates.set(200e6);
        for at in [2, 3] {
            let now = at * SECOND;
            search.trial = Some(Trial::new(now));
            search.arrived = 90_000_000;
            search.missed(now, now);
            search.misses.is_recovering = false;
        }
        assert_eq!(search.phase, Phase::Narrowing);
        assert_eq!(search.rates.low(), 90e6);
        // A fifth of the group of 512 KiB: the rest may have been tokens that the bucket gained.
        assert_eq!(search.sizing.passed_bytes() >> 10, 89);
        assert!(search.message_bytes() <= 32 << 10);
        assert!(search.is_short());
    }
}
