//! A row with the samples of all candidates.

use std::time::{Duration, Instant};

use super::row::Row;
use super::sample::{Contender, Reading, Sample, median};
use super::testbed::{RunError, Testbed};

/// What the runs of a row gave.
#[derive(Debug)]
pub struct Measured {
    /// The row.
    pub row: Row,
    /// Of each contender, in the order in which they are listed, what each of its runs gave.
    pub samples: Vec<(Contender, Vec<Sample>)>,
    /// Who gave no number in the end, and why.
    pub failures: Vec<Failed>,
}

/// A contender that dropped out.
#[derive(Debug)]
pub struct Failed {
    /// Who.
    pub contender: Contender,
    /// Why.
    pub reason: String,
    /// Whether nothing else was to be expected: it cannot do what the row asks for.
    pub expected: bool,
}

impl Measured {
    /// Runs a row: all candidates in turn, `repeat` times or until the row's time is over. A candidate that fails drops
    /// out, and the others go on.
    pub fn take(row: Row, testbed: &Testbed, repeat: usize) -> Self {
        let started = Instant::now();
        let mut measured = Self::nothing(row);
        for round in 0..repeat {
            // A round that would end behind the limit is not begun.
            if started.elapsed() + round_time(started, round) > measured.row.limit {
                break;
            }
            measured.round(testbed, round);
        }
        measured.row.work.clean(testbed);
        measured
    }

    fn nothing(row: Row) -> Self {
        let samples = row.contenders.iter();
        Self {
            samples: samples.map(|contender| (*contender, Vec::new())).collect(),
            failures: Vec::new(),
            row,
        }
    }

    fn round(&mut self, testbed: &Testbed, round: usize) {
        let count = self.samples.len();
        // The first candidate may find the machine in another state, so the order changes with each round.
        for position in 0..count {
            let (contender, samples) = &mut self.samples[(round + position) % count];
            if self
                .failures
                .iter()
                .any(|failed| failed.contender == *contender)
            {
                continue;
            }
            match self.row.work.run(testbed, *contender) {
                Ok(sample) => samples.push(sample),
                Err(error) => self.failures.push(Failed {
                    contender: *contender,
                    expected: matches!(error, RunError::Unable(_)),
                    reason: error.to_string(),
                }),
            }
        }
    }

    /// One reading of all runs of a contender.
    pub fn values(&self, contender: Contender, reading: Reading) -> Vec<f64> {
        let samples = self.samples.iter().find(|(known, _)| *known == contender);
        let samples = samples.into_iter().flat_map(|(_, samples)| samples);
        samples
            .filter_map(|sample| sample.reading(reading))
            .collect()
    }

    /// The median of a reading, if there was one.
    pub fn median(&self, contender: Contender, reading: Reading) -> Option<f64> {
        let values = self.values(contender, reading);
        (!values.is_empty()).then(|| median(&values))
    }

    /// The pump in the way that was the fastest here.
    pub fn pump(&self) -> Option<Contender> {
        let pumps = self.samples.iter().map(|(contender, _)| *contender);
        pumps
            .filter(|contender| contender.is_pump())
            .filter_map(|pump| Some((self.median(pump, Reading::Value)?, pump)))
            .max_by(|(one, _), (other, _)| one.total_cmp(other))
            .map(|(_, pump)| pump)
    }

    /// Whether all candidates that can run the row gave a number.
    pub fn is_complete(&self) -> bool {
        self.failures.iter().all(|failed| failed.expected)
    }

    /// How many runs our server made.
    pub fn runs(&self) -> usize {
        self.values(Contender::OURS, Reading::Value).len()
    }
}

/// How long a round takes, as far as that is known after some of them.
fn round_time(started: Instant, rounds: usize) -> Duration {
    let rounds = u32::try_from(rounds).unwrap_or(u32::MAX);
    started.elapsed().checked_div(rounds).unwrap_or_default()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::bench::row::{Group, Work};
    use crate::bench::sample::{Unit, Way};

    #[derive(Debug)]
    struct Nothing;

    impl Work for Nothing {
        fn run(&self, _: &Testbed, _: Contender) -> Result<Sample, RunError> {
            Err(RunError::Unable("nothing to do".to_owned()))
        }
    }

    /// A row of copies with one run of each of these, which had this value; the processor time of its
    /// sender was one over it.
    pub(in crate::bench) fn measured(values: &[(Contender, f64)]) -> Measured {
        let contenders: Vec<_> = values.iter().map(|(contender, _)| *contender).collect();
        let row = Row::new(Group::Memory, "name", "what", Unit::Gigabytes, Nothing)
            .contenders(&contenders);
        let mut measured = Measured::nothing(row);
        for ((_, samples), (_, value)) in measured.samples.iter_mut().zip(values) {
            samples.push(Sample::new(*value).with(Reading::Sender, 1.0 / value));
        }
        measured
    }

    #[test]
    fn the_fastest_way_is_the_pump() {
        let [one, other] = [Way::Splice, Way::LargeBuffers].map(Contender::Pump);
        let measured = measured(&[(Contender::OURS, 9.0), (one, 2.0), (other, 3.0)]);
        assert_eq!(measured.pump(), Some(other));
        assert_eq!(measured.median(one, Reading::Value), Some(2.0));
        assert_eq!(measured.median(one, Reading::Fairness), None);
    }
}
