//! The shortest time that a message took, on a path that may become longer.
//!
//! A path is kept from transfer to transfer, and its packets may take another route meanwhile. A minimum of all times would stay
//! that of the old route. Times are also long because messages wait for each other or for a busy host, but hardly all of them for
//! seconds, so the minimum grows only if all messages of a window say so (BBR's minimum of the round trip also lives for ten
//! seconds: draft-ietf-ccwg-bbr, 4.3).

use std::time::Duration;

/// How long all messages must take longer.
pub(super) const WINDOW: Duration = Duration::from_secs(10);

/// The minimum. Times are counted from one moment, as everywhere in pacing.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Shortest {
    known: Option<Known>,
}

#[derive(Debug, Clone, Copy)]
struct Known {
    shortest: Duration,
    /// The window began with the last message that did not say that the path has become longer.
    began: Duration,
    of_window: Option<Duration>,
    seen: Duration,
}

impl Shortest {
    /// The shortest time, if a message has arrived.
    pub(super) fn get(&self) -> Option<Duration> {
        self.known.map(|known| known.shortest)
    }

    /// A message took that long. Messages on a path of this length take up to `margin` longer where they wait for each other.
    pub(super) fn took(&mut self, took: Duration, margin: Duration, now: Duration) {
        let anew = Known {
            shortest: took,
            began: now,
            of_window: None,
            seen: now,
        };
        let Some(known) = &mut self.known else {
            self.known = Some(anew);
            return;
        };
        if took < known.shortest {
            *known = anew;
            return;
        }
        let is_after_pause = now > known.seen + WINDOW;
        known.seen = now;
        if took <= known.shortest + margin {
            known.began = now;
            known.of_window = None;
            return;
        }
        if is_after_pause {
            // The route may be another one, but the first message after a pause is often late: two must agree.
            known.began = now.saturating_sub(WINDOW);
            known.of_window = Some(took);
            return;
        }
        let of_window = known.of_window.map_or(took, |least| least.min(took));
        known.of_window = Some(of_window);
        if now >= known.began + WINDOW {
            known.shortest = of_window;
            known.began = now;
            known.of_window = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: Duration = Duration::from_millis(1);
    const MARGIN: Duration = Duration::from_millis(5);

    /// A message each millisecond takes `took` milliseconds.
    fn send(shortest: &mut Shortest, took: u32, milliseconds: std::ops::Range<u32>) {
        for at in milliseconds {
            shortest.took(took * MILLISECOND, MARGIN, at * MILLISECOND);
        }
    }

    #[test]
    fn the_shortest_time_counts() {
        let mut shortest = Shortest::default();
        assert_eq!(shortest.get(), None);
        send(&mut shortest, 20, 0..10);
        send(&mut shortest, 3, 10..20);
        send(&mut shortest, 20, 20..9000);
        assert_eq!(shortest.get(), Some(3 * MILLISECOND));
    }

    #[test]
    fn a_path_becomes_longer_when_all_messages_of_a_window_say_so() {
        let mut shortest = Shortest::default();
        send(&mut shortest, 1, 0..1);
        send(&mut shortest, 60, 1..5000);
        send(&mut shortest, 50, 5000..9999);
        assert_eq!(shortest.get(), Some(MILLISECOND));
        send(&mut shortest, 60, 9999..10_001);
        assert_eq!(shortest.get(), Some(50 * MILLISECOND));
        send(&mut shortest, 2, 10_001..10_002);
        assert_eq!(shortest.get(), Some(2 * MILLISECOND), "at once");
    }

    #[test]
    fn messages_that_wait_for_each_other_do_not_make_it_longer() {
        let mut shortest = Shortest::default();
        send(&mut shortest, 1, 0..1);
        send(&mut shortest, 6, 1..50_000);
        assert_eq!(shortest.get(), Some(MILLISECOND));
        // One message of a window is enough.
        send(&mut shortest, 60, 50_000..59_000);
        send(&mut shortest, 6, 59_000..59_001);
        send(&mut shortest, 60, 59_001..68_000);
        assert_eq!(shortest.get(), Some(MILLISECOND));
    }

    #[test]
    fn after_a_pause_the_path_is_measured_again() {
        let mut shortest = Shortest::default();
        send(&mut shortest, 1, 0..1);
        send(&mut shortest, 60, 20_000..20_001);
        assert_eq!(shortest.get(), Some(MILLISECOND), "it may be late");
        send(&mut shortest, 5, 20_001..20_002);
        send(&mut shortest, 60, 40_000..40_002);
        assert_eq!(shortest.get(), Some(60 * MILLISECOND));
    }
}
