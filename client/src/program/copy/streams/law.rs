//! How many connections a file gets, decided by measured rates. No clock, no thread.
//!
//! More connections bring more until the path or an end is saturated: the knee. The law doubles their number as long as that brings
//! enough, then keeps the smallest number that is near the best rate. From time to time it measures one more step, less and less often
//! as long as that changes nothing.

/// The numbers that are tried.
const STEPS: [u8; 7] = [1, 2, 4, 8, 16, 32, 64];

/// Twice as many connections must bring this factor to be worth them.
const WORTH: f64 = 1.1;

/// A number whose rate is this part of the best one is near enough.
const NEAR: f64 = 0.92;

/// A rate below this part of what the number had before means that the path has changed.
const CHANGED: f64 = 0.6;

/// The weight of a new measurement in the rate of its number.
const WEIGHT: f64 = 0.5;

/// The measurements between two trials of more, at first and at most.
const PAUSE: (u32, u32) = (8, 128);

/// What the next measurement is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Twice as many are tried, as long as they are worth it. `again`: the last measurement was not, and is repeated.
    Climb { again: bool },
    /// The number is kept for so many measurements.
    Keep { left: u32 },
    /// One step more is tried.
    Probe,
}

/// The decisions about one path.
#[derive(Debug)]
pub(super) struct Law {
    phase: Phase,
    /// The index in [`STEPS`].
    step: usize,
    /// What is kept, as long as more is tried.
    kept: usize,
    /// Bytes per second.
    rates: [Option<f64>; STEPS.len()],
    pause: u32,
}

impl Law {
    pub(super) fn new() -> Self {
        Self {
            phase: Phase::Climb { again: false },
            step: 0,
            kept: 0,
            rates: [None; STEPS.len()],
            pause: PAUSE.0,
        }
    }

    /// The number of connections now.
    pub(super) fn streams(&self) -> u8 {
        STEPS[self.step]
    }

    /// Takes the rate, in bytes per second, that [`Self::streams`] have had.
    pub(super) fn measured(&mut self, rate: f64) {
        let before = self.rates[self.step];
        if self.phase != Phase::Probe && before.is_some_and(|before| rate < before * CHANGED) {
            return self.begin_again(rate);
        }
        let blended = before.map_or(rate, |before| before + (rate - before) * WEIGHT);
        self.rates[self.step] = Some(blended);
        match self.phase {
            Phase::Climb { again } => self.climb(again),
            Phase::Keep { left: 0 } => self.probe(),
            Phase::Keep { left } => self.phase = Phase::Keep { left: left - 1 },
            Phase::Probe => self.keep(),
        }
    }

    fn climb(&mut self, again: bool) {
        let rate = |step: usize| self.rates[step].unwrap_or(0.0);
        let is_worth = self.step == 0 || rate(self.step) >= rate(self.step - 1) * WORTH;
        match (is_worth, again) {
            (true, _) if self.step + 1 < STEPS.len() => {
                self.step += 1;
                self.phase = Phase::Climb { again: false };
            }
            // One bad measurement does not decide.
            (false, false) => self.phase = Phase::Climb { again: true },
            _ => self.keep(),
        }
    }

    fn probe(&mut self) {
        if self.step + 1 < STEPS.len() {
            self.step += 1;
            self.phase = Phase::Probe;
        } else {
            self.phase = Phase::Keep { left: self.pause };
        }
    }

    /// Keeps the smallest number that is near the best one.
    fn keep(&mut self) {
        let known = self.rates.iter().flatten();
        let best = known.fold(0.0_f64, |best, rate| best.max(*rate));
        let near = |rate: &Option<f64>| rate.is_some_and(|rate| rate >= best * NEAR);
        let found = self.rates.iter().position(near).unwrap_or(self.step);
        self.pause = match found == self.kept {
            true => (self.pause * 2).min(PAUSE.1),
            false => PAUSE.0,
        };
        (self.step, self.kept) = (found, found);
        self.phase = Phase::Keep { left: self.pause };
    }

    /// Nothing that was measured holds any more, except this.
    fn begin_again(&mut self, rate: f64) {
        self.rates = [None; STEPS.len()];
        self.rates[self.step] = Some(rate);
        // From one step lower, where fewer may do now.
        self.step = self.step.saturating_sub(1);
        self.pause = PAUSE.0;
        self.phase = Phase::Climb { again: false };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A path: each connection has at most `each`, all of them at most `all`, and less as more of them compete.
    #[derive(Debug, Clone, Copy)]
    struct Path {
        each: f64,
        all: f64,
        loss: f64,
    }

    impl Path {
        fn rate(self, streams: u8) -> f64 {
            let streams = f64::from(streams);
            let wanted = streams * self.each;
            let surplus = (streams - self.all / self.each).max(0.0);
            wanted.min(self.all) / (1.0 + self.loss * surplus)
        }

        fn best(self) -> f64 {
            let rates = STEPS.iter().map(|streams| self.rate(*streams));
            rates.fold(0.0, f64::max)
        }

        /// The first step that is at the knee.
        fn knee(self) -> u8 {
            let at = |step: &&u8| f64::from(**step) * self.each >= self.all * 0.999;
            STEPS.iter().find(at).copied().unwrap_or(64)
        }
    }

    /// Measures `count` times with noise; the number that is kept then.
    fn run(law: &mut Law, path: Path, noise: f64, seeds: &mut u64, count: usize) -> u8 {
        for _ in 0..count {
            // Numerical Recipes' linear congruential generator: the same for the same seed.
            *seeds = seeds.wrapping_mul(1_664_525).wrapping_add(1_013_904_223) % (1 << 32);
            let part = f64::from(u32::try_from(*seeds).expect("less than 2^32")) / 4_294_967_296.0;
            law.measured(path.rate(law.streams()) * (1.0 + noise * (2.0 * part - 1.0)));
        }
        STEPS[law.kept]
    }

    #[test]
    fn the_knee_is_found_exactly_without_noise() {
        for (all, expected) in [(1.0, 1), (2.0, 2), (4.0, 4), (8.0, 8), (100.0, 64)] {
            let path = Path {
                each: 1.0,
                all,
                loss: 0.0,
            };
            assert_eq!(
                run(&mut Law::new(), path, 0.0, &mut 1, 20),
                expected,
                "{all}"
            );
        }
    }

    #[test]
    fn the_number_follows_a_path_that_changes() {
        let wide = Path {
            each: 1.0,
            all: 16.0,
            loss: 0.0,
        };
        let narrow = Path { all: 2.0, ..wide };
        let mut law = Law::new();
        assert_eq!(run(&mut law, wide, 0.0, &mut 1, 20), 16);
        let found = run(&mut law, narrow, 0.0, &mut 1, 400);
        assert!(found <= 8, "{found}");
        assert_eq!(run(&mut law, wide, 0.0, &mut 1, 1000), 16);
    }

    #[test]
    fn trials_become_rare() {
        let path = Path {
            each: 1.0,
            all: 4.0,
            loss: 0.0,
        };
        let mut law = Law::new();
        run(&mut law, path, 0.0, &mut 1, 300);
        let mut other = 0;
        for _ in 0..1000 {
            other += usize::from(law.streams() != 4);
            law.measured(path.rate(law.streams()));
        }
        assert!(other <= 10, "{other}");
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

        /// On any path, with noise, the number is near the best rate and not above the knee.
        #[test]
        fn the_number_is_at_the_knee(
            knee in 1.0_f64..64.0,
            each in 1e5_f64..1e9,
            loss in 0.0_f64..0.01,
            noise in 0.0_f64..0.03,
            mut seeds in 0_u64..1 << 32,
        ) {
            let path = Path { each, all: each * knee, loss };
            let kept = run(&mut Law::new(), path, noise, &mut seeds, 100);
            prop_assert!(kept <= path.knee(), "{kept} at {path:?}");
            prop_assert!(path.rate(kept) >= path.best() * 0.82, "{kept} at {path:?}");
        }
    }
}
