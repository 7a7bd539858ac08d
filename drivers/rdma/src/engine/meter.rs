//! What a channel shows to other threads while it runs.
//!
//! Only the channel's thread writes, and no value orders anything, so each is a relaxed store.

use std::sync::atomic::{AtomicU64, Ordering};

use gridhaul_stack::{Detail, Watch};

use super::receiver::Receiver;
use super::sender::Sender;

/// The counters of a channel, and the state of its rings.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    /// Queue pairs that were given up because too little completed on them.
    pub(super) stalls: Count,
    /// How many times a queue pair was restored.
    pub(super) restored: Count,
    /// How many times credit was returned.
    pub(super) credits: Count,
    /// How many times a stream moved to another ring.
    pub(super) moves: Count,
    /// The paced rate in bytes per second; 0 if messages are not paced.
    rate: AtomicU64,
    /// Bytes of the own ring that the peer may still need.
    to_send: AtomicU64,
    /// Bytes that arrived and were not taken out of the ring.
    to_take: AtomicU64,
}

/// A counter that one thread writes.
#[derive(Debug, Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    pub(super) fn add_one(&self) {
        self.0.store(self.value() + 1, Ordering::Relaxed);
    }

    pub(super) fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Meter {
    /// Notes the state of both directions.
    pub(super) fn note(&self, sender: &Sender, receiver: &Receiver) {
        let values = [
            (&self.rate, sender.rate().unwrap_or(0)),
            (&self.to_send, sender.filled() - sender.needed_from()),
            (&self.to_take, receiver.arrived_bytes()),
        ];
        for (shown, value) in values {
            shown.store(value, Ordering::Relaxed);
        }
    }

    /// Queue pairs that were given up until now.
    #[cfg(any(test, feature = "sim"))]
    pub(crate) fn stalls(&self) -> u64 {
        self.stalls.value()
    }

    /// How many times streams moved to another ring until now.
    #[cfg(test)]
    pub(crate) fn moves(&self) -> u64 {
        self.moves.value()
    }

    /// The counters, by the names of the log.
    pub(crate) fn counts(&self) -> [Detail; 4] {
        [
            Detail::count("ring-changes", self.moves.value()),
            Detail::count("credits", self.credits.value()),
            Detail::count("stalls", self.stalls.value()),
            Detail::count("restored", self.restored.value()),
        ]
    }
}

impl Watch for Meter {
    fn details(&self) -> Vec<Detail> {
        let value = |shown: &AtomicU64| shown.load(Ordering::Relaxed);
        let mut details = Vec::from(self.counts());
        let rate = Some(value(&self.rate)).filter(|rate| *rate > 0);
        details.extend(rate.map(|rate| Detail::setting("rate", rate)));
        details.extend([
            Detail::holding("ring-bytes-to-send", value(&self.to_send)),
            Detail::holding("ring-bytes-to-take", value(&self.to_take)),
        ]);
        details
    }
}
