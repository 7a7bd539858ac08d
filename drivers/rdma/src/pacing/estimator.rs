//! Estimates the round trip time, and decides when a message is late and when it is lost.
//!
//! A randomly lost packet is retransmitted by the device and arrives a round trip late. Behind a
//! policer the retransmission is dropped as well. So late messages are waited for, with a budget of
//! tolerated delays per second. A path that queues what exceeds its rate, such as a slow port, is
//! late again and again and exhausts the budget.
//!
//! A delay does not count against the path if this host was too busy to see the arrival, or if the
//! device has not retransmitted since the message was sent.
//!
//! [`super::search`] decides how to react to a loss.

use std::time::Duration;

use super::loss_budget::LossBudget;

/// Estimates for a path. Times are counted from one moment, as everywhere in pacing.
#[derive(Debug, Default)]
pub(super) struct RoundTripEstimator {
    /// The shortest time that a message took.
    least: Option<Duration>,
    /// The budget of late messages that did arrive.
    budget: LossBudget,
    /// When this host was too busy to poll the path, and for how long.
    slept: (Duration, Duration),
    /// The sum of all such times.
    slept_in_all: Duration,
    /// The device's last retransmission, where devices count them.
    went_back: Option<Duration>,
}

/// Conditions that affect how long a message may take.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Conditions {
    /// Messages are longer than those that have arrived.
    pub(super) are_longer: bool,
    /// Sending is paused.
    pub(super) is_paused: bool,
    /// Losses have another cause than the rate.
    pub(super) has_other_reason: bool,
}

/// How late a message arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arrival {
    InTime,
    /// Late enough for the device to have retransmitted it.
    Late,
    /// After the loss timeout.
    TooLate,
}

/// The least delay beyond the shortest time that counts as late: hosts are busy with other work.
const LEAST_LATENESS: Duration = Duration::from_millis(50);

/// The timeout before any message has arrived.
const FIRST_TIMEOUT: Duration = Duration::from_secs(1);

impl RoundTripEstimator {
    /// A message arrived.
    pub(super) fn arrived(
        &mut self,
        posted_at: Duration,
        now: Duration,
        conditions: Conditions,
    ) -> Arrival {
        let all = now.saturating_sub(posted_at);
        let took = all.saturating_sub(self.slept_since(posted_at));
        let was_not_repeated = self.was_not_repeated(posted_at);
        if took > self.lost_after(conditions) && !was_not_repeated {
            Arrival::TooLate
        } else if took > self.late_after(conditions) && !was_not_repeated {
            Arrival::Late
        } else {
            self.least = Some(self.least.map_or(all, |least| least.min(all)));
            Arrival::InTime
        }
    }

    /// Forgets the estimate, because the path has changed.
    pub(super) fn forget(&mut self) {
        self.least = None;
    }

    /// Whether a round trip was measured.
    pub(super) fn is_measured(&self) -> bool {
        self.least.is_some()
    }

    /// The estimated round trip time.
    pub(super) fn round_trip(&self) -> Duration {
        self.least.unwrap_or(FIRST_TIMEOUT)
    }

    /// The delay beyond the shortest time at which a message counts as late.
    pub(super) fn lateness(&self) -> Duration {
        self.least
            .map_or(LEAST_LATENESS, |least| LEAST_LATENESS.max(least / 2))
    }

    /// The time after which a message counts as late.
    pub(super) fn late_after(&self, conditions: Conditions) -> Duration {
        match self.least {
            // The device needs time for retransmissions.
            _ if conditions.has_other_reason => FIRST_TIMEOUT,
            Some(least) if conditions.are_longer => 2 * least + LEAST_LATENESS,
            Some(least) => least + self.lateness(),
            None => FIRST_TIMEOUT,
        }
    }

    /// The time after which a message counts as lost: the device learns of a loss after a round
    /// trip and repairs it in another.
    pub(super) fn lost_after(&self, conditions: Conditions) -> Duration {
        let late_after = self.late_after(conditions);
        match self.least {
            // While sending is paused, a late message belongs to the loss that caused the pause.
            Some(least) if !conditions.are_longer && !conditions.is_paused => {
                late_after.max(2 * least + 3 * self.lateness() / 2)
            }
            _ => late_after,
        }
    }

    /// When a message sent at `posted_at` counts as lost.
    pub(super) fn lost_at(&self, posted_at: Duration, conditions: Conditions) -> Duration {
        let mut time = self.lost_after(conditions);
        if self.was_not_repeated(posted_at) {
            // It may have been the last message of a flight, whose loss the device cannot detect.
            time *= 2;
        }
        posted_at + time + self.slept_since(posted_at)
    }

    /// Whether the delay of messages sent from `posted_at` on, noticed now, is within the budget.
    pub(super) fn tolerates(&mut self, posted_at: Duration, now: Duration) -> bool {
        self.budget.tolerates(posted_at, now)
    }

    /// This host did not poll the path for `by` before `now`, though a poll was due: delays up to
    /// that are not caused by the path.
    pub(super) fn overslept(&mut self, by: Duration, now: Duration, conditions: Conditions) {
        let (at, before) = self.slept;
        // Channels are delayed at the same time; a delay that another channel reported counts once.
        let by = by.min(now.saturating_sub(at));
        self.slept_in_all += by;
        let is_one = now.saturating_sub(at) < self.lost_after(conditions);
        self.slept = (now.max(at), if is_one { before + by } else { by });
    }

    /// The sum of the delays of this host.
    pub(super) fn slept_in_all(&self) -> Duration {
        self.slept_in_all
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

    /// How long this host did not poll since `posted_at`.
    fn slept_since(&self, posted_at: Duration) -> Duration {
        let (at, by) = self.slept;
        if posted_at < at { by } else { Duration::ZERO }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MILLISECOND: Duration = Duration::from_millis(1);

    /// When all messages of these tests were sent.
    const POSTED_AT: Duration = Duration::from_secs(100);

    /// Without special conditions.
    const USUAL: Conditions = Conditions {
        are_longer: false,
        is_paused: false,
        has_other_reason: false,
    };

    /// A path whose quickest message took `least`.
    fn after(least: Duration) -> RoundTripEstimator {
        let mut estimator = RoundTripEstimator::default();
        assert_eq!(
            estimator.arrived(Duration::ZERO, least, USUAL),
            Arrival::InTime
        );
        estimator
    }

    #[test]
    fn a_retransmitted_message_is_late_and_a_later_one_is_lost() {
        // A round trip of 120 ms: late after 60 ms more. A retransmission takes another 120 ms and
        // may be late by 30 ms.
        for (took, arrival) in [
            (120, Arrival::InTime),
            (180, Arrival::InTime),
            (181, Arrival::Late),
            (330, Arrival::Late),
            (331, Arrival::TooLate),
        ] {
            let mut estimator = after(120 * MILLISECOND);
            let now = POSTED_AT + took * MILLISECOND;
            assert_eq!(estimator.arrived(POSTED_AT, now, USUAL), arrival, "{took}");
        }
    }

    #[test]
    fn a_late_message_without_a_retransmission_is_not_lost() {
        let mut estimator = after(120 * MILLISECOND);
        let lost_at = estimator.lost_at(POSTED_AT, USUAL);
        estimator.counted(false, POSTED_AT - MILLISECOND);
        let lost_later_at = estimator.lost_at(POSTED_AT, USUAL);
        assert_eq!(lost_later_at - POSTED_AT, 2 * (lost_at - POSTED_AT));
        let late = estimator.arrived(POSTED_AT, lost_at + MILLISECOND, USUAL);
        assert_eq!(late, Arrival::InTime);
        estimator.counted(true, POSTED_AT + MILLISECOND);
        assert_eq!(estimator.lost_at(POSTED_AT, USUAL), lost_at);
        let late = estimator.arrived(POSTED_AT, lost_at + MILLISECOND, USUAL);
        assert_eq!(late, Arrival::TooLate);
    }

    #[test]
    fn the_timeout_depends_on_the_conditions() {
        let least = 120 * MILLISECOND;
        let lost_after = |conditions| after(least).lost_after(conditions);
        let are_longer = Conditions {
            are_longer: true,
            ..USUAL
        };
        assert_eq!(lost_after(are_longer), 2 * least + LEAST_LATENESS);
        let is_paused = Conditions {
            is_paused: true,
            ..USUAL
        };
        assert_eq!(lost_after(is_paused), after(least).late_after(USUAL));
        let has_other_reason = Conditions {
            has_other_reason: true,
            ..USUAL
        };
        assert_eq!(lost_after(has_other_reason), FIRST_TIMEOUT);
        assert_eq!(
            RoundTripEstimator::default().lost_after(USUAL),
            FIRST_TIMEOUT
        );
    }

    proptest! {
        /// On any path, a message that was late by the delay of this host counts as without that
        /// delay.
        #[test]
        fn delays_of_the_host_do_not_count(
            least in 0_u32..1000,
            took in 0_u32..4000,
            slept in 1_u32..10_000,
        ) {
            let (took, slept) = (took * MILLISECOND, slept * MILLISECOND);
            let arrival = after(least * MILLISECOND).arrived(POSTED_AT, POSTED_AT + took, USUAL);
            let mut estimator = after(least * MILLISECOND);
            let lost_at = estimator.lost_at(POSTED_AT, USUAL);
            let now = POSTED_AT + took + slept;
            estimator.overslept(slept, now, USUAL);
            prop_assert_eq!(estimator.lost_at(POSTED_AT, USUAL), lost_at + slept);
            prop_assert_eq!(estimator.lost_at(now, USUAL) - now, lost_at - POSTED_AT);
            prop_assert_eq!(estimator.arrived(POSTED_AT, now, USUAL), arrival);
        }
    }
}
