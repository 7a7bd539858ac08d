//! Alternating runs of candidates, and their medians and quartiles.

use std::time::{Duration, Instant};

use super::site::Run;
use crate::bench::sample;

/// No further round is started after this time, so that all sections take less than six minutes.
const LIMIT: Duration = Duration::from_secs(70);

/// The runs of one candidate.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    runs: Vec<Run>,
    failure: Option<String>,
}

impl Rounds {
    /// Runs all candidates alternately, so that other load of the machine affects all of them. One that fails is not run again.
    pub(super) fn take<T>(
        rounds: usize,
        candidates: &[T],
        mut run: impl FnMut(&T) -> Result<Run, String>,
    ) -> Vec<Self> {
        let mut all: Vec<Self> = candidates.iter().map(|_| Self::default()).collect();
        let started = Instant::now();
        for round in 0..rounds {
            if round > 0 && started.elapsed() > LIMIT {
                break;
            }
            for (candidate, taken) in candidates.iter().zip(&mut all) {
                if taken.failure.is_some() {
                    continue;
                }
                match run(candidate) {
                    Ok(run) => taken.runs.push(run),
                    Err(words) => taken.failure = Some(words),
                }
            }
        }
        all
    }

    /// The median rate, if no run has failed.
    pub(super) fn rate(&self) -> Option<f64> {
        self.median(&|run| run.rate)
    }

    /// The median processor time of all processes.
    pub(super) fn processor(&self) -> Option<f64> {
        self.median(&Run::processor)
    }

    /// The median processor time of the whole machine.
    pub(super) fn machine(&self) -> Option<f64> {
        self.median(&|run| run.machine)
    }

    /// The median rate of the transfers themselves.
    pub(super) fn moving(&self) -> Option<f64> {
        self.median(&|run| run.moving)
    }

    /// The rate with its quartiles, or the failure.
    pub(super) fn rate_cell(&self) -> String {
        self.cell(&|run| run.rate, 0)
    }

    /// The processor time with its quartiles, and the part of the clients.
    pub(super) fn processor_cell(&self) -> String {
        let clients = self.median(&|run| run.clients);
        let clients = clients.map_or_else(String::new, |time| format!(", clients {time:.2}"));
        self.cell(&Run::processor, 2) + &clients
    }

    /// The processor time of the whole machine with its quartiles, or the failure.
    pub(super) fn machine_cell(&self) -> String {
        self.cell(&|run| run.machine, 2)
    }

    /// The rate of the transfers themselves with its quartiles, or the failure.
    pub(super) fn moving_cell(&self) -> String {
        self.cell(&|run| run.moving, 0)
    }

    /// A value that is computed from each run, with its quartiles, or the failure.
    pub(super) fn cell_of(&self, value: impl Fn(&Run) -> f64) -> String {
        self.cell(&value, 0)
    }

    fn median(&self, value: &dyn Fn(&Run) -> f64) -> Option<f64> {
        let values = self.values(value)?;
        Some(sample::median(&values))
    }

    fn values(&self, value: &dyn Fn(&Run) -> f64) -> Option<Vec<f64>> {
        let is_whole = self.failure.is_none() && !self.runs.is_empty();
        is_whole.then(|| self.runs.iter().map(value).collect())
    }

    fn cell(&self, value: &dyn Fn(&Run) -> f64, digits: usize) -> String {
        let Some(values) = self.values(value) else {
            return self.failure.clone().unwrap_or_default();
        };
        let [lower, median, upper] = quartiles(&values);
        format!("{median:.digits$} ({lower:.digits$} to {upper:.digits$})")
    }
}

/// The lower quartile, the median and the upper quartile of one value at least: those of the values between which they lie, in proportion.
fn quartiles(values: &[f64]) -> [f64; 3] {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarters| {
        let place = quarters * (sorted.len() - 1);
        let (below, above) = (sorted[place / 4], sorted[place.div_ceil(4)]);
        below + (above - below) * (place % 4) as f64 / 4.0
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(rate: f64) -> Run {
        Run {
            rate,
            moving: rate,
            clients: 0.5,
            servers: 0.25,
            machine: 1.0,
        }
    }

    #[test]
    fn candidates_alternate_and_cells_have_quartiles() {
        let mut turn = 0.0;
        let rounds = Rounds::take(5, &[1.0, -1.0], |candidate| {
            turn += 1.0;
            match *candidate > 0.0 || turn < 5.0 {
                true => Ok(run(turn)),
                false => Err("the copy failed".to_owned()),
            }
        });
        assert_eq!(rounds[0].rate_cell(), "5 (3 to 7)");
        assert_eq!(
            rounds[0].processor_cell(),
            "0.75 (0.75 to 0.75), clients 0.50"
        );
        assert_eq!(rounds[0].rate(), Some(5.0));
        assert_eq!(rounds[1].rate(), None);
        assert_eq!(rounds[1].rate_cell(), "the copy failed");
        assert_eq!(rounds[1].processor_cell(), "the copy failed");
    }

    #[test]
    fn quartiles_lie_between_values() {
        assert_eq!(quartiles(&[4.0]), [4.0; 3]);
        assert_eq!(quartiles(&[4.0, 1.0, 2.0, 3.0]), [1.75, 2.5, 3.25]);
    }
}
