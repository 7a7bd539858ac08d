//! What follows where a device tells that something was lost, before that makes messages late.
//!
//! A device that hears what the peer's misses goes back at once and repeats all that is under way. A policer drops most of that
//! again, unless it is no more than the policer takes at once. Where a round trip takes so little time that this is
//! enough to keep the path busy, no more than what has passed at once is under way: then a loss is mended in
//! milliseconds, and no queue pair is given up for it. So it is not seen by waiting, but by asking the device.
//!
//! A device's own time may be over though nothing is missing, so that does not count here.

use std::time::Duration;

use super::losses::MOST_REST;
use super::{Phase, STEP_TIME, Search};
use crate::engine::pacing::bucket::time_of;
use crate::engine::pacing::chance::Chance;
use crate::engine::pacing::trial::Trial;
use crate::engine::pacing::{LOOKS, RETRY};

/// What is known of what the peer's device has missed.
#[derive(Debug, Default)]
pub(super) struct Misses {
    /// Devices count them.
    are_counted: bool,
    /// All of a group is there since then, and it is to be seen whether something of it was missed.
    whole_since: Option<Duration>,
    /// Something was missed, and nothing leaves until the device has mended it.
    is_recovering: bool,
    /// What was missed before has had its consequences.
    judged_until: Duration,
    /// Something was missed at this rate once: that may be chance.
    is_suspect: bool,
    /// How often the rate became less since misses were rare.
    eases: u32,
    /// It became less by much, and what it could be is somewhere in between.
    is_eased: bool,
    chance: Chance,
}

/// A device on a short path has time for some repetitions before its queue pair is given up.
pub(super) const MENDED_AFTER: Duration = Duration::from_secs(1);

/// After so many times what has passed at once, a miss is chance, or the rate is too much by next to nothing.
const RARE: u64 = 1500;
/// After fewer it is too much by some percent.
const OFTEN: u64 = 25;

/// By how much a rate becomes less then that was held to be good.
const MUCH_EASE: f64 = 0.04;

/// If it becomes less so often, and misses no rarer, that is no remedy.
const MOST_EASES: u32 = 8;

/// What has passed at once may be more without a policer.
const MOST_BURST_BYTES: u64 = 256 << 10;

impl Misses {
    pub(super) fn is_recovering(&self) -> bool {
        self.is_recovering
    }

    pub(super) fn awaits_look(&self) -> bool {
        self.whole_since.is_some()
    }

    /// All of a group is there. Whether devices will tell if something of it was missed.
    pub(super) fn await_look(&mut self, now: Duration) -> bool {
        self.whole_since = self.are_counted.then_some(now);
        self.are_counted
    }

    /// How long a step of the climb takes: where something was missed, until a second time would have been seen.
    pub(super) fn step_time(&self) -> Duration {
        if self.is_suspect {
            STEP_TIME + 3 * LOOKS
        } else {
            STEP_TIME
        }
    }

    /// Another rate is looked for.
    pub(super) fn look_anew(&mut self) {
        self.is_eased = false;
        self.chance.forget();
    }

    pub(super) fn is_eased(&self) -> bool {
        self.is_eased
    }

    /// The rate that became less by much passes: that was the remedy, and the interval can become narrow again.
    pub(super) fn take_eased(&mut self) -> bool {
        let was_eased = std::mem::take(&mut self.is_eased);
        if was_eased {
            self.eases = 0;
        }
        was_eased
    }

    /// Another rate is tried.
    pub(super) fn forgive(&mut self) {
        self.is_suspect = false;
    }
}

impl Search {
    /// Whether a round trip takes so little time that no more need be under way than what has passed at once, and devices
    /// tell what of it is missed.
    pub(in crate::engine::pacing) fn is_short(&self) -> bool {
        // As much again for acknowledgements that a busy host sends late.
        let bytes = self.rates.bytes_in(2 * self.patience.round_trip());
        self.misses.are_counted && bytes + self.sizing.message_bytes() <= self.sizing.passed_bytes()
    }

    /// Until when a short path takes no further message, if that is so, or when to look again.
    pub(super) fn is_full_until(&mut self, now: Duration) -> Option<Duration> {
        self.window.set(self.rate(), self.sizing.passed_bytes());
        let bytes = self.under_way + self.sizing.message_bytes();
        let ready_at = self.window.ready_at(bytes, now);
        Some(ready_at.unwrap_or(now + RETRY)).filter(|&at| at > now)
    }

    /// When a message that is there can have left at the latest.
    pub(super) fn left_at(&self, posted_at: Duration, now: Duration) -> Duration {
        now.saturating_sub(self.patience.round_trip())
            .max(posted_at)
    }

    /// Somebody has asked a device whether the peer's has missed something since `since`.
    pub(in crate::engine::pacing) fn looked(
        &mut self,
        since: Duration,
        has_missed: bool,
        now: Duration,
    ) {
        self.misses.are_counted = true;
        if self.misses.is_recovering {
            if self.under_way == 0 {
                self.recovered(now);
            }
        } else if has_missed {
            self.missed(since, now);
        } else if let Some(whole) = self.misses.whole_since
            // By then every channel has asked.
            && now >= whole + 2 * LOOKS
        {
            self.misses.whole_since = None;
            self.group_passed(now);
        }
    }

    /// The device has mended what was lost.
    fn recovered(&mut self, now: Duration) {
        self.misses.is_recovering = false;
        self.misses.judged_until = now;
        // What it repeated may have used up what a policer takes at once.
        let burst = self.sizing.passed_bytes().max(self.sizing.group_bytes());
        self.pause = Some(now + time_of(burst, self.rate()));
    }

    /// Something was missed, at `since` or later.
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
            self.excuse();
        } else if self.is_short() {
            self.arrived = 0;
            self.blame();
        }
    }

    /// By how much a rate that passed may be too much, in bytes per second: a policer took it at once.
    pub(super) fn hidden(&self) -> f64 {
        let burst = self.sizing.passed_bytes().min(MOST_BURST_BYTES);
        burst as f64 / self.trial_time.as_secs_f64()
    }

    /// Something was lost on a short path: perhaps the rate is to blame.
    pub(super) fn blame(&mut self) {
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

    /// What has left since something was missed, or since the rate is what it is.
    fn passed_bytes(&self) -> u64 {
        self.trial.as_ref().map_or(0, Trial::bytes)
    }

    /// The rate was held to be good. If it is too much, it is so by what a policer takes at once in the time that it passed.
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
            self.excuse();
            // What ended the climb was perhaps no more than that.
            self.go(Phase::Climbing, self.rates.low());
        }
    }

    /// If some steps are no remedy the rate is not the reason: perhaps more has passed at once than a policer takes, because a busy
    /// host sent it late. Then the search begins anew, with half of that.
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

    /// Something was missed that no rate mends: it would have been at a higher one as well.
    fn excuse(&mut self) {
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
    fn what_no_rate_mends_is_too_much_at_once() {
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
            search.trial = Some(Trial::new(Duration::ZERO, Duration::ZERO));
            search.blame();
        }
        assert_eq!(search.phase, Phase::Climbing);
        assert_eq!(search.message_bytes(), 32 << 10);
        assert_eq!(search.sizing.passed_bytes(), 112 << 10);
    }

    /// A miss right after a rate was found: what was tried before it may have used up what a policer takes at once.
    #[test]
    fn what_became_less_by_much_is_looked_for_again() {
        const MESSAGE: u64 = 16 << 10;
        const INTERVAL: Duration = Duration::from_micros(341);
        let mut search = Search::new(Some(250_000_000), MESSAGE);
        search.misses.are_counted = true;
        search.sizing.passed();
        search.rates.set(50e6);
        search.rates.passed();
        search.phase = Phase::Resting;
        search.trial = Some(Trial::new(Duration::ZERO, Duration::ZERO));
        search.blame();
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
}
