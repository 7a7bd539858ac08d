//! Mappings that are kept for the next channels.
//!
//! A channel that gets one finds its pages populated. Each is kept for a while, and unmapped earlier
//! when another channel needs the memory.

use std::time::{Duration, Instant};

use super::recycled::Used;

/// How long a mapping is kept.
pub(super) const KEPT_IDLE: Duration = Duration::from_secs(10);

/// The idle mappings, the oldest first.
#[derive(Debug, Default)]
pub(super) struct IdleMappings {
    mappings: Vec<Idle>,
    /// Those that nothing uses any more.
    evicted: Vec<Used>,
}

#[derive(Debug)]
struct Idle {
    pages: Used,
    since: Instant,
}

impl IdleMappings {
    /// Their length in all.
    pub(super) fn bytes(&self) -> u64 {
        let lengths = self.mappings.iter().map(|idle| idle.pages.length() as u64);
        lengths.sum()
    }

    pub(super) fn add(&mut self, pages: Used) {
        self.mappings.push(Idle {
            pages,
            since: Instant::now(),
        });
    }

    /// Takes a mapping of this length, if there is one.
    pub(super) fn take(&mut self, length: u64) -> Option<Used> {
        let fits = |idle: &Idle| idle.pages.length() as u64 == length;
        // The most recently used mapping is the most likely one in the processor's cache.
        let found = self.mappings.iter().rposition(fits)?;
        Some(self.mappings.remove(found).pages)
    }

    /// Gives up the oldest until the others fit into `room`.
    pub(super) fn evict(&mut self, room: u64) {
        while self.bytes() > room {
            self.evicted.push(self.mappings.remove(0).pages);
        }
    }

    /// Gives up those that have been idle for long. Returns when the next one is due, if there is one.
    pub(super) fn expire(&mut self, now: Instant) -> Option<Duration> {
        let age = |idle: &Idle| now.saturating_duration_since(idle.since);
        let old = self.mappings.extract_if(.., |idle| age(idle) >= KEPT_IDLE);
        self.evicted.extend(old.map(|idle| idle.pages));
        self.mappings.first().map(|oldest| KEPT_IDLE - age(oldest))
    }

    /// The mappings that were given up, for the caller to unmap: that takes long for gigabytes.
    pub(super) fn take_evicted(&mut self) -> Vec<Used> {
        std::mem::take(&mut self.evicted)
    }
}
