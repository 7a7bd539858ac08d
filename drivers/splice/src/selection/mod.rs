//! Measured choice between `read`/`write` and `sendfile`/`splice`, for the driver `auto`.
//!
//! `sendfile` and `splice` save the copy, but have work to do for each page. Which costs more depends on the CPU caches, the
//! file system's pages and the network. A long transfer tries both methods on some mebibytes each. The one that takes less
//! CPU time is kept, unless it is much slower, and other channels between the same file system and the same kind of peer
//! use the result. The trial is repeated after some gigabytes.
//!
//! Between two programs on one machine, pages that were sent with `sendfile` are in no CPU cache when the receiver copies
//! them: the receiver may pay what the sender saves. There the faster method is kept, if there is a clear difference.

mod cost;
mod route;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;

use cost::Tally;
use route::{LOCAL_TRIAL_BYTES, Route};

pub(crate) use cost::{Cost, Stopwatch};
pub(crate) use route::{Direction, Method, Peer};

/// A decision is kept for this many bytes; then the trial is repeated.
const KEPT_BYTES: u64 = 4 * 1024 * 1024 * 1024;

/// The smallest pieces that are measured; with smaller ones the time is mostly waiting.
pub(crate) const MEASURED_BYTES: u64 = 128 * 1024;

/// The most routes that are kept; more than a server has.
const MAX_RECORDS: usize = 64;

/// The measurements of a route, shared by all channels.
#[derive(Debug)]
pub(crate) struct Record {
    route: Route,
    phase: Mutex<Phase>,
}

#[derive(Debug, Clone, Copy)]
enum Phase {
    /// No measurement yet, or an old one.
    Trial { memory: Tally, kernel: Tally },
    /// Decided, for the next `left` bytes.
    Settled {
        memory: Tally,
        kernel: Tally,
        left: u64,
    },
    /// The kernel does not support it, and is not tried for the next `left` bytes.
    Refused { errno: Errno, left: u64 },
}

/// All measurements of this process.
static RECORDS: Mutex<Vec<Arc<Record>>> = Mutex::new(Vec::new());

/// The record for moving this file in this direction, to or from this kind of peer.
pub(crate) fn record(file: BorrowedFd<'_>, direction: Direction, peer: Peer) -> Arc<Record> {
    let kind = rustix::fs::fstatfs(file).map(|facts| facts.f_type);
    let route = Route {
        file_system: kind.map_or(0, i64::cast_unsigned),
        direction,
        peer,
    };
    let mut records = RECORDS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(record) = records.iter().find(|record| record.route == route) {
        return Arc::clone(record);
    }
    if records.len() == MAX_RECORDS {
        records.remove(0);
    }
    let record = Arc::new(Record {
        route,
        phase: Mutex::new(Phase::trial()),
    });
    records.push(Arc::clone(&record));
    record
}

impl Record {
    /// The method for the next piece of `bytes` bytes, and whether to measure it. Only transfers that are known to be long
    /// are used for trials.
    pub(crate) fn choose(&self, bytes: u64, is_long: bool) -> (Method, bool) {
        let mut phase = self.phase();
        let (method, left) = match &mut *phase {
            Phase::Trial { memory, kernel } => {
                let may_measure = is_long && bytes >= MEASURED_BYTES;
                let memory_is_next = match self.route.is_within_the_machine() {
                    true => memory.bytes < LOCAL_TRIAL_BYTES,
                    false => memory.bytes < kernel.bytes,
                };
                return if may_measure && memory_is_next {
                    (Method::Memory, true)
                } else {
                    (Method::Kernel, may_measure)
                };
            }
            Phase::Settled {
                memory,
                kernel,
                left,
            } => {
                let method = self.route.better(memory, kernel);
                let left = left.checked_sub(bytes).map(|rest| *left = rest);
                (method, left)
            }
            Phase::Refused { left, .. } => {
                let left = left.checked_sub(bytes).map(|rest| *left = rest);
                (Method::Memory, left)
            }
        };
        if left.is_none() {
            *phase = Phase::trial();
        }
        (method, false)
    }

    /// Adds a measurement.
    pub(crate) fn note(&self, method: Method, cost: Cost) {
        let mut phase = self.phase();
        // Another channel may have ended the trial.
        if let Phase::Trial { memory, kernel } = &mut *phase {
            match method {
                Method::Memory => memory.note(cost),
                Method::Kernel => kernel.note(cost),
            }
            if memory.bytes.min(kernel.bytes) >= self.route.trial_bytes() {
                *phase = Phase::Settled {
                    memory: *memory,
                    kernel: *kernel,
                    left: KEPT_BYTES,
                };
            }
        }
    }

    /// Records that the kernel does not support such files.
    pub(crate) fn refuse(&self, errno: Errno) {
        *self.phase() = Phase::Refused {
            errno,
            left: KEPT_BYTES,
        };
    }

    fn phase(&self) -> MutexGuard<'_, Phase> {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The reason for the choice, for the log.
impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let direction = self.route.direction;
        let name = direction.call(Method::Kernel);
        match *self.phase() {
            Phase::Trial { .. } => write!(f, "{name} and read are being measured"),
            Phase::Settled { memory, kernel, .. } => write!(
                f,
                "CPU seconds per GB: {name} {:.3}, read {:.3}; seconds per GB: {name} {:.3}, read {:.3}",
                kernel.cpu(),
                memory.cpu(),
                self.route.elapsed(&kernel),
                self.route.elapsed(&memory)
            ),
            Phase::Refused { errno, .. } => {
                write!(f, "{name} failed: {}", io::Error::from(errno))
            }
        }
    }
}

impl Phase {
    fn trial() -> Self {
        Self::Trial {
            memory: Tally::none(),
            kernel: Tally::none(),
        }
    }
}
