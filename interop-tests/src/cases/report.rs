//! The report: one line for each case, with the outcomes of both servers.

use std::fmt::Write;
use std::time::Duration;

use super::run::{Outcome, Row, Verdict};
use crate::support::Copier;

/// The number of characters of a reason in the line of its case; the end of the report has all of it.
const SHORT_REASON: usize = 100;

/// Collects rows while they are printed.
#[derive(Debug, Default)]
pub struct Report {
    failures: Vec<(String, String)>,
    rows: usize,
    not_run: usize,
    deviations: usize,
    differences: usize,
    copier: Copier,
}

impl Report {
    /// For a run with this program in the place of `globus-url-copy`.
    pub fn with_copier(copier: Copier) -> Self {
        Self {
            copier,
            ..Self::default()
        }
    }

    /// The heading.
    pub fn heading() -> String {
        format!("{:<92} {:>11}  {:>15}", "case", "ours", "real server")
    }

    /// Counts a row and returns its line.
    pub fn line(&mut self, row: &Row) -> String {
        self.rows += 1;
        let mut line = format!("{:<92} {:>11}", row.name, cell(row.ours.as_ref()));
        let theirs = row.theirs.as_ref();
        let deviation = row
            .deviation
            .filter(|_| theirs.is_some_and(|it| it.verdict.failure().is_some()));
        match (theirs, deviation) {
            (Some(outcome), Some(_)) => {
                self.deviations += 1;
                let _ = write!(
                    line,
                    "  {:>15}",
                    format!("differs {}", seconds(outcome.elapsed))
                );
            }
            _ => {
                let _ = write!(line, "  {:>15}", cell(theirs));
            }
        }
        let difference = self.copier.difference(&row.name);
        if let Some(reason) = row.failure_with(&self.copier) {
            let first = reason.lines().next().unwrap_or_default();
            let _ = write!(
                line,
                "  {}",
                first.chars().take(SHORT_REASON).collect::<String>()
            );
            self.failures.push((row.name.clone(), reason));
        } else if let Some(reason) = difference {
            self.differences += 1;
            let _ = write!(line, "  ({} differs: {reason})", self.copier.name());
        } else if let Some(reason) = deviation {
            let _ = write!(line, "  ({reason})");
        } else if let Some(reason) = row.not_run() {
            self.not_run += 1;
            let _ = write!(line, "  ({reason})");
        } else if let (Some(reason), Some(_)) = (row.deviation, theirs) {
            let _ = write!(line, "  (no deviation this time: {reason})");
        }
        line
    }

    /// Whether a case failed.
    pub fn failed(&self) -> bool {
        !self.failures.is_empty()
    }

    /// Each failure in full, then the totals.
    pub fn ending(&self, elapsed: Duration) -> String {
        let mut text = String::new();
        for (name, reason) in &self.failures {
            let _ = writeln!(text, "\nFAIL {name}\n{reason}");
        }
        let _ = write!(
            text,
            "\n{} cases: {} passed, {} failed, {} not run on this machine, {} in which {} differs on purpose; \
             the real server deviates in {}; {:.0} s",
            self.rows,
            self.rows - self.failures.len() - self.not_run - self.differences,
            self.failures.len(),
            self.not_run,
            self.differences,
            self.copier.name(),
            self.deviations,
            elapsed.as_secs_f64()
        );
        text
    }
}

fn cell(outcome: Option<&Outcome>) -> String {
    let Some(outcome) = outcome else {
        return "-".into();
    };
    let word = match outcome.verdict {
        Verdict::Passed(_) => "pass",
        Verdict::Failed(_) => "FAIL",
        Verdict::NotRun(_) => "not run",
    };
    format!("{word} {}", seconds(outcome.elapsed))
}

fn seconds(elapsed: Duration) -> String {
    format!("{:.2} s", elapsed.as_secs_f64())
}
