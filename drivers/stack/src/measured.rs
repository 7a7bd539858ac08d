//! Measured choice between two methods of moving ranges of files: one copies their bytes, one does not.
//!
//! `sendfile` and `splice` save a copy, but have work to do for each page; direct I/O saves one, and does not use what the page
//! cache has. Which costs more depends on the CPU caches, the file system, the disk and the network. So a long transfer tries
//! both methods on some mebibytes each. Then one is kept ([`Goal`]), also for other channels that share the [`Choice`]. The trial
//! is repeated after some gigabytes.
//!
//! ```text
//!   Choices ──> Choice ── cost       the measurements of one route, shared by all of its channels
//!                  └── rule          which method is better
//! ```

mod cost;
mod rule;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;

use self::cost::Tally;

pub use self::cost::{Cost, Stopwatch, cpu_time};
pub use self::rule::{Goal, Method, Rule};

/// A decision is kept for this many bytes; then the trial is repeated.
const KEPT_BYTES: u64 = 4 * 1024 * 1024 * 1024;

/// A trial ends after so many ranges in a row for which the bypass was chosen and did not happen.
const MOST_MISSES: u32 = 8;

/// The most routes that are kept; more than a server has in use.
const MAX_ROUTES: usize = 64;

/// The choices of a process, one for each route: for what a measurement is valid, such as a file system and a direction.
#[derive(Debug)]
pub struct Choices<R> {
    /// The one that was used last is at the end.
    routes: Mutex<Vec<(R, Arc<Choice>)>>,
}

impl<R: PartialEq> Choices<R> {
    /// No choice.
    pub const fn new() -> Self {
        Self {
            routes: Mutex::new(Vec::new()),
        }
    }

    /// The choice of a route, which has this rule if it is new. Of too many, the one that was not used for longest is forgotten.
    pub fn get(&self, route: R, rule: Rule) -> Arc<Choice> {
        let mut routes = self.routes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = routes.iter().position(|(known, _)| *known == route) {
            routes[place..].rotate_left(1);
            let (_, choice) = routes.last().expect("the route is there");
            return Arc::clone(choice);
        }
        if routes.len() == MAX_ROUTES {
            routes.remove(0);
        }
        let choice = Arc::new(Choice::new(rule));
        routes.push((route, Arc::clone(&choice)));
        choice
    }
}

impl<R: PartialEq> Default for Choices<R> {
    fn default() -> Self {
        Self::new()
    }
}

/// The measurements of a route, shared by all of its channels.
#[derive(Debug)]
pub struct Choice {
    rule: Rule,
    phase: Mutex<Phase>,
}

#[derive(Debug, Clone, Copy)]
enum Phase {
    /// No measurement yet, or an old one.
    Trial {
        copy: Tally,
        bypass: Tally,
        /// Ranges since the last measured bypass for which it was chosen and did not happen.
        misses: u32,
    },
    /// Decided, for the next `left` bytes.
    Settled {
        copy: Tally,
        bypass: Tally,
        left: u64,
    },
    /// The kernel does not support the bypass, which is not tried for the next `left` bytes.
    Refused { errno: Errno, left: u64 },
    /// The bypass did not happen, and is not tried for the next `left` bytes.
    Missed { left: u64 },
}

impl Choice {
    /// A choice that no measurement has decided.
    pub fn new(rule: Rule) -> Self {
        Self {
            rule,
            phase: Mutex::new(Phase::trial()),
        }
    }

    /// The method for the next range of `bytes` bytes, and whether to measure it ([`Choice::note`]). Only transfers that are known
    /// to be long are used for trials.
    pub fn choose(&self, bytes: u64, is_long: bool) -> (Method, bool) {
        let mut phase = self.phase();
        let (method, left) = match &mut *phase {
            Phase::Trial { copy, bypass, .. } => {
                return if is_long && bytes >= self.rule.least_bytes {
                    (self.rule.next_in_trial(copy, bypass), true)
                } else {
                    (self.rule.usual, false)
                };
            }
            Phase::Settled { copy, bypass, left } => (self.rule.better(copy, bypass), left),
            Phase::Refused { left, .. } | Phase::Missed { left } => (Method::Copy, left),
        };
        match left.checked_sub(bytes) {
            Some(rest) => *left = rest,
            None => *phase = Phase::trial(),
        }
        (method, false)
    }

    /// Adds the measurement of a range. Shorter ones than the rule's least are ignored.
    pub fn note(&self, method: Method, cost: Cost) {
        let mut phase = self.phase();
        // Another channel may have ended the trial.
        if let Phase::Trial {
            copy,
            bypass,
            misses,
        } = &mut *phase
            && cost.bytes >= self.rule.least_bytes
        {
            match method {
                Method::Copy => copy.note(cost),
                Method::Bypass => {
                    bypass.note(cost);
                    *misses = 0;
                }
            }
            if copy.bytes.min(bypass.bytes) >= self.rule.trial_bytes {
                *phase = Phase::Settled {
                    copy: *copy,
                    bypass: *bypass,
                    left: KEPT_BYTES,
                };
            }
        }
    }

    /// Records that a range for which the trial chose the bypass was moved in another way, for a reason that this range or its channel
    /// may have alone. After some in a row the trial ends: without any measurement of the bypass it would go on for ever.
    pub fn miss(&self) {
        let mut phase = self.phase();
        if let Phase::Trial { misses, .. } = &mut *phase {
            *misses += 1;
            if *misses == MOST_MISSES {
                *phase = Phase::Missed { left: KEPT_BYTES };
            }
        }
    }

    /// Records that the kernel does not support the bypass here.
    pub fn refuse(&self, errno: Errno) {
        *self.phase() = Phase::Refused {
            errno,
            left: KEPT_BYTES,
        };
    }

    /// Whether a trial has ended whose outcome is still valid.
    pub fn is_decided(&self) -> bool {
        !matches!(*self.phase(), Phase::Trial { .. })
    }

    /// The measurements, for the log, with these names of the methods.
    pub fn describe(&self, bypass_name: &str, copy_name: &str) -> String {
        match *self.phase() {
            Phase::Trial { .. } => format!("{bypass_name} and {copy_name} are being measured"),
            Phase::Settled { copy, bypass, .. } => format!(
                "CPU seconds per GB: {bypass_name} {:.3}, {copy_name} {:.3}; seconds per GB: {bypass_name} {:.3}, {copy_name} {:.3}",
                bypass.cpu(),
                copy.cpu(),
                self.rule.elapsed(&bypass),
                self.rule.elapsed(&copy)
            ),
            Phase::Refused { errno, .. } => {
                format!("{bypass_name} failed: {}", io::Error::from(errno))
            }
            Phase::Missed { .. } => {
                format!("{bypass_name} was not possible for {MOST_MISSES} ranges")
            }
        }
    }

    fn phase(&self) -> MutexGuard<'_, Phase> {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Phase {
    fn trial() -> Self {
        Self::Trial {
            copy: Tally::none(),
            bypass: Tally::none(),
            misses: 0,
        }
    }
}
