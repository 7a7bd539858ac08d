//! How many bytes the transfers of a member move, and how fast.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use gridhaul_transfer::{Plan, RunningTransfer, Task};

use crate::sync::lock;
use crate::told::Traffic;

/// How often the transfers are asked at most.
const INTERVAL: Duration = Duration::from_millis(500);

/// The direction in which a member moves bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// It receives a file.
    In,
    /// It sends a file or a listing.
    Out,
}

impl Way {
    pub(super) fn of(plan: &Plan) -> Self {
        match plan.task {
            Task::ReceiveFile { .. } | Task::ReceiveBytes(_) => Self::In,
            Task::SendFile { .. } | Task::SendLines(_) => Self::Out,
        }
    }

    fn traffic(self, bytes: u64) -> Traffic {
        match self {
            Self::In => Traffic {
                received: bytes,
                sent: 0,
            },
            Self::Out => Traffic {
                received: 0,
                sent: bytes,
            },
        }
    }
}

/// Measures the transfers of a member.
#[derive(Debug, Default)]
pub(super) struct Meter(Mutex<Measured>);

#[derive(Debug, Default)]
struct Measured {
    next: u64,
    running: HashMap<u64, (Way, Weak<dyn RunningTransfer>)>,
    /// Of transfers that have ended.
    ended: Traffic,
    last: Option<(Instant, Traffic)>,
    rate: Traffic,
}

impl Measured {
    fn total(&self) -> Traffic {
        let moved = self.running.values().filter_map(|(way, transfer)| {
            let stripes = transfer.upgrade()?.progress().stripes;
            // The numbers are from another machine, so that a sum may not fit.
            let bytes = stripes
                .iter()
                .fold(0, |sum: u64, one| sum.saturating_add(*one));
            Some(way.traffic(bytes))
        });
        moved.fold(self.ended, Traffic::plus)
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
        let present = total.since(bytes).per_second(passed);
        self.rate = Traffic {
            received: self.rate.received / 2 + present.received / 2,
            sent: self.rate.sent / 2 + present.sent / 2,
        };
        self.last = Some((now, total));
    }
}

impl Meter {
    /// Bytes per second, recently.
    pub(super) fn rate(&self) -> Traffic {
        let mut measured = lock(&self.0);
        measured.measure(Instant::now());
        measured.rate
    }

    /// Bytes of transfers that have ended.
    pub(super) fn ended(&self) -> Traffic {
        lock(&self.0).ended
    }

    /// Bytes of all transfers.
    pub(super) fn total(&self) -> Traffic {
        lock(&self.0).total()
    }

    /// Registers a transfer that is about to start.
    pub(super) fn begin(self: &Arc<Self>, way: Way) -> Ticket {
        let mut measured = lock(&self.0);
        measured.next += 1;
        Ticket {
            number: measured.next,
            way,
            meter: Arc::clone(self),
        }
    }
}

/// A transfer that is measured.
#[derive(Debug)]
pub(super) struct Ticket {
    meter: Arc<Meter>,
    number: u64,
    way: Way,
}

impl Ticket {
    /// The transfer runs. Not called after its end.
    pub(super) fn attach(&self, transfer: &Arc<dyn RunningTransfer>) {
        let mut measured = lock(&self.meter.0);
        let entry = (self.way, Arc::downgrade(transfer));
        measured.running.insert(self.number, entry);
    }

    /// The transfer has ended.
    pub(super) fn end(&self, bytes: u64) {
        let mut measured = lock(&self.meter.0);
        measured.running.remove(&self.number);
        measured.ended = measured.ended.plus(self.way.traffic(bytes));
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
        measured.ended = Way::In.traffic(1_000_000).plus(Way::Out.traffic(10));
        measured.measure(began + Duration::from_millis(100));
        assert_eq!(measured.rate, Traffic::default(), "too early");
        measured.measure(began + Duration::from_secs(1));
        assert_eq!((measured.rate.received, measured.rate.sent), (500_000, 5));
        measured.measure(began + Duration::from_secs(2));
        assert_eq!(measured.rate.received, 250_000);
    }
}
