//! Alternating runs of stacks, and their table cells.

use std::path::Path;
use std::time::Duration;

use super::pump::{Load, Moved};
use crate::bench::sample;

pub(super) const MIB: u64 = 1 << 20;

/// Moves zeros through a stack. The error is one line of text.
pub(super) fn load(stack: &str, to: &str, channels: usize, bytes: u64) -> Result<Moved, String> {
    let moved = start(stack, to, channels, Some(bytes), Duration::from_secs(20))?;
    match &moved.failure {
        None => Ok(moved),
        Some(error) => Err(format!(
            "{:.0}, then: {}",
            moved.megabytes_per_second(),
            in_one_line(&error.to_string())
        )),
    }
}

/// Moves zeros for a time. The failure of a channel is in the result.
pub(super) fn load_for(
    time: Duration,
    stack: &str,
    to: &str,
    channels: usize,
) -> Result<Moved, String> {
    start(stack, to, channels, None, time)
}

fn start(
    stack: &str,
    to: &str,
    channels: usize,
    bytes: Option<u64>,
    limit: Duration,
) -> Result<Moved, String> {
    let load = Load {
        stack,
        to: to.parse().expect("an address of ours"),
        channels,
        bytes,
        source: Path::new("/dev/zero"),
        limit,
    };
    load.run().map_err(|error| in_one_line(&error.to_string()))
}

/// Joins the lines of a text, for a table cell.
pub(super) fn in_one_line(words: &str) -> String {
    words.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The results of one candidate.
#[derive(Debug, Default)]
pub(super) struct Runs {
    numbers: Vec<f64>,
    failures: Vec<String>,
}

impl Runs {
    /// Runs all candidates alternately, `rounds` times, so that other load on the machine affects all of them equally.
    pub(super) fn take<T>(
        rounds: usize,
        candidates: &[T],
        mut run: impl FnMut(&T) -> Result<f64, String>,
    ) -> Vec<Self> {
        let mut runs: Vec<Self> = candidates.iter().map(|_| Self::default()).collect();
        for _ in 0..rounds {
            for (candidate, runs) in candidates.iter().zip(&mut runs) {
                match run(candidate) {
                    Ok(number) => runs.numbers.push(number),
                    Err(words) => runs.failures.push(words),
                }
            }
        }
        runs
    }

    /// The median, unless every run failed.
    pub(super) fn median(&self) -> Option<f64> {
        (!self.numbers.is_empty()).then(|| sample::median(&self.numbers))
    }

    /// The median divided by that of another candidate.
    pub(super) fn of(&self, other: &Self) -> Option<f64> {
        Some(self.median()? / other.median()?)
    }

    /// The median and the number of failed runs, or the last failure.
    pub(super) fn cell(&self) -> String {
        match (self.median(), self.failures.last()) {
            (Some(median), None) => format!("{median:.0}"),
            (Some(median), Some(words)) => {
                let (failed, all) = (
                    self.failures.len(),
                    self.failures.len() + self.numbers.len(),
                );
                format!("{median:.0}; {failed} of {all} failed: {words}")
            }
            (None, words) => words.cloned().unwrap_or_default(),
        }
    }
}

/// A share, or a dash.
pub(super) fn share(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), |share| format!("{share:.2}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidates_alternate_and_failures_are_shown() {
        let mut order = Vec::new();
        let runs = Runs::take(3, &[1.0, 2.0], |&candidate| {
            order.push(candidate);
            match order.len() {
                // The second run of the second candidate.
                4 => Err("too late".to_owned()),
                turn => Ok(candidate * turn as f64),
            }
        });
        assert_eq!(order, [1.0, 2.0, 1.0, 2.0, 1.0, 2.0]);
        assert_eq!(runs[0].cell(), "3");
        assert_eq!(runs[1].cell(), "8; 1 of 3 failed: too late");
        assert_eq!(share(runs[0].of(&runs[1])), "0.38");
        assert_eq!(share(Runs::default().of(&runs[1])), "-");
    }
}
