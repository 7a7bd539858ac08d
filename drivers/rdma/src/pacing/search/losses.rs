//! How a search reacts to late and lost messages.

use std::time::Duration;

use super::{Phase, Search};
use crate::pacing::trial::Trial;

const MOST_TRIAL_TIME: Duration = Duration::from_secs(4);

pub(super) const MOST_REST: Duration = Duration::from_secs(600);

impl Search {
    /// Messages sent from `posted_at` on are late and may still arrive.
    pub(super) fn late(&mut self, posted_at: Duration, now: Duration) {
        if !self.estimator.tolerates(posted_at, now) {
            self.lost(posted_at);
        }
    }

    /// Messages sent from `posted_at` on were lost.
    pub(in crate::pacing) fn lost(&mut self, posted_at: Duration) {
        let began = match self.phase {
            Phase::Climbing => self.phase_since,
            _ => self.trial.as_ref().map(Trial::began),
        };
        let is_early = began.is_none_or(|began| posted_at < began);
        // A loss at an earlier rate does not count for this one, except during a climb.
        if is_early || self.pause.is_some() || self.misses.is_recovering() {
            return;
        }
        let arrived = std::mem::take(&mut self.arrived);
        if arrived > 0 && self.phase != Phase::Sizing && self.is_short() {
            self.react_to_loss(None);
            return;
        }
        let lost_after = self.estimator.lost_after(false);
        if self.phase == Phase::Sizing {
            self.group_lost(arrived);
        } else if arrived == 0 && !self.sizing.is_shortest() {
            // Not even the first message passed: it is longer than the policer's burst.
            self.sizing.shorten();
            if self.phase == Phase::Climbing {
                self.try_rate(self.rates.first());
            }
        } else {
            self.judge(posted_at);
        }
        self.trial = None;
        // The loss was noticed at the timeout; the last message sent has a timeout of its own.
        let late_after = self.estimator.late_after();
        self.pause = Some(posted_at + lost_after + late_after);
    }

    /// A group was too long to pass at once.
    pub(super) fn group_lost(&mut self, arrived: u64) {
        let was_shortest = self.sizing.is_shortest();
        self.sizing.shorten();
        if self.sizing.passed_bytes() > 0 || was_shortest && arrived > 0 {
            self.go(Phase::Climbing, self.rates.rate());
        }
    }

    /// Draws conclusions from a loss.
    fn judge(&mut self, posted_at: Duration) {
        match self.phase {
            Phase::Sizing => {}
            Phase::Climbing => {
                self.rates.climbed_too_far(posted_at);
                self.halve();
            }
            Phase::Narrowing => {
                self.rates.failed();
                if self.rates.is_narrow(false) {
                    self.distrust();
                }
                self.halve();
            }
            Phase::Probing => {
                if std::mem::take(&mut self.tries_longer) {
                    self.sizing.shorten();
                }
                self.rest = (self.rest * 2).min(MOST_REST);
                self.go(Phase::Resting, self.rates.low());
            }
            Phase::Resting => {
                self.rates.failed();
                self.distrust();
                self.halve();
            }
        }
    }

    /// Earlier trials passed only on the policer's burst, or the path has changed.
    fn distrust(&mut self) {
        self.rates.distrust();
        self.trial_time = (self.trial_time * 2).min(MOST_TRIAL_TIME);
    }

    /// Tries the middle of the interval.
    pub(super) fn halve(&mut self) {
        self.go(Phase::Narrowing, self.rates.middle());
    }
}
