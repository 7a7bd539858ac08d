//! The cost of moving ranges.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Measures a range, on the thread that moves it.
#[derive(Debug)]
pub struct Stopwatch {
    cpu: Duration,
    begin: Instant,
}

/// The cost of a range.
#[derive(Debug, Clone, Copy)]
pub struct Cost {
    pub(super) bytes: u64,
    /// CPU time of the thread, and of its helpers.
    pub(super) cpu: Duration,
    pub(super) elapsed: Duration,
}

/// The cost of one method in a trial.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tally {
    pub(super) bytes: u64,
    /// CPU time of the thread and its helpers, for all ranges.
    cpu: Duration,
    /// Wall-clock time, for all ranges.
    elapsed: Duration,
    /// Seconds per gigabyte, of the fastest range.
    fastest: f64,
}

impl Stopwatch {
    /// Begins now.
    pub fn start() -> Self {
        Self {
            cpu: cpu_time(),
            begin: Instant::now(),
        }
    }

    /// The cost of moving `bytes` bytes since the start.
    pub fn stop(&self, bytes: u64) -> Cost {
        Cost {
            bytes,
            cpu: cpu_time().saturating_sub(self.cpu),
            elapsed: self.begin.elapsed(),
        }
    }
}

impl Cost {
    /// With the processor time of other threads that moved some of the bytes.
    #[must_use]
    pub fn with_helpers(self, cpu: Duration) -> Self {
        Self {
            cpu: self.cpu + cpu,
            ..self
        }
    }
}

impl Tally {
    pub(super) fn none() -> Self {
        Self {
            bytes: 0,
            cpu: Duration::ZERO,
            elapsed: Duration::ZERO,
            fastest: f64::INFINITY,
        }
    }

    pub(super) fn note(&mut self, cost: Cost) {
        self.bytes += cost.bytes;
        self.cpu += cost.cpu;
        self.elapsed += cost.elapsed;
        self.fastest = self.fastest.min(per_gigabyte(cost.elapsed, cost.bytes));
    }

    /// Seconds of CPU time per gigabyte.
    pub(super) fn cpu(&self) -> f64 {
        per_gigabyte(self.cpu, self.bytes)
    }

    /// Seconds of wall-clock time per gigabyte, waiting included.
    pub(super) fn elapsed(&self) -> f64 {
        per_gigabyte(self.elapsed, self.bytes)
    }

    /// Seconds per gigabyte of the fastest range, which waited least.
    pub(super) fn fastest(&self) -> f64 {
        self.fastest
    }
}

fn per_gigabyte(time: Duration, bytes: u64) -> f64 {
    // A trial moves so little that an f64 counts its bytes.
    #[expect(clippy::cast_precision_loss, reason = "it is shown with two digits")]
    let gigabytes = bytes as f64 / 1e9;
    time.as_secs_f64() / gigabytes
}

/// The processor time of this thread so far.
pub fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}
