//! Compares a measurement with a target.

use super::measured::Measured;
use super::sample::{Contender, Reading};
use super::target::{Bound, Target};

/// The result of a comparison.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// The target as text.
    pub wanted: String,
    /// The result as text.
    pub found: String,
    /// Whether the target is met; `None` without a result.
    pub met: Option<bool>,
}

impl Verdict {
    /// Compares the medians.
    pub fn of(target: &Target, measured: &Measured) -> Self {
        let unit = target.reading.unit(measured.row.unit);
        let more = unit.more_is_better();
        let least = if more { "at least" } else { "at most" };
        let prefix = match target.reading {
            Reading::Value => String::new(),
            other => format!("{}: ", other.label()),
        };
        let ours = measured.median(Contender::OURS, target.reading);
        let (wanted, limit, found) = match target.bound {
            Bound::Number(limit) => (unit.show(limit), limit, ours),
            Bound::OfTheirs(times) => {
                let theirs = measured.median(Contender::THEIRS, target.reading);
                (format!("{times:.2} of theirs"), times, ratio(ours, theirs))
            }
            Bound::OfPump(times) => {
                let pump = measured
                    .pump()
                    .and_then(|pump| measured.median(pump, target.reading));
                (format!("{times:.2} of the pump"), times, ratio(ours, pump))
            }
        };
        let words = |found: f64| match target.bound {
            Bound::Number(_) => unit.show(found),
            _ => format!("{found:.2}"),
        };
        Self {
            wanted: format!("{prefix}{least} {wanted}"),
            found: found.map_or_else(|| "no result".to_owned(), words),
            met: found.map(|found| if more { found >= limit } else { found <= limit }),
        }
    }

    /// `met`, `MISSED`, or `open`.
    pub fn label(&self) -> &'static str {
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
    use crate::bench::sample::Variant;

    const PUMP: Contender = Contender::Pump(Variant::Splice);

    #[test]
    fn more_is_compared_with_theirs_and_with_the_pump() {
        let measured = measured(&[
            (Contender::OURS, 2.0),
            (Contender::THEIRS, 1.6),
            (PUMP, 2.0),
        ]);
        let verdict = Verdict::of(&Target::of_theirs(1.3), &measured);
        assert_eq!(verdict.label(), "MISSED");
        assert_eq!(verdict.found, "1.25");
        assert_eq!(
            Verdict::of(&Target::of_pump(0.95), &measured).label(),
            "met"
        );
    }

    #[test]
    fn less_processor_time_is_better() {
        // Their sending server needs 1 s/GB, and ours 0.5.
        let measured = measured(&[(Contender::OURS, 2.0), (Contender::THEIRS, 1.0)]);
        let target = Target::of_theirs(0.8).of(Reading::Sender);
        let verdict = Verdict::of(&target, &measured);
        assert_eq!(verdict.label(), "met");
        assert!(verdict.wanted.ends_with("at most 0.80 of theirs"));
    }

    #[test]
    fn a_missing_result_is_no_success() {
        let measured = measured(&[(Contender::OURS, 2.0)]);
        assert_eq!(
            Verdict::of(&Target::of_theirs(1.0), &measured).label(),
            "open"
        );
    }
}
