//! The rates of all trials, and the number of connections that they recommend.

use std::time::Duration;

use gridhaul_protocol::stack::StackSpec;
use serde::Serialize;

use super::super::output::{shown, shown_json};
use super::super::report::amount;
use crate::transfer::Transferred;

/// A number of connections whose rate is this part of the best one is near enough.
const NEAR: f64 = 0.92;

/// The transfers with one stack and one number of connections.
#[derive(Debug, Serialize)]
pub(super) struct Trial {
    stack: Option<String>,
    pub(super) parallel: u8,
    /// What there were: a server may have opened fewer.
    channels: usize,
    pub(super) bytes: u64,
    seconds: f64,
    bytes_per_second: f64,
    /// How the bytes were moved on this machine, where its driver had a choice.
    movement: Option<String>,
    pub(super) error: Option<String>,
}

/// All trials.
#[derive(Debug, Serialize)]
pub(super) struct Results {
    urls: Vec<String>,
    trials: Vec<Trial>,
    recommended: Option<Recommended>,
}

/// The smallest number of connections that is near the best rate.
#[derive(Debug, Serialize)]
struct Recommended {
    stack: Option<String>,
    parallel: u8,
    percent_of_best: f64,
}

impl Trial {
    pub(super) fn new(stack: Option<&StackSpec>, parallel: u8) -> Self {
        Self {
            stack: stack.map(StackSpec::to_string),
            parallel,
            channels: 0,
            bytes: 0,
            seconds: 0.0,
            bytes_per_second: 0.0,
            movement: None,
            error: None,
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "rates need no more digits")]
    pub(super) fn add(&mut self, done: &Transferred) {
        self.bytes = self.bytes.saturating_add(done.bytes);
        self.seconds += done.took.max(Duration::from_micros(1)).as_secs_f64();
        self.bytes_per_second = self.bytes as f64 / self.seconds;
        self.channels = done.channels;
        self.movement.clone_from(&done.movement);
    }

    pub(super) fn name(&self) -> String {
        format!("{}, {} connections", self.stack_name(), self.parallel)
    }

    fn stack_name(&self) -> &str {
        self.stack.as_deref().unwrap_or("default stack")
    }
}

impl Results {
    pub(super) fn new(urls: &[String]) -> Self {
        Self {
            urls: urls.to_vec(),
            trials: Vec::new(),
            recommended: None,
        }
    }

    pub(super) fn add(&mut self, trial: Trial) {
        self.trials.push(trial);
        self.recommended = self.recommend();
    }

    pub(super) fn has_any(&self) -> bool {
        self.recommended.is_some()
    }

    fn best(&self) -> f64 {
        let complete = self.trials.iter().filter(|trial| trial.error.is_none());
        complete.fold(0.0, |best, trial| best.max(trial.bytes_per_second))
    }

    fn recommend(&self) -> Option<Recommended> {
        let best = self.best();
        let complete = self.trials.iter().filter(|trial| trial.error.is_none());
        let near = complete.filter(|trial| best > 0.0 && trial.bytes_per_second >= best * NEAR);
        let least = near.min_by_key(|trial| trial.parallel)?;
        Some(Recommended {
            stack: least.stack.clone(),
            parallel: least.parallel,
            percent_of_best: least.bytes_per_second / best * 100.0,
        })
    }

    pub(super) fn json(&self) -> String {
        shown_json(&serde_json::json!(self).to_string())
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "rates are positive, and shown with few digits"
    )]
    pub(super) fn text(&self) -> String {
        let best = self.best();
        let mut text = "connections         rate  of best  stack\n".to_owned();
        for trial in &self.trials {
            let stack = shown(trial.stack_name().as_bytes());
            let (rate, part) = match trial.error {
                Some(_) => ("failed".to_owned(), String::new()),
                None => (
                    format!("{}/s", amount(trial.bytes_per_second as u64)),
                    format!("{:.0} %", trial.bytes_per_second / best * 100.0),
                ),
            };
            let count = trial.parallel;
            text += &format!("{count:>11} {rate:>12} {part:>8}  {stack}\n");
        }
        let Some(found) = &self.recommended else {
            return text;
        };
        let stack = found
            .stack
            .iter()
            .map(|stack| format!(" --stack '{stack}'"));
        let (count, percent) = (found.parallel, found.percent_of_best);
        text += &format!(
            "recommended: --parallel {count}{}: {percent:.0} % of the best rate; more connections bring less than {:.0} %\n",
            stack.collect::<String>(),
            (1.0 / NEAR - 1.0) * 100.0,
        );
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_number_near_the_best_rate_is_recommended() {
        let mut results = Results::new(&["a".to_owned()]);
        for (parallel, bytes, error) in [
            (1, 250, None),
            (2, 500, None),
            (4, 950, None),
            (8, 1000, None),
            (16, 2000, Some("broken".to_owned())),
        ] {
            let mut trial = Trial::new(None, parallel);
            trial.add(&Transferred {
                bytes: bytes * 1_000_000,
                channels: usize::from(parallel),
                took: Duration::from_secs(1),
                movement: None,
                reason: None,
                details: Default::default(),
                checksum: None,
            });
            trial.error = error;
            results.add(trial);
        }
        let found = results.recommended.as_ref().expect("there are rates");
        assert_eq!(found.parallel, 4);
        let text = results.text();
        assert!(
            text.contains(
                "--parallel 4: 95 % of the best rate; more connections bring less than 9 %"
            ),
            "{text}"
        );
        assert!(text.contains("failed"), "{text}");
    }
}
