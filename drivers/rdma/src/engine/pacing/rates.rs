//! Rates: the one of what leaves, one that passes, one that does not, and which ones there were.
//!
//! Which of them is tried next, and what a loss says of it, is not decided here.

use std::collections::VecDeque;
use std::time::Duration;

/// The rates of a path, in bytes per second. Time is that since some moment, as everywhere in pacing.
#[derive(Debug)]
pub(super) struct Rates {
    /// At which messages leave.
    rate: f64,
    /// What has passed for some time, and what has not.
    low: f64,
    high: f64,
    port: f64,
    /// What does not pass did so in a climb, and nothing below it failed since.
    is_doubtful: bool,
    /// Rates and since when, of what may still be under way.
    past: VecDeque<(Duration, f64)>,
}

/// Where the climb begins at least, in bytes per second, unless the port is slower: from less than that, long messages take
/// seconds to climb.
const FIRST_RATE: f64 = 12_500_000.0;
/// The share of the port's rate where it begins.
const FIRST_SHARE: f64 = 1.0 / 64.0;
/// Nothing is slower than that.
const LEAST_RATE: f64 = 125_000.0;

/// A step of the climb.
const STEP: f64 = 1.19;

/// How narrow the interval becomes, and where it costs little to try a rate that is too much.
const NARROW: f64 = 1.025;
const NARROWER: f64 = 1.012;

/// How much more is tried after a rest.
const PROBE: f64 = 1.02;

/// Rates that are remembered; each lasts for a step or longer.
const MOST_PAST: usize = 256;

impl Rates {
    /// `port` is the rate of the port, where that is known.
    pub(super) fn new(port: Option<u64>) -> Self {
        let port = port.map_or(f64::INFINITY, |port| port as f64);
        Self {
            rate: first_rate(port),
            low: LEAST_RATE,
            high: f64::INFINITY,
            port,
            is_doubtful: false,
            past: VecDeque::new(),
        }
    }

    /// At which messages leave.
    pub(super) fn rate(&self) -> f64 {
        self.rate
    }

    /// How many bytes leave in some time.
    pub(super) fn bytes_in(&self, time: Duration) -> u64 {
        whole_bytes(self.rate * time.as_secs_f64())
    }

    /// The port is quicker.
    pub(super) fn is_below_port(&self) -> bool {
        self.rate < self.port
    }

    /// Messages are to leave at this rate.
    pub(super) fn set(&mut self, rate: f64) {
        self.rate = rate.max(LEAST_RATE);
    }

    /// The first message leaves at the rate.
    pub(super) fn begin(&mut self, now: Duration) {
        if self.past.len() >= MOST_PAST {
            self.past.pop_front();
        }
        self.past.push_back((now, self.rate));
    }

    /// The rate passes.
    pub(super) fn passed(&mut self) {
        self.low = self.rate;
    }

    /// The rate does not pass.
    pub(super) fn failed(&mut self) {
        self.high = self.rate;
        self.is_doubtful = false;
    }

    /// What left at `posted_at`, in a climb, does not pass. What left in the steps before that did.
    pub(super) fn climbed_too_far(&mut self, posted_at: Duration) {
        self.high = self.at(posted_at);
        self.low = self.low.max(self.high / (STEP * STEP)).min(self.high);
        self.is_doubtful = true;
    }

    /// Only a climb has shown what does not pass, and all below it does: perhaps that was chance.
    pub(super) fn is_doubtful(&self) -> bool {
        self.is_doubtful
    }

    /// What passed before did so on the policer's burst, or is no longer true.
    pub(super) fn distrust(&mut self) {
        self.low = (self.low / STEP).max(LEAST_RATE);
    }

    /// What passes may be too much by so many bytes per second.
    pub(super) fn lower(&mut self, by: f64) {
        self.low = (self.low - by).max(LEAST_RATE);
    }

    /// What passes turned out to be too much by some share of it.
    pub(super) fn ease(&mut self, share: f64) {
        self.high = self.low;
        self.low = (self.low * (1.0 - share)).max(LEAST_RATE);
    }

    /// This rate passes after all.
    pub(super) fn restore(&mut self, rate: f64) {
        self.low = rate;
    }

    /// Between what passes and what does not is little.
    pub(super) fn is_narrow(&self, tries_cost_little: bool) -> bool {
        let most = if tries_cost_little { NARROWER } else { NARROW };
        self.high / self.low <= most
    }

    /// What passes.
    pub(super) fn low(&self) -> f64 {
        self.low
    }

    /// The middle between what passes and what does not.
    pub(super) fn middle(&self) -> f64 {
        (self.low * self.high).sqrt()
    }

    /// The next step of a climb.
    pub(super) fn step(&self) -> f64 {
        (self.rate * STEP).min(self.port)
    }

    /// A little more than what passes.
    pub(super) fn probe(&self) -> f64 {
        (self.low * PROBE).min(self.port)
    }

    /// Where a climb begins.
    pub(super) fn first(&self) -> f64 {
        self.low.max(first_rate(self.port))
    }

    /// The rate at which a message left.
    fn at(&self, posted_at: Duration) -> f64 {
        let mut past = self.past.iter().rev();
        let since = past.find(|(since, _)| *since <= posted_at);
        since.map_or(self.rate, |(_, rate)| *rate)
    }
}

#[expect(clippy::cast_possible_truncation, reason = "`as` saturates")]
#[expect(clippy::cast_sign_loss, reason = "nothing is negative here")]
fn whole_bytes(bytes: f64) -> u64 {
    bytes as u64
}

/// Where the climb begins, in bytes per second.
fn first_rate(port: f64) -> f64 {
    let share = if port.is_finite() {
        port * FIRST_SHARE
    } else {
        0.0
    };
    share.max(FIRST_RATE).min(port)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_loss_in_a_climb_tells_which_step_was_too_much() {
        let mut rates = Rates::new(None);
        let at = |step: u32| Duration::from_millis(20) * step;
        for step in 0..10 {
            rates.begin(at(step));
            rates.set(rates.step());
        }
        rates.climbed_too_far(at(6) + Duration::from_millis(1));
        assert_eq!(rates.high, FIRST_RATE * STEP.powi(6));
        assert!(rates.low() < FIRST_RATE * STEP.powi(5) && rates.low() > FIRST_RATE * STEP.powi(3));
    }

    #[test]
    fn nothing_is_faster_than_the_port() {
        let mut rates = Rates::new(Some(1_000_000));
        while rates.is_below_port() {
            rates.set(rates.step());
        }
        rates.passed();
        assert_eq!(rates.bytes_in(Duration::from_secs(1)), 1_000_000);
        assert_eq!(rates.probe(), 1e6);
    }

    proptest! {
        /// A policer of any rate is found, from below.
        #[test]
        fn the_middle_of_the_interval_becomes_the_rate(policed in 1e6_f64..1e12) {
            let mut rates = Rates::new(None);
            let mut steps = 0..200_u32;
            while rates.rate() <= policed && steps.next().is_some() {
                rates.begin(Duration::from_secs(1));
                rates.set(rates.step());
            }
            rates.failed();
            while !rates.is_narrow(false) && steps.next().is_some() {
                rates.set(rates.middle());
                if rates.rate() <= policed {
                    rates.passed();
                } else {
                    rates.failed();
                }
            }
            prop_assert!(rates.low() <= policed && rates.low() * NARROW >= policed);
        }
    }
}
