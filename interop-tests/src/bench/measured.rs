//! A row with the samples of all contenders.

use std::time::{Duration, Instant};

use super::row::Row;
use super::sample::{Contender, Reading, Sample, median};
use super::testbed::{RunError, Testbed};

/// The results of a row.
#[derive(Debug)]
pub struct Measured {
    /// The row.
    pub row: Row,
    /// The samples of each contender, in the order of the row.
    pub samples: Vec<(Contender, Vec<Sample>)>,
    /// The contenders that dropped out.
    pub failures: Vec<Failed>,
}

/// A contender that dropped out.
#[derive(Debug)]
pub struct Failed {
    /// The contender.
    pub contender: Contender,
    /// The reason.
    pub reason: String,
    /// Whether that was expected, because it lacks a feature that the row needs.
    pub expected: bool,
}

impl Measured {
    /// Runs a row: all contenders alternately, `repeat` times or until the row's time limit. A contender that fails drops
    /// out.
    pub fn take(row: Row, testbed: &Testbed, repeat: usize) -> Self {
        let started = Instant::now();
        let mut measured = Self::empty(row);
        for round in 0..repeat {
            // A round that would end after the limit is not started.
            if started.elapsed() + round_time(started, round) > measured.row.limit {
                break;
            }
            measured.round(testbed, round);
        }
        measured.row.work.clean(testbed);
        measured
    }

    fn empty(row: Row) -> Self {
        let samples = row.contenders.iter();
        Self {
            samples: samples.map(|contender| (*contender, Vec::new())).collect(),
            failures: Vec::new(),
            row,
        }
    }

    fn round(&mut self, testbed: &Testbed, round: usize) {
        let count = self.samples.len();
        // The first contender may find the machine in another state, so the order rotates with each round.
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

    /// A reading of all runs of a contender.
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

    /// The fastest variant of the pump in this row.
    pub fn pump(&self) -> Option<Contender> {
        let pumps = self.samples.iter().map(|(contender, _)| *contender);
        pumps
            .filter(|contender| contender.is_pump())
            .filter_map(|pump| Some((self.median(pump, Reading::Value)?, pump)))
            .max_by(|(one, _), (other, _)| one.total_cmp(other))
            .map(|(_, pump)| pump)
    }

    /// Whether all contenders that can run the row have a result.
    pub fn is_complete(&self) -> bool {
        self.failures.iter().all(|failed| failed.expected)
    }

    /// The number of runs of our server.
    pub fn runs(&self) -> usize {
        self.values(Contender::OURS, Reading::Value).len()
    }
}

/// The mean duration of the rounds until now.
fn round_time(started: Instant, rounds: usize) -> Duration {
    let rounds = u32::try_from(rounds).unwrap_or(u32::MAX);
    started.elapsed().checked_div(rounds).unwrap_or_default()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::bench::row::{Group, Work};
    use crate::bench::sample::{Unit, Variant};

    #[derive(Debug)]
    struct Nothing;

    impl Work for Nothing {
        fn run(&self, _: &Testbed, _: Contender) -> Result<Sample, RunError> {
            Err(RunError::Unable("no work".to_owned()))
        }
    }

    /// A row with one run of each contender with this value; the processor time of its sender is the
    /// reciprocal.
    pub(in crate::bench) fn measured(values: &[(Contender, f64)]) -> Measured {
        let contenders: Vec<_> = values.iter().map(|(contender, _)| *contender).collect();
        let row = Row::new(
            Group::Memory,
            "name",
            "description",
            Unit::Gigabytes,
            Nothing,
        )
        .contenders(&contenders);
        let mut measured = Measured::empty(row);
        for ((_, samples), (_, value)) in measured.samples.iter_mut().zip(values) {
            samples.push(Sample::new(*value).with(Reading::Sender, 1.0 / value));
        }
        measured
    }

    #[test]
    fn the_fastest_variant_is_the_pump() {
        let [one, other] = [Variant::Splice, Variant::LargeBuffers].map(Contender::Pump);
        let measured = measured(&[(Contender::OURS, 9.0), (one, 2.0), (other, 3.0)]);
        assert_eq!(measured.pump(), Some(other));
        assert_eq!(measured.median(one, Reading::Value), Some(2.0));
        assert_eq!(measured.median(one, Reading::Fairness), None);
    }
}
