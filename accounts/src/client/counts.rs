//! Counters of broker processes, for monitoring.

use std::sync::atomic::{AtomicU64, Ordering};

/// What has happened to broker processes since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BrokerCounts {
    /// Processes that were started and answered.
    pub started: u64,
    /// Processes that could not be started, or did not answer.
    pub not_started: u64,
    /// Processes that ended, or violated the protocol, during a call.
    pub died: u64,
}

/// The counters themselves.
#[derive(Debug, Default)]
pub(super) struct Counts {
    started: AtomicU64,
    not_started: AtomicU64,
    died: AtomicU64,
}

impl Counts {
    /// Counts a process that was started.
    pub(super) fn start(&self) {
        self.started.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a process that could not be started.
    pub(super) fn failure(&self) {
        self.not_started.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a process that ended during a call.
    pub(super) fn death(&self) {
        self.died.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn now(&self) -> BrokerCounts {
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        BrokerCounts {
            started: value(&self.started),
            not_started: value(&self.not_started),
            died: value(&self.died),
        }
    }
}
