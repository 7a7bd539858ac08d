//! How many bytes per second the transfers of a member move.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use gridhaul_transfer::RunningTransfer;

use crate::sync::lock;

/// How often the transfers are asked at most.
const INTERVAL: Duration = Duration::from_millis(500);

/// Measures the transfers of a member.
#[derive(Debug, Default)]
pub(super) struct Meter(Mutex<Measured>);

#[derive(Debug, Default)]
struct Measured {
    next: u64,
    running: HashMap<u64, Weak<dyn RunningTransfer>>,
    /// Of transfers that have ended.
    ended_bytes: u64,
    last: Option<(Instant, u64)>,
    rate: u64,
}

impl Measured {
    fn total(&self) -> u64 {
        let running = self.running.values().filter_map(Weak::upgrade);
        let moved = running.flat_map(|transfer| transfer.progress().stripes);
        self.ended_bytes + moved.sum::<u64>()
    }

    /// Halves the weight of what was measured before with each interval.
    fn measure(&mut self, now: Instant) {
        let Some((before, bytes)) = self.last else {
            self.last = Some((now, self.total()));
            return;
        };
        let passed = now.saturating_duration_since(before);
        if passed < INTERVAL {
            return;
        }
        let total = self.total();
        let micros = u64::try_from(passed.as_micros()).unwrap_or(u64::MAX);
        let moved = total.saturating_sub(bytes);
        let present = moved.saturating_mul(1_000_000) / micros.max(1);
        self.rate = self.rate / 2 + present / 2;
        self.last = Some((now, total));
    }
}

impl Meter {
    /// Bytes per second, recently.
    pub(super) fn rate(&self) -> u64 {
        let mut measured = lock(&self.0);
        measured.measure(Instant::now());
        measured.rate
    }

    /// Registers a transfer that is about to start.
    pub(super) fn begin(self: &Arc<Self>) -> Ticket {
        let mut measured = lock(&self.0);
        measured.next += 1;
        Ticket {
            number: measured.next,
            meter: Arc::clone(self),
        }
    }
}

/// A transfer that is measured.
#[derive(Debug)]
pub(super) struct Ticket {
    meter: Arc<Meter>,
    number: u64,
}

impl Ticket {
    /// The transfer runs. Not called after its end.
    pub(super) fn attach(&self, transfer: &Arc<dyn RunningTransfer>) {
        let mut measured = lock(&self.meter.0);
        measured
            .running
            .insert(self.number, Arc::downgrade(transfer));
    }

    /// The transfer has ended.
    pub(super) fn end(&self, bytes: u64) {
        let mut measured = lock(&self.meter.0);
        measured.running.remove(&self.number);
        measured.ended_bytes = measured.ended_bytes.saturating_add(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_follows_what_was_moved_and_fades() {
        let began = Instant::now();
        let mut measured = Measured::default();
        measured.measure(began);
        measured.ended_bytes = 1_000_000;
        measured.measure(began + Duration::from_millis(100));
        assert_eq!(measured.rate, 0, "too early");
        measured.measure(began + Duration::from_secs(1));
        assert_eq!(measured.rate, 500_000);
        measured.measure(began + Duration::from_secs(2));
        assert_eq!(measured.rate, 250_000);
    }
}
