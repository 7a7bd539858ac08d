//! How long messages take, and from when on one is late, or lost.
//!
//! What is lost by chance is repeated by the device and arrives a round trip late; behind a policer what is repeated
//! comes too fast as well, and does not arrive. So what is late is waited for, and some of that in a second is nobody's
//! fault. A path that delays what comes too fast, such as a port that is slower than the rate, is late again and again.
//!
//! Nor is it the path's fault if nobody on this host was awake to see a message arrive, or if the device has not gone back
//! since it left: then somebody is busy.
//!
//! What follows from a loss is not decided here.

use std::time::Duration;

use super::excuses::Excuses;

/// What is known of the time that messages take on a path. Time is that since some moment, as everywhere in pacing.
#[derive(Debug, Default)]
pub(super) struct Patience {
    /// The least that a message took.
    least: Option<Duration>,
    /// What was late and did arrive.
    excuses: Excuses,
    /// When this host was too busy to look at the path, and for how long.
    slept: (Duration, Duration),
    /// All of that.
    slept_in_all: Duration,
    /// When a device went back last, where devices count that.
    went_back: Option<Duration>,
}

/// What else matters for how long a message may take.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Circumstances {
    /// Messages are longer than those that have arrived.
    pub(super) are_longer: bool,
    /// Nothing leaves.
    pub(super) is_paused: bool,
    /// It is not the rate that makes messages be lost.
    pub(super) has_other_reason: bool,
}

/// When a message arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arrival {
    InTime,
    /// So late that the device may have repeated it.
    Late,
    /// After it counted as lost.
    TooLate,
}

/// A message that takes so much longer than the quickest is late, at least: hosts are busy with other things.
const LEAST_LATENESS: Duration = Duration::from_millis(50);

/// What a message may take where none has arrived yet.
const FIRST_PATIENCE: Duration = Duration::from_secs(1);

impl Patience {
    /// A message arrived.
    pub(super) fn arrived(
        &mut self,
        posted_at: Duration,
        now: Duration,
        circumstances: Circumstances,
    ) -> Arrival {
        let all = now.saturating_sub(posted_at);
        let took = all.saturating_sub(self.slept_since(posted_at));
        let is_innocent = self.is_innocent(posted_at);
        if took > self.lost_after(circumstances) && !is_innocent {
            Arrival::TooLate
        } else if took > self.late_after(circumstances) && !is_innocent {
            Arrival::Late
        } else {
            self.least = Some(self.least.map_or(all, |least| least.min(all)));
            Arrival::InTime
        }
    }

    /// The way has become another.
    pub(super) fn forget(&mut self) {
        self.least = None;
    }

    /// Whether anything has arrived.
    pub(super) fn knows(&self) -> bool {
        self.least.is_some()
    }

    /// What the quickest message took.
    pub(super) fn round_trip(&self) -> Duration {
        self.least.unwrap_or(FIRST_PATIENCE)
    }

    /// How much longer than the quickest a message may take.
    pub(super) fn lateness(&self) -> Duration {
        self.least
            .map_or(LEAST_LATENESS, |least| LEAST_LATENESS.max(least / 2))
    }

    /// How long a message may take until it counts as late.
    pub(super) fn late_after(&self, circumstances: Circumstances) -> Duration {
        match self.least {
            // The device has time to repeat them.
            _ if circumstances.has_other_reason => FIRST_PATIENCE,
            Some(least) if circumstances.are_longer => 2 * least + LEAST_LATENESS,
            Some(least) => least + self.lateness(),
            None => FIRST_PATIENCE,
        }
    }

    /// How long a message may take until it counts as lost: a device that misses it hears of that after a round trip, and
    /// it takes another one.
    pub(super) fn lost_after(&self, circumstances: Circumstances) -> Duration {
        let late_after = self.late_after(circumstances);
        match self.least {
            // While nothing leaves, what is late is what was lost already.
            Some(least) if !circumstances.are_longer && !circumstances.is_paused => {
                late_after.max(2 * least + 3 * self.lateness() / 2)
            }
            _ => late_after,
        }
    }

    /// When a message that left at `posted_at` counts as lost.
    pub(super) fn lost_at(&self, posted_at: Duration, circumstances: Circumstances) -> Duration {
        let mut time = self.lost_after(circumstances);
        if self.is_innocent(posted_at) {
            // It may have been the last of many, so that the device does not know.
            time *= 2;
        }
        posted_at + time + self.slept_since(posted_at)
    }

    /// Whether it is nobody's fault that messages from `posted_at` on are late, as was seen now.
    pub(super) fn excuses(&mut self, posted_at: Duration, now: Duration) -> bool {
        self.excuses.excuses(posted_at, now)
    }

    /// Nobody looked at the path for so long before `now`, though it was time to: what took longer than that did not
    /// on the way.
    pub(super) fn overslept(&mut self, by: Duration, now: Duration, circumstances: Circumstances) {
        let (at, before) = self.slept;
        // Channels sleep at the same time: what another has told of counts once.
        let by = by.min(now.saturating_sub(at));
        self.slept_in_all += by;
        let is_one = now.saturating_sub(at) < self.lost_after(circumstances);
        self.slept = (now.max(at), if is_one { before + by } else { by });
    }

    /// How long nobody looked, in all.
    pub(super) fn slept_in_all(&self) -> Duration {
        self.slept_in_all
    }

    /// A device counts how often it goes back, and did so since somebody looked last, or not.
    pub(super) fn counted(&mut self, went_back: bool, now: Duration) {
        if went_back || self.went_back.is_none() {
            self.went_back = Some(now);
        }
    }

    /// Whether no device went back since then: what is late is not lost, but somebody is busy.
    pub(super) fn is_innocent(&self, posted_at: Duration) -> bool {
        self.went_back.is_some_and(|last| last < posted_at)
    }

    /// How much of the time since then nobody looked.
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

    /// When they left, all of them.
    const POSTED_AT: Duration = Duration::from_secs(100);

    /// With nothing else that matters.
    const USUAL: Circumstances = Circumstances {
        are_longer: false,
        is_paused: false,
        has_other_reason: false,
    };

    /// On a path where the quickest message took so long.
    fn after(least: Duration) -> Patience {
        let mut patience = Patience::default();
        assert_eq!(
            patience.arrived(Duration::ZERO, least, USUAL),
            Arrival::InTime
        );
        patience
    }

    #[test]
    fn what_may_have_been_repeated_is_late_and_what_takes_longer_is_lost() {
        // After 120 ms it is in time for 60 ms more. A repetition takes another 120 ms, and may be late by 30 ms.
        for (took, arrival) in [
            (120, Arrival::InTime),
            (180, Arrival::InTime),
            (181, Arrival::Late),
            (330, Arrival::Late),
            (331, Arrival::TooLate),
        ] {
            let mut patience = after(120 * MILLISECOND);
            let now = POSTED_AT + took * MILLISECOND;
            assert_eq!(patience.arrived(POSTED_AT, now, USUAL), arrival, "{took}");
        }
    }

    #[test]
    fn what_is_late_while_the_device_does_not_go_back_is_not_lost() {
        let mut patience = after(120 * MILLISECOND);
        let lost_at = patience.lost_at(POSTED_AT, USUAL);
        patience.counted(false, POSTED_AT - MILLISECOND);
        let innocent_until = patience.lost_at(POSTED_AT, USUAL);
        assert_eq!(innocent_until - POSTED_AT, 2 * (lost_at - POSTED_AT));
        let late = patience.arrived(POSTED_AT, lost_at + MILLISECOND, USUAL);
        assert_eq!(late, Arrival::InTime);
        patience.counted(true, POSTED_AT + MILLISECOND);
        assert_eq!(patience.lost_at(POSTED_AT, USUAL), lost_at);
        let late = patience.arrived(POSTED_AT, lost_at + MILLISECOND, USUAL);
        assert_eq!(late, Arrival::TooLate);
    }

    #[test]
    fn who_knows_little_waits_for_longer_or_for_no_repetition() {
        let least = 120 * MILLISECOND;
        let lost_after = |circumstances| after(least).lost_after(circumstances);
        let are_longer = Circumstances {
            are_longer: true,
            ..USUAL
        };
        assert_eq!(lost_after(are_longer), 2 * least + LEAST_LATENESS);
        let is_paused = Circumstances {
            is_paused: true,
            ..USUAL
        };
        assert_eq!(lost_after(is_paused), after(least).late_after(USUAL));
        let has_other_reason = Circumstances {
            has_other_reason: true,
            ..USUAL
        };
        assert_eq!(lost_after(has_other_reason), FIRST_PATIENCE);
        assert_eq!(Patience::default().lost_after(USUAL), FIRST_PATIENCE);
    }

    proptest! {
        /// However long the way is: what took longer by what the host overslept arrived as it would have.
        #[test]
        fn what_was_overslept_does_not_count(
            least in 0_u32..1000,
            took in 0_u32..4000,
            slept in 1_u32..10_000,
        ) {
            let (took, slept) = (took * MILLISECOND, slept * MILLISECOND);
            let arrival = after(least * MILLISECOND).arrived(POSTED_AT, POSTED_AT + took, USUAL);
            let mut patience = after(least * MILLISECOND);
            let lost_at = patience.lost_at(POSTED_AT, USUAL);
            let now = POSTED_AT + took + slept;
            patience.overslept(slept, now, USUAL);
            prop_assert_eq!(patience.lost_at(POSTED_AT, USUAL), lost_at + slept);
            prop_assert_eq!(patience.lost_at(now, USUAL) - now, lost_at - POSTED_AT);
            prop_assert_eq!(patience.arrived(POSTED_AT, now, USUAL), arrival);
        }
    }
}
