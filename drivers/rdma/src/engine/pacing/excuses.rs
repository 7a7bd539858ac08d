//! What was late without anybody's fault: a packet is lost by chance now and then.

use std::time::Duration;

/// Some events are excused, and as many again as time passes.
#[derive(Debug)]
pub(super) struct Excuses {
    left: u32,
    /// Since when those that are missing come back.
    since: Duration,
    /// What left before has the same reason as the last event.
    until: Duration,
}

/// How many there are after a while without events.
const MOST: u32 = 4;

/// How long it takes until there is one more.
const REGAINED_AFTER: Duration = Duration::from_secs(1);

impl Default for Excuses {
    fn default() -> Self {
        Self {
            left: MOST,
            since: Duration::ZERO,
            until: Duration::ZERO,
        }
    }
}

impl Excuses {
    /// Whether it is excused that what left at `posted_at` is late, as was seen now.
    pub(super) fn excuses(&mut self, posted_at: Duration, now: Duration) -> bool {
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
    fn events_that_are_rare_are_excused_for_ever() {
        let mut excuses = Excuses::default();
        for at in 1..1000 {
            assert!(excuses.excuses(at * SECOND, at * SECOND));
        }
    }

    #[test]
    fn many_at_a_time_are_not() {
        let mut excuses = Excuses::default();
        let at = |event: u32| SECOND + event * SECOND / 100;
        for event in 0..MOST {
            assert!(excuses.excuses(at(event), at(event)));
            // All of this left before the event was seen.
            assert!(excuses.excuses(SECOND / 2, at(event)));
        }
        assert!(!excuses.excuses(at(MOST), at(MOST)));
        assert!(excuses.excuses(3 * SECOND, 3 * SECOND));
    }
}
