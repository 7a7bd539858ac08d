//! Estimates the round trip time, and decides when a message is late and when it is lost.
//!
//! A randomly lost packet is retransmitted by the device and arrives a round trip late. Behind a
//! policer the retransmission is dropped as well. So late messages are waited for, with a budget of
//! tolerated delays per second. A path that queues what exceeds its rate, such as a slow port, is
//! late again and again and exhausts the budget.
//!
//! A delay does not count against the path if the device has not retransmitted since the message was
//! sent: then a host was too busy to send or to see the arrival.
//!
//! [`super::search`] decides how to react to a loss.

use std::time::Duration;

use super::loss_budget::LossBudget;
use super::shortest::Shortest;

/// Estimates for a path. Times are counted from one moment, as everywhere in pacing.
#[derive(Debug, Default)]
pub(super) struct RoundTripEstimator {
    /// The shortest time that a message took.
    least: Shortest,
    /// The budget of late messages that did arrive.
    budget: LossBudget,
    /// The device's last retransmission, where devices count them.
    went_back: Option<Duration>,
}

/// The least delay beyond the shortest time that counts as late: hosts are busy with other work.
const LEAST_LATENESS: Duration = Duration::from_millis(50);

/// The timeout before any message has arrived.
const FIRST_TIMEOUT: Duration = Duration::from_secs(1);

impl RoundTripEstimator {
    /// A message arrived. Returns whether it is so late that the device may have retransmitted it.
    pub(super) fn arrived(&mut self, posted_at: Duration, now: Duration) -> bool {
        let took = now.saturating_sub(posted_at);
        if took > self.late_after() && !self.was_not_repeated(posted_at) {
            return true;
        }
        self.least.took(took, self.lateness() / 2, now);
        false
    }

    /// Whether a round trip was measured.
    pub(super) fn is_measured(&self) -> bool {
        self.least.get().is_some()
    }

    /// The estimated round trip time.
    pub(super) fn round_trip(&self) -> Duration {
        self.least.get().unwrap_or(FIRST_TIMEOUT)
    }

    /// The delay beyond the shortest time at which a message counts as late.
    pub(super) fn lateness(&self) -> Duration {
        self.least
            .get()
            .map_or(LEAST_LATENESS, |least| LEAST_LATENESS.max(least / 2))
    }

    /// The time after which a message counts as late.
    pub(super) fn late_after(&self) -> Duration {
        match self.least.get() {
            Some(least) => least + self.lateness(),
            None => FIRST_TIMEOUT,
        }
    }

    /// The time after which a message counts as lost: the device learns of a loss after a round
    /// trip and repairs it in another.
    pub(super) fn lost_after(&self, is_paused: bool) -> Duration {
        let late_after = self.late_after();
        match self.least.get() {
            // While sending is paused, a late message belongs to the loss that caused the pause.
            Some(least) if !is_paused => late_after.max(2 * least + 3 * self.lateness() / 2),
            _ => late_after,
        }
    }

    /// When a message sent at `posted_at` counts as lost.
    pub(super) fn lost_at(&self, posted_at: Duration, is_paused: bool) -> Duration {
        let mut time = self.lost_after(is_paused);
        if self.was_not_repeated(posted_at) {
            // A host is busy, the path has become longer, or it was the last message of a flight, whose
            // loss the device detects late.
            time = time.max(FIRST_TIMEOUT);
        }
        posted_at + time
    }

    /// Whether the delay of messages sent from `posted_at` on, noticed now, is within the budget.
    pub(super) fn tolerates(&mut self, posted_at: Duration, now: Duration) -> bool {
        self.budget.tolerates(posted_at, now)
    }

    /// Whether the device's count of retransmissions has grown since it was read last.
    pub(super) fn counted(&mut self, went_back: bool, now: Duration) {
        if went_back || self.went_back.is_none() {
            self.went_back = Some(now);
        }
    }

    /// Whether no device has retransmitted since `posted_at`: then a late message was delayed by a
    /// host and not lost.
    pub(super) fn was_not_repeated(&self, posted_at: Duration) -> bool {
        self.went_back.is_some_and(|last| last < posted_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: Duration = Duration::from_millis(1);

    /// When all messages of these tests were sent.
    const POSTED_AT: Duration = Duration::from_secs(100);

    /// A path whose quickest message took `least`.
    fn after(least: Duration) -> RoundTripEstimator {
        let mut estimator = RoundTripEstimator::default();
        assert!(!estimator.arrived(POSTED_AT - least, POSTED_AT));
        estimator
    }

    #[test]
    fn a_retransmitted_message_is_late_and_a_later_one_is_lost() {
        // A round trip of 120 ms: late after 60 ms more. A retransmission takes another 120 ms and
        // may be late by 30 ms.
        for (took, is_late) in [(120, false), (180, false), (181, true)] {
            let mut estimator = after(120 * MILLISECOND);
            let now = POSTED_AT + took * MILLISECOND;
            assert_eq!(estimator.arrived(POSTED_AT, now), is_late, "{took}");
        }
        let estimator = after(120 * MILLISECOND);
        let lost_after = |is_paused| estimator.lost_at(POSTED_AT, is_paused) - POSTED_AT;
        assert_eq!(lost_after(false), 330 * MILLISECOND);
        assert_eq!(lost_after(true), 180 * MILLISECOND);
        let first = RoundTripEstimator::default();
        assert_eq!(first.lost_after(false), FIRST_TIMEOUT);
    }

    /// The path may have become longer, and its messages are waited for.
    #[test]
    fn a_late_message_without_a_retransmission_is_not_lost() {
        let mut estimator = after(10 * MILLISECOND);
        let lost_at = estimator.lost_at(POSTED_AT, false);
        estimator.counted(false, POSTED_AT - MILLISECOND);
        let lost_later_at = estimator.lost_at(POSTED_AT, false);
        assert_eq!(lost_later_at, POSTED_AT + FIRST_TIMEOUT);
        assert!(!estimator.arrived(POSTED_AT, lost_later_at));
        estimator.counted(true, POSTED_AT + MILLISECOND);
        assert_eq!(estimator.lost_at(POSTED_AT, false), lost_at);
        assert!(estimator.arrived(POSTED_AT, lost_at));
    }
}
