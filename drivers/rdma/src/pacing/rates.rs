//! The rates of a search: the present one, the highest that passed, the lowest that failed, and
//! past ones.
//!
//! [`super::search`] decides which rate is tried next, and how to react to a loss.

use std::collections::VecDeque;
use std::time::Duration;

/// The rates of a path in bytes per second. Times are counted from one moment, as everywhere in
/// pacing.
#[derive(Debug)]
pub(super) struct Rates {
    /// The rate at which messages are sent.
    rate: f64,
    /// The highest rate that passed for some time, and the lowest that failed.
    low: f64,
    high: f64,
    port: f64,
    /// The failing rate was found in a climb, and no lower one has failed since.
    is_doubtful: bool,
    /// Past rates and when they began, for messages that may still be in flight.
    past: VecDeque<(Duration, f64)>,
}

/// The least rate in bytes per second at which a climb begins, unless the port is slower: from a
/// lower one, long messages take seconds to climb.
const FIRST_RATE: f64 = 12_500_000.0;
/// The share of the port's rate at which a climb begins.
const FIRST_SHARE: f64 = 1.0 / 64.0;
/// The lowest rate.
const LEAST_RATE: f64 = 125_000.0;

/// The factor of a climb's step.
const STEP: f64 = 1.19;

/// How narrow the interval becomes, and how narrow where a loss is expensive.
const NARROW: f64 = 1.025;
const NARROWER: f64 = 1.012;

/// The factor by which a higher rate is probed after a rest.
const PROBE: f64 = 1.02;

/// How many past rates are remembered; each lasts for a step or longer.
const MOST_PAST: usize = 256;

impl Rates {
    /// `port` is the rate of the port, if it is known.
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

    /// The rate at which messages are sent.
    pub(super) fn rate(&self) -> f64 {
        self.rate
    }

    /// How many bytes are sent in this time.
    pub(super) fn bytes_in(&self, time: Duration) -> u64 {
        whole_bytes(self.rate * time.as_secs_f64())
    }

    /// Whether the rate is below that of the port.
    pub(super) fn is_below_port(&self) -> bool {
        self.rate < self.port
    }

    /// Sets the rate.
    pub(super) fn set(&mut self, rate: f64) {
        self.rate = rate.max(LEAST_RATE);
    }

    /// The first message is sent at this rate.
    pub(super) fn begin(&mut self, now: Duration) {
        if self.past.len() >= MOST_PAST {
            self.past.pop_front();
        }
        self.past.push_back((now, self.rate));
    }

    /// The rate has passed.
    pub(super) fn passed(&mut self) {
        self.low = self.rate;
    }

    /// The rate has failed.
    pub(super) fn failed(&mut self) {
        self.high = self.rate;
        self.is_doubtful = false;
    }

    /// A message of a climb, sent at `posted_at`, was lost: its rate failed, and those of earlier
    /// steps passed.
    pub(super) fn climbed_too_far(&mut self, posted_at: Duration) {
        self.high = self.at(posted_at);
        self.low = self.low.max(self.high / (STEP * STEP)).min(self.high);
        self.is_doubtful = true;
    }

    /// Only this much is known to pass, in bytes per second.
    pub(super) fn passes_only(&mut self, rate: f64) {
        self.low = self.low.min(rate).max(LEAST_RATE);
    }

    /// The least burst of a policer that has passed so many bytes at the port's rate: its bucket gained
    /// tokens meanwhile, at less than the failing rate.
    pub(super) fn least_burst(&self, bytes: u64) -> u64 {
        let gained = (self.high / self.port).min(1.0);
        whole_bytes(bytes as f64 * (1.0 - gained))
    }

    /// Whether the failing rate was found in a climb only and all lower rates passed: that loss may have
    /// been random.
    pub(super) fn is_doubtful(&self) -> bool {
        self.is_doubtful
    }

    /// Lowers the passing rate by a step: it passed only on the policer's burst, or the path has
    /// changed.
    pub(super) fn distrust(&mut self) {
        self.low = (self.low / STEP).max(LEAST_RATE);
    }

    /// Lowers the passing rate by this many bytes per second.
    pub(super) fn lower(&mut self, by: f64) {
        self.low = (self.low - by).max(LEAST_RATE);
    }

    /// Lowers the passing rate by a share of it.
    pub(super) fn ease(&mut self, share: f64) {
        self.high = self.low;
        self.low = (self.low * (1.0 - share)).max(LEAST_RATE);
    }

    /// Restores the passing rate from before a reduction.
    pub(super) fn restore(&mut self, rate: f64) {
        self.low = rate;
    }

    /// Whether the interval between the passing and the failing rate is narrow enough.
    pub(super) fn is_narrow(&self, tries_cost_little: bool) -> bool {
        let most = if tries_cost_little { NARROWER } else { NARROW };
        self.high / self.low <= most
    }

    /// The passing rate.
    pub(super) fn low(&self) -> f64 {
        self.low
    }

    /// The middle between the passing and the failing rate.
    pub(super) fn middle(&self) -> f64 {
        (self.low * self.high).sqrt()
    }

    /// The next step of a climb.
    pub(super) fn step(&self) -> f64 {
        (self.rate * STEP).min(self.port)
    }

    /// A rate slightly above the passing one.
    pub(super) fn probe(&self) -> f64 {
        (self.low * PROBE).min(self.port)
    }

    /// The rate at which a climb begins.
    pub(super) fn first(&self) -> f64 {
        self.low.max(first_rate(self.port))
    }

    /// The rate at which a message was sent.
    fn at(&self, posted_at: Duration) -> f64 {
        let mut past = self.past.iter().rev();
        let since = past.find(|(since, _)| *since <= posted_at);
        since.map_or(self.rate, |(_, rate)| *rate)
    }
}

#[expect(clippy::cast_possible_truncation, reason = "`as` saturates")]
#[expect(clippy::cast_sign_loss, reason = "rates and times are not negative")]
fn whole_bytes(bytes: f64) -> u64 {
    bytes as u64
}

/// The rate at which a climb begins, in bytes per second.
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
    fn a_loss_in_a_climb_identifies_the_failing_step() {
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
        /// The search finds the rate of any policer, from below.
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
