//! What the project wants of a row, and whether a measurement has it.

use super::measured::Measured;
use super::sample::{Contender, Reading};

/// What is wanted of one reading of a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Target {
    /// Of what.
    pub reading: Reading,
    /// How much.
    pub bound: Bound,
}

/// A limit for our number: a least one where more is better, else a greatest one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Bound {
    /// So many times the real server's.
    OfTheirs(f64),
    /// So many times that of the pump in its fastest way.
    OfPump(f64),
    /// A number in the reading's unit.
    Number(f64),
}

/// What a measurement says to a target.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// What is wanted, in words.
    pub wanted: String,
    /// The result as text, or that there is no number to compare with.
    pub found: String,
    /// Whether it is enough; `None` when it cannot be said.
    pub met: Option<bool>,
}

impl Target {
    /// At least so many times the real server's value.
    pub const fn of_theirs(times: f64) -> Self {
        Self {
            reading: Reading::Value,
            bound: Bound::OfTheirs(times),
        }
    }

    /// At least this share of the pump's value.
    pub const fn of_pump(share: f64) -> Self {
        Self {
            reading: Reading::Value,
            bound: Bound::OfPump(share),
        }
    }

    /// The target for another reading.
    #[must_use]
    pub const fn of(self, reading: Reading) -> Self {
        Self { reading, ..self }
    }

    /// Compares the medians.
    pub fn verdict(&self, measured: &Measured) -> Verdict {
        let unit = self.reading.unit(measured.row.unit);
        let more = unit.more_is_better();
        let least = if more { "at least" } else { "at most" };
        let what = match self.reading {
            Reading::Value => String::new(),
            other => format!("{}: ", other.words()),
        };
        let ours = measured.median(Contender::OURS, self.reading);
        let (wanted, limit, found) = match self.bound {
            Bound::Number(limit) => (unit.show(limit), limit, ours),
            Bound::OfTheirs(times) => {
                let theirs = measured.median(Contender::THEIRS, self.reading);
                (format!("{times:.2} of theirs"), times, ratio(ours, theirs))
            }
            Bound::OfPump(times) => {
                let pump = measured
                    .pump()
                    .and_then(|pump| measured.median(pump, self.reading));
                (format!("{times:.2} of the pump"), times, ratio(ours, pump))
            }
        };
        let words = |found: f64| match self.bound {
            Bound::Number(_) => unit.show(found),
            _ => format!("{found:.2}"),
        };
        Verdict {
            wanted: format!("{what}{least} {wanted}"),
            found: found.map_or_else(|| "nothing to compare with".to_owned(), words),
            met: found.map(|found| if more { found >= limit } else { found <= limit }),
        }
    }
}

impl Verdict {
    /// `met`, `MISSED`, or that it is open.
    pub fn word(&self) -> &'static str {
        match self.met {
            Some(true) => "met",
            Some(false) => "MISSED",
            None => "open",
        }
    }
}

fn ratio(ours: Option<f64>, other: Option<f64>) -> Option<f64> {
    Some(ours? / other?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::measured::tests::measured;
    use crate::bench::sample::Way;

    const PUMP: Contender = Contender::Pump(Way::Splice);

    #[test]
    fn more_is_compared_with_theirs_and_with_the_pump() {
        let measured = measured(&[
            (Contender::OURS, 2.0),
            (Contender::THEIRS, 1.6),
            (PUMP, 2.0),
        ]);
        let verdict = Target::of_theirs(1.3).verdict(&measured);
        assert_eq!(verdict.word(), "MISSED");
        assert_eq!(verdict.found, "1.25");
        assert_eq!(Target::of_pump(0.95).verdict(&measured).word(), "met");
    }

    #[test]
    fn less_processor_time_is_better() {
        // Their sending server needs 1 s/GB, and ours 0.5.
        let measured = measured(&[(Contender::OURS, 2.0), (Contender::THEIRS, 1.0)]);
        let target = Target::of_theirs(0.8).of(Reading::Sender);
        let verdict = target.verdict(&measured);
        assert_eq!(verdict.word(), "met");
        assert!(verdict.wanted.ends_with("at most 0.80 of theirs"));
    }

    #[test]
    fn nothing_to_compare_with_is_no_success() {
        let measured = measured(&[(Contender::OURS, 2.0)]);
        assert_eq!(Target::of_theirs(1.0).verdict(&measured).word(), "open");
    }
}
