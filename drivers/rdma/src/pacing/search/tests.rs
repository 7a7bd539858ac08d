//! A search that has found a rate probes a slightly higher one from time to time.

use super::*;

const MESSAGE: u64 = 32 << 10;
const SECOND: Duration = Duration::from_secs(1);
const MILLISECOND: Duration = Duration::from_millis(1);

/// The rate that was found, in bytes per second.
const FOUND: u64 = 1_000_000;

/// A search that has just found a rate on a long path, and the time.
struct Found {
    search: Search,
    now: Duration,
}

impl Found {
    fn new() -> Self {
        let mut search = Search::new(Some(1_250_000_000), MESSAGE);
        search.sizing.passed();
        search.rates.set(FOUND as f64);
        search.rates.passed();
        search.phase = Phase::Resting;
        Self {
            search,
            now: SECOND,
        }
    }

    /// Sends at the present rate, and all messages arrive, until the phase is another one. Returns it, and the time that it took.
    fn until_the_next_phase(&mut self) -> (Phase, Duration) {
        let (phase, began) = (self.search.phase, self.now);
        while self.search.phase == phase {
            self.search.posted(MESSAGE, self.now);
            let arrives = self.now + MILLISECOND;
            self.search.completed(MESSAGE, self.now, arrives);
            self.now += Duration::from_secs(MESSAGE) / u32::try_from(self.search.rate()).unwrap();
        }
        (self.search.phase, self.now - began)
    }

    /// A message that is sent now is lost.
    fn lose(&mut self) {
        self.search.posted(MESSAGE, self.now);
        self.search.lost(self.now);
        self.search.gone(MESSAGE);
        self.now += SECOND;
    }
}

/// The times between probes become longer, and no longer than ten minutes.
#[test]
fn after_a_probe_that_fails_the_next_one_is_later() {
    let mut found = Found::new();
    for seconds in [30, 60, 120, 240, 480, 600, 600] {
        let (phase, took) = found.until_the_next_phase();
        assert_eq!(phase, Phase::Probing);
        assert_eq!(found.search.rate(), FOUND / 100 * 102);
        let late = took.checked_sub(seconds * SECOND);
        assert!(late.is_some_and(|late| late < SECOND), "{took:?}");
        found.lose();
        assert_eq!(found.search.phase, Phase::Resting);
        assert_eq!(found.search.rate(), FOUND);
    }
}

#[test]
fn after_a_probe_that_passes_the_rate_climbs() {
    let mut found = Found::new();
    assert_eq!(found.until_the_next_phase().0, Phase::Probing);
    let (phase, took) = found.until_the_next_phase();
    assert_eq!(phase, Phase::Climbing);
    assert!(took >= TRIAL_TIME && took < SECOND, "{took:?}");
    assert_eq!(found.search.rate(), FOUND / 100 * 102);
}
