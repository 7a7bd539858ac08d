//! What it costs to move a piece, and many of them.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Times a piece.
#[derive(Debug)]
pub(crate) struct Watch {
    busy: Duration,
    begin: Instant,
}

/// What a piece cost.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cost {
    pub(super) bytes: u64,
    /// Processor time of the thread.
    pub(super) busy: Duration,
    pub(super) elapsed: Duration,
}

/// What one way cost in a trial.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tally {
    pub(super) bytes: u64,
    /// Processor time of the thread, for all pieces.
    busy: Duration,
    /// From the beginnings to the ends of all pieces.
    elapsed: Duration,
    /// Seconds per gigabyte, of the fastest piece.
    fastest: f64,
}

impl Watch {
    pub(crate) fn start() -> Self {
        Self {
            busy: processor_time(),
            begin: Instant::now(),
        }
    }

    /// What it cost to move so many bytes since the start.
    pub(crate) fn stop(&self, bytes: u64) -> Cost {
        Cost {
            bytes,
            busy: processor_time().saturating_sub(self.busy),
            elapsed: self.begin.elapsed(),
        }
    }
}

impl Tally {
    pub(super) fn none() -> Self {
        Self {
            bytes: 0,
            busy: Duration::ZERO,
            elapsed: Duration::ZERO,
            fastest: f64::INFINITY,
        }
    }

    pub(super) fn note(&mut self, cost: Cost) {
        self.bytes += cost.bytes;
        self.busy += cost.busy;
        self.elapsed += cost.elapsed;
        self.fastest = self.fastest.min(per_gigabyte(cost.elapsed, cost.bytes));
    }

    /// Seconds of processor time per gigabyte.
    pub(super) fn busy(&self) -> f64 {
        per_gigabyte(self.busy, self.bytes)
    }

    /// Seconds per gigabyte, with what the pieces waited for.
    pub(super) fn elapsed(&self) -> f64 {
        per_gigabyte(self.elapsed, self.bytes)
    }

    /// Seconds per gigabyte of the fastest piece: the others had to wait.
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

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}
