//! The completions that a sender waits for, and its timeouts.

use std::time::Duration;

use super::{End, QueuePair, Sender};
use crate::engine::crawl::Crawl;

impl Sender {
    /// Whether progress depends on completions, and not only on messages of the peer.
    pub(crate) fn awaits_completions(&self) -> bool {
        let is_full = |queue_pair: &QueuePair| {
            !queue_pair.lost && queue_pair.pending() >= self.settings.depth
        };
        let is_ending = self.is_posted() && matches!(self.end, End::Announced { .. });
        is_ending
            || self.held > 0
            || self.is_leaving()
            || self.pacers.awaits_completions()
            || self.queue_pairs.iter().any(is_full)
    }

    /// See [`crate::pacing::Pacer::spin_time`].
    pub(crate) fn spin_time(&self) -> Duration {
        self.pacers.spin_time(self.message_bytes())
    }

    /// Since when a queue pair has had outstanding requests without a break.
    pub(crate) fn busy_since(&self, queue_pair: usize) -> Option<Duration> {
        let on = &self.queue_pairs[queue_pair];
        (on.pending() > 0).then_some(on.busy)
    }

    /// Detectors of crawls on each rail, as quick as the stall timeout; none if queue pairs are not given up at all.
    pub(in crate::engine) fn crawls(&self) -> Vec<Option<Crawl>> {
        let Some(stall) = self.settings.stall else {
            return Vec::new();
        };
        let crawl = |rail| Some(Crawl::new(stall, self.pacers.arrived(rail)));
        (0..self.pacers.rails()).map(crawl).collect()
    }

    /// Whether a queue pair has outstanding requests and none completed within the stall timeout.
    pub(crate) fn has_stalled(&self, queue_pair: usize, now: Duration) -> bool {
        self.stalls_at(queue_pair).is_some_and(|at| at <= now)
    }

    /// When the next queue pair will have stalled if no request completes before. A provider that does
    /// not signal completions is polled in between.
    pub(crate) fn stall_at(&self, now: Duration) -> Option<Duration> {
        let at = (0..self.queue_pairs.len())
            .filter_map(|queue_pair| self.stalls_at(queue_pair))
            .min()?;
        let look_at = self.settings.stall.map(|stall| now + stall / 4);
        let look_at = look_at.filter(|_| !self.awaits_completions());
        Some(look_at.map_or(at, |look_at| at.min(look_at)))
    }

    fn stalls_at(&self, queue_pair: usize) -> Option<Duration> {
        let on = &self.queue_pairs[queue_pair];
        let stall = self.settings.stall.filter(|_| on.pending() > 0);
        let stalls_at = stall.map(|stall| on.progress.saturating_add(stall));
        let overdue_at = self.pacers.overdue_at(queue_pair);
        stalls_at.into_iter().chain(overdue_at).min()
    }
}
