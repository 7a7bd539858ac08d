//! Runs cases against both servers and compares the outcomes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use super::case::{Case, Observation};
use super::context::Context;
use super::testbed::Testbed;
use crate::support::{Copier, Failure, Kind};

/// The outcomes of one case.
#[derive(Debug)]
pub struct Row {
    /// The case's name.
    pub name: String,
    /// Why the real server is expected to fail, if it is.
    pub deviation: Option<&'static str>,
    /// Our server's outcome; `None` when it was not tested.
    pub ours: Option<Outcome>,
    /// The real server's outcome; `None` when it was not tested, or the case does not apply to
    /// it.
    pub theirs: Option<Outcome>,
}

impl Row {
    /// Why the case failed. An undocumented failure of the real server counts as well, because it makes
    /// the case worthless.
    pub fn failure(&self) -> Option<String> {
        let ours = self
            .ours
            .as_ref()
            .and_then(|outcome| outcome.verdict.failure());
        let theirs = self
            .theirs
            .as_ref()
            .and_then(|outcome| outcome.verdict.failure());
        match (ours, theirs) {
            (Some(reason), _) => Some(reason.to_owned()),
            (None, Some(reason)) if self.deviation.is_none() => {
                Some(format!("the real server: {reason}"))
            }
            _ => None,
        }
    }

    /// The same with this program in the place of `globus-url-copy`: a case that it fails on purpose must fail.
    pub fn failure_with(&self, copier: &Copier) -> Option<String> {
        match (self.failure(), copier.difference(&self.name)) {
            (Some(_), Some(_)) => None,
            (None, Some(reason)) => Some(format!(
                "it passes, and is listed as a difference: {reason}"
            )),
            (failure, None) => failure,
        }
    }

    /// Why the case was not run on this machine, if so.
    pub fn not_run(&self) -> Option<&str> {
        [&self.ours, &self.theirs]
            .into_iter()
            .flatten()
            .find_map(|outcome| match &outcome.verdict {
                Verdict::NotRun(reason) => Some(reason.as_str()),
                _ => None,
            })
    }

    /// Turns our pass into a failure if the output differs from that with the real server.
    fn compare(&mut self) {
        if let (
            None,
            Some(Outcome {
                verdict: verdict @ Verdict::Passed(_),
                ..
            }),
            Some(Outcome {
                verdict: Verdict::Passed(theirs),
                ..
            }),
        ) = (self.deviation, &mut self.ours, &self.theirs)
            && let Verdict::Passed(ours) = &*verdict
            && ours != theirs
        {
            *verdict = Verdict::Failed(format!(
                "the output differs\n--- ours\n{}\n--- the real server\n{}",
                ours.0, theirs.0
            ));
        }
    }
}

/// The result of one run of a case.
#[derive(Debug)]
pub struct Outcome {
    /// The verdict.
    pub verdict: Verdict,
    /// The duration.
    pub elapsed: Duration,
}

/// The verdict on a run.
#[derive(Debug)]
pub enum Verdict {
    /// Passed, with the observed output.
    Passed(Observation),
    /// Failed, and why.
    Failed(String),
    /// Not possible on this machine, and why.
    NotRun(String),
}

impl Verdict {
    /// The reason of a failure.
    pub fn failure(&self) -> Option<&str> {
        match self {
            Self::Failed(reason) => Some(reason),
            _ => None,
        }
    }
}

/// Runs `cases` against the servers of `kinds`, `workers` at a time, and calls `done` with each row
/// in the order of the table.
pub fn run(
    cases: &[Case],
    kinds: &[Kind],
    workers: usize,
    testbed: &Testbed,
    mut done: impl FnMut(Row),
) {
    let concerns =
        |case: &Case, kind| kind == Kind::Gridhaul || case.setup.partners.concern_globus();
    // Case by case, with both servers of a case one after the other.
    let runs: Vec<(usize, Kind)> = (0..cases.len())
        .flat_map(|index| kinds.iter().map(move |&kind| (index, kind)))
        .filter(|&(index, kind)| concerns(&cases[index], kind))
        .collect();
    let next = AtomicUsize::new(0);
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..workers {
            let (runs, next, sender) = (&runs, &next, sender.clone());
            scope.spawn(move || {
                while let Some(&(index, kind)) = runs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let _ = sender.send((index, kind, run_one(&cases[index], kind, testbed)));
                }
            });
        }
        drop(sender);
        let mut outcomes = BTreeMap::new();
        for (index, case) in cases.iter().enumerate() {
            let awaited: Vec<_> = runs.iter().filter(|run| run.0 == index).collect();
            if awaited.is_empty() {
                continue;
            }
            for run in awaited {
                while !outcomes.contains_key(run) {
                    // Fails only when a worker panicked, and then the scope panics, too.
                    let Ok((index, kind, outcome)) = receiver.recv() else {
                        return;
                    };
                    outcomes.insert((index, kind), outcome);
                }
            }
            let mut row = Row {
                name: case.name.clone(),
                deviation: case.deviation,
                ours: outcomes.remove(&(index, Kind::Gridhaul)),
                theirs: outcomes.remove(&(index, Kind::Globus)),
            };
            row.compare();
            done(row);
        }
    });
}

fn run_one(case: &Case, kind: Kind, testbed: &Testbed) -> Outcome {
    let started = Instant::now();
    let result = Context::new(testbed, &case.setup, &case.name, kind)
        .and_then(|context| attempt(case, &context));
    let verdict = match result {
        Ok(observation) => Verdict::Passed(observation),
        Err(Failure::Unable(reason)) => Verdict::NotRun(reason),
        Err(failure) => Verdict::Failed(failure.to_string()),
    };
    Outcome {
        verdict,
        elapsed: started.elapsed(),
    }
}

/// Runs the case, again from the beginning if its client crashes and attempts are left.
fn attempt(case: &Case, context: &Context<'_>) -> Result<Observation, Failure> {
    let mut result = case.run(context);
    for _ in 1..case.attempts {
        if !matches!(result, Err(Failure::Crashed(_))) {
            break;
        }
        context.clear()?;
        result = case.run(context);
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::Client;

    fn passed(seen: &str) -> Option<Outcome> {
        let verdict = Verdict::Passed(Observation(seen.into()));
        Some(Outcome {
            verdict,
            elapsed: Duration::ZERO,
        })
    }

    fn failed(reason: &str) -> Option<Outcome> {
        Some(Outcome {
            verdict: Verdict::Failed(reason.into()),
            elapsed: Duration::ZERO,
        })
    }

    fn failure(
        deviation: Option<&'static str>,
        ours: Option<Outcome>,
        theirs: Option<Outcome>,
    ) -> Option<String> {
        let mut row = Row {
            name: "case".into(),
            deviation,
            ours,
            theirs,
        };
        row.compare();
        row.failure()
    }

    #[test]
    fn both_must_pass_with_the_same_output() {
        assert_eq!(failure(None, passed("a"), passed("a")), None);
        assert_eq!(failure(None, passed("a"), None), None);
        assert_eq!(failure(None, failed("why"), passed("")), Some("why".into()));
        let reason = failure(None, passed("ours"), passed("theirs")).unwrap();
        assert!(
            reason.contains("ours") && reason.contains("theirs"),
            "{reason}"
        );
    }

    #[test]
    fn a_failure_of_the_real_server_counts_unless_the_case_documents_it() {
        let reason = failure(None, passed(""), failed("why")).unwrap();
        assert_eq!(reason, "the real server: why");
        assert_eq!(failure(Some("documented"), passed(""), failed("why")), None);
        assert_eq!(
            failure(Some("documented"), failed("ours"), failed("why")),
            Some("ours".into())
        );
        assert_eq!(failure(Some("documented"), passed("a"), passed("b")), None);
    }

    #[test]
    fn rows_come_in_the_order_of_the_table_without_cases_that_do_not_apply() {
        let case = |name: &str| {
            Case::new(name, |_| {
                Err::<Observation, _>(Failure::Unable("no".into()))
            })
        };
        let alone = [case("one"), case("two"), case("three")];
        let pairs = Case::third_party("pair", |_| Ok(Observation::none()));
        let cases: Vec<_> = alone.into_iter().chain(pairs).collect();
        let testbed = Testbed::new().unwrap();
        let mut names = Vec::new();
        run(&cases, &[Kind::Globus], 3, &testbed, |row| {
            assert!(row.ours.is_none() && row.theirs.is_some());
            names.push(row.name);
        });
        assert_eq!(names, ["one", "two", "three", "pair (to its own kind)"]);
    }

    #[test]
    fn a_case_with_attempts_left_is_repeated_when_its_client_crashes() {
        let testbed = Testbed::new().unwrap();
        for (attempts, passes) in [(1, false), (2, true)] {
            let runs = AtomicUsize::new(0);
            let case = Case::new("crashing", move |_| {
                let scripts = ["kill -s SEGV $$", "exit 0"];
                let script = scripts[runs.fetch_add(1, Ordering::Relaxed)];
                Client::new("sh").args(["-c", script]).run()?.succeeded()?;
                Ok(Observation::none())
            });
            let outcome = run_one(&case.crashing(attempts), Kind::Globus, &testbed);
            assert_eq!(outcome.verdict.failure().is_none(), passes, "{outcome:?}");
        }
    }
}
