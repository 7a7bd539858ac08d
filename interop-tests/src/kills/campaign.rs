//! Many rounds, and their summary.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use super::round::{Fault, Passed, Script};
use super::world::World;
use crate::support::Failure;

/// Rounds with consecutive seeds.
#[derive(Debug, Clone, Copy)]
pub struct Campaign {
    /// The seed of the first round.
    pub seed: u64,
    /// The number of rounds.
    pub rounds: u64,
    /// Rounds at the same time, each with programs of its own.
    pub jobs: usize,
}

/// What all rounds have shown.
#[derive(Debug, Default)]
pub struct Summary {
    rounds: BTreeMap<Fault, u64>,
    struck: u64,
    interrupted: u64,
    fetched: usize,
    hit: usize,
    /// The seeds of rounds in which something was wrong, and what.
    pub defects: Vec<(u64, String)>,
}

impl Campaign {
    /// Runs all rounds. Each is told on standard error.
    ///
    /// # Errors
    ///
    /// When programs do not start.
    pub fn run(self) -> Result<Summary, Failure> {
        let (next, summary) = (AtomicU64::new(self.seed), Mutex::default());
        let end = self.seed + self.rounds;
        thread::scope(|scope| {
            let workers: Vec<_> = (0..self.jobs.max(1))
                .map(|_| scope.spawn(|| work(&next, end, &summary)))
                .collect();
            workers.into_iter().try_for_each(|worker| {
                let panicked = |_| Err(Failure::wrong("a round panicked"));
                worker.join().unwrap_or_else(panicked)
            })
        })?;
        Ok(summary.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}

fn work(next: &AtomicU64, end: u64, summary: &Mutex<Summary>) -> Result<(), Failure> {
    let mut world = None;
    loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed >= end {
            return Ok(());
        }
        let mut present = match world.take() {
            Some(present) => present,
            None => World::start()?,
        };
        let (script, began) = (Script::of(seed), Instant::now());
        let outcome = script.play(&mut present);
        let seconds = began.elapsed().as_secs_f64();
        let mut summary = summary.lock().unwrap_or_else(PoisonError::into_inner);
        match outcome {
            Ok(passed) => {
                eprintln!("seed {seed}: {script}: {seconds:.1} s");
                summary.add(script.fault, &passed);
                world = Some(present);
            }
            Err(failure) => {
                // The next round begins with new programs.
                let log = present.server.log();
                eprintln!(
                    "seed {seed}: {script}: {failure}\nThe log of the control server:\n{log}"
                );
                let count = summary.rounds.entry(script.fault).or_default();
                *count += 1;
                summary.defects.push((seed, failure.to_string()));
            }
        }
    }
}

impl Summary {
    fn add(&mut self, fault: Fault, passed: &Passed) {
        *self.rounds.entry(fault).or_default() += 1;
        self.struck += u64::from(passed.struck);
        self.interrupted += u64::from(passed.interrupted);
        self.fetched += passed.fetched;
        self.hit += passed.hit;
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |fault| self.rounds.get(&fault).copied().unwrap_or_default();
        write!(
            f,
            "{} kills: {} of nodes, {} of the control server, {} resets and {} silences between them; {} before the client had \
             finished; {} clients saw an error and restarted; {} fetches of steady sessions, {} interrupted by the fault of their own node or server; {} \
             defects",
            self.rounds.values().sum::<u64>(),
            count(Fault::Node),
            count(Fault::Server),
            count(Fault::Reset),
            count(Fault::Silence),
            self.struck,
            self.interrupted,
            self.fetched,
            self.hit,
            self.defects.len()
        )
    }
}
