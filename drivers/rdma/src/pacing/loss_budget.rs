//! A budget for random loss: packets are lost by chance now and then.

use std::time::Duration;

/// A budget of tolerated losses that refills with time.
#[derive(Debug)]
pub(super) struct LossBudget {
    left: u32,
    /// Since when the budget refills.
    since: Duration,
    /// Messages that were sent before this time belong to the last tolerated loss.
    until: Duration,
}

/// The budget after a while without losses.
const MOST: u32 = 4;

/// The time in which the budget grows by one.
const REGAINED_AFTER: Duration = Duration::from_secs(1);

impl Default for LossBudget {
    fn default() -> Self {
        Self {
            left: MOST,
            since: Duration::ZERO,
            until: Duration::ZERO,
        }
    }
}

impl LossBudget {
    /// Whether the late arrival of a message sent at `posted_at`, noticed now, is within the budget.
    pub(super) fn tolerates(&mut self, posted_at: Duration, now: Duration) -> bool {
        if posted_at < self.until {
            return true;
        }
        while self.left < MOST && now.saturating_sub(self.since) >= REGAINED_AFTER {
            self.left += 1;
            self.since += REGAINED_AFTER;
        }
        if self.left == MOST {
            self.since = now;
        }
        if self.left == 0 {
            return false;
        }
        self.left -= 1;
        self.until = now;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn rare_losses_are_always_tolerated() {
        let mut budget = LossBudget::default();
        for at in 1..1000 {
            assert!(budget.tolerates(at * SECOND, at * SECOND));
        }
    }

    #[test]
    fn many_losses_in_a_short_time_exceed_the_budget() {
        let mut budget = LossBudget::default();
        let at = |event: u32| SECOND + event * SECOND / 100;
        for event in 0..MOST {
            assert!(budget.tolerates(at(event), at(event)));
            // All of this was sent before the loss was noticed.
            assert!(budget.tolerates(SECOND / 2, at(event)));
        }
        assert!(!budget.tolerates(at(MOST), at(MOST)));
        assert!(budget.tolerates(3 * SECOND, 3 * SECOND));
    }
}
