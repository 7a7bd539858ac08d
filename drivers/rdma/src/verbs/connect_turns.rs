//! When replacement queue pairs are connected.
//!
//! A device of RoCE needs the peer's address in the network (its MAC address) to connect a queue pair. The kernel waits up to a second for a
//! neighbour that does not answer, and so does the thread that moves the data of all rails. It would wait for every queue pair of the rail,
//! and for every generation of each.

use std::time::Duration;

/// A connection that takes longer has waited for a neighbour, which answers within milliseconds if it is there.
const SLOW: Duration = Duration::from_millis(100);

/// The first pause of a rail, in times of its slow connection: the other rails have 90 % of the time.
const PAUSE_TIMES: u32 = 10;

/// The longest pause of a rail.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The turns of a channel's rails.
#[derive(Debug)]
pub(super) struct ConnectTurns {
    pauses: Vec<Pause>,
    /// A connection of the present poll was slow, so that others wait for the next one.
    was_slow: bool,
}

/// The time in which a rail connects no queue pair if others work.
#[derive(Debug, Clone, Copy, Default)]
struct Pause {
    length: Duration,
    until: Duration,
}

impl ConnectTurns {
    pub(super) fn new(rails: usize) -> Self {
        Self {
            pauses: vec![Pause::default(); rails],
            was_slow: false,
        }
    }

    /// A poll begins.
    pub(super) fn begin(&mut self) {
        self.was_slow = false;
    }

    /// When a queue pair of a rail may be connected, if not now. A pause counts only where other rails work.
    pub(super) fn waits_until(
        &self,
        rail: usize,
        others_work: bool,
        now: Duration,
    ) -> Option<Duration> {
        let pause = self.pauses[rail].until;
        match (others_work && now < pause, self.was_slow) {
            (true, _) => Some(pause),
            (false, true) => Some(now),
            (false, false) => None,
        }
    }

    /// An attempt to connect a queue pair of a rail took this time, and is over `now`.
    pub(super) fn took(&mut self, rail: usize, time: Duration, now: Duration) {
        let pause = &mut self.pauses[rail];
        if time < SLOW {
            *pause = Pause::default();
            return;
        }
        self.was_slow = true;
        let least = time.saturating_mul(PAUSE_TIMES);
        pause.length = least.max(pause.length * 2).min(LONGEST_PAUSE);
        pause.until = now + pause.length;
    }

    /// A rail is left out.
    pub(super) fn remove(&mut self, rail: usize) {
        self.pauses.remove(rail);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_slow_rail_leaves_most_of_the_time_to_others() {
        let mut turns = ConnectTurns::new(2);
        let (mut now, mut slow) = (100 * SECOND, Duration::ZERO);
        let (start, mut attempts) = (now, 0);
        while attempts < 8 {
            turns.begin();
            match turns.waits_until(0, true, now) {
                Some(until) => {
                    assert!(until > now, "it would begin at once");
                    now = until;
                }
                None => {
                    now += SECOND;
                    slow += SECOND;
                    turns.took(0, SECOND, now);
                    attempts += 1;
                }
            }
        }
        assert!(slow * 10 < now - start, "{slow:?} of {:?}", now - start);
        assert_eq!(turns.pauses[0].length, LONGEST_PAUSE);
        turns.took(0, SECOND / 1000, now);
        turns.begin();
        assert_eq!(turns.waits_until(0, true, now), None, "it answers again");
    }

    #[test]
    fn a_poll_has_one_slow_connection() {
        let mut turns = ConnectTurns::new(2);
        let now = 100 * SECOND;
        turns.took(0, SECOND / 100, now);
        assert_eq!(turns.waits_until(1, true, now), None);
        turns.took(0, SECOND, now);
        assert_eq!(
            turns.waits_until(1, true, now),
            Some(now),
            "in the next poll"
        );
        turns.begin();
        assert_eq!(turns.waits_until(1, true, now), None);
        assert_eq!(
            turns.waits_until(0, false, now),
            None,
            "nothing else has the time"
        );
        turns.remove(0);
        assert_eq!(turns.waits_until(0, true, now), None);
    }
}
