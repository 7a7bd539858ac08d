//! The rate of new leases.
//!
//! An account of a pool is leased for good. One authority that certifies many subjects, or an intruder in the login process,
//! could otherwise take all accounts of a pool in a moment. The limit gives the site time to notice; existing leases work on.

use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::shared::SharedNumber;

/// Leases that are possible at once: a site may begin with an empty gridmapdir and many users.
const AT_ONCE: u32 = 300;

/// The time after which one more lease is possible.
const EVERY: Duration = Duration::from_secs(10);

/// The budget of a monitor and of the processes that lease for it, in shared memory. Every other process that the monitor
/// forks must drop it: it could change the limit.
#[derive(Debug)]
pub(crate) struct LeaseBudget {
    /// The time in milliseconds since the machine started at which the budget is full again.
    full_at: SharedNumber,
    at_once: u32,
    every: Duration,
}

impl LeaseBudget {
    /// # Errors
    ///
    /// When there is no memory.
    pub(crate) fn new() -> io::Result<Self> {
        Self::of(AT_ONCE, EVERY)
    }

    pub(super) fn of(at_once: u32, every: Duration) -> io::Result<Self> {
        Ok(Self {
            full_at: SharedNumber::new()?,
            at_once,
            every,
        })
    }

    /// Takes a lease from the budget. False if it is used up.
    pub(super) fn take(&self) -> bool {
        let every = millis(self.every);
        let most = every.saturating_mul(u64::from(self.at_once));
        let now = now();
        let taken =
            self.full_at
                .get()
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |full_at| {
                    let next = full_at.max(now).saturating_add(every);
                    (next - now <= most).then_some(next)
                });
        taken.is_ok()
    }
}

fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    // The clock starts at zero.
    Duration::try_from(now).map_or(0, millis)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
