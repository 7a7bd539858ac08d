//! Detects a queue pair whose device mostly retransmits.
//!
//! Behind a policer that drops what exceeds its rate, a message gets through now and then, so a
//! timeout on completions never expires. Such a channel differs from a slow path, a slow peer and a
//! busy host in two ways: the device retransmits again and again, and few bytes arrive
//! nevertheless.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A channel's recent progress.
#[derive(Debug)]
pub(super) struct Crawl {
    interval: Duration,
    /// Bytes that arrived over all channels of the path, because a device counts retransmissions
    /// for all of them together.
    arrived: Arc<AtomicU64>,
    /// This channel's share of `arrived`.
    added: u64,
    /// One sample for each interval, the oldest first.
    samples: VecDeque<Sample>,
}

/// Progress at one moment. The counters may start at any value.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample {
    pub(super) at: Duration,
    /// Retransmissions (go-back-N events) that the device has counted.
    pub(super) repeats: u64,
    /// Bytes that arrived over this channel.
    pub(super) arrived: u64,
}

/// Arrived bytes are compared over this many intervals, so a crawl is detected one interval later.
const INTERVALS: u32 = 2;

/// Fewer retransmissions than this may be random loss.
const LEAST_REPEATS: u64 = 8;

/// A policer's typical burst. A path that loses one packet in a thousand at random delivers several
/// times as much between two retransmissions.
const BURST_BYTES: u64 = 1 << 20;

/// A channel that delivers more than this does not crawl, however little a short ring keeps in
/// flight.
const LEAST_BYTES: u64 = 8 << 20;

impl Crawl {
    /// Detects a crawl within `time`.
    pub(super) fn new(time: Duration, arrived: Arc<AtomicU64>) -> Self {
        Self {
            interval: time / (INTERVALS + 1),
            arrived,
            added: 0,
            samples: VecDeque::new(),
        }
    }

    /// When the next sample is due.
    pub(super) fn due_at(&self) -> Duration {
        let last = self.samples.back();
        last.map_or(Duration::ZERO, |last| last.at + self.interval)
    }

    /// Takes a sample. Returns the time since which the channel crawls, if it does. `under_way` is
    /// the number of bytes that the device has accepted and that have not arrived.
    pub(super) fn look(
        &mut self,
        mut sample: Sample,
        under_way: u64,
        message_bytes: u64,
    ) -> Option<Duration> {
        let more = sample.arrived.saturating_sub(self.added);
        self.added += more;
        sample.arrived = self.arrived.fetch_add(more, Ordering::Relaxed) + more;
        if self.is_full() {
            self.samples.pop_front();
        }
        self.samples.push_back(sample);
        let first = *self.samples.front()?;
        let repeats = sample.repeats.saturating_sub(first.repeats);
        let arrived = sample.arrived.saturating_sub(first.arrived);
        // A retransmission repeats everything in flight, and a policer passes at most its burst of
        // it. A device that keeps little in flight repeats only a few messages.
        let bursts = repeats.saturating_mul(BURST_BYTES);
        let messages = repeats.saturating_mul(message_bytes) / 4;
        let little = under_way.max(LEAST_BYTES).min(bursts).max(messages);
        let is_crawl = self.is_full() && repeats >= LEAST_REPEATS;
        (is_crawl && arrived < little).then_some(first.at)
    }

    /// Discards all samples, because the caller has acted on them.
    pub(super) fn forget(&mut self) {
        self.samples.clear();
    }

    /// Whether the samples cover all intervals.
    fn is_full(&self) -> bool {
        self.samples.len() > INTERVALS as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const MIB: u64 = 1 << 20;

    /// Drives a channel with so many retransmissions and arrived bytes per second, and 16 MiB in
    /// flight; returns when it is reported as crawling.
    fn noticed(repeats: u64, arrived: u64) -> Option<u64> {
        noticed_with(16 * MIB, repeats, arrived)
    }

    fn noticed_with(under_way: u64, repeats: u64, arrived: u64) -> Option<u64> {
        let mut crawl = Crawl::new(3 * SECOND, Arc::default());
        (0..20_u32).find_map(|second| {
            let sample = Sample {
                at: second * SECOND,
                repeats: u64::from(second) * repeats,
                arrived: u64::from(second) * arrived,
            };
            assert!(crawl.due_at() <= sample.at);
            let since = crawl.look(sample, under_way, 64 << 10)?;
            assert!(since < sample.at);
            Some(sample.at.as_secs())
        })
    }

    #[test]
    fn a_crawl_is_reported_until_it_is_handled() {
        let mut crawl = Crawl::new(3 * SECOND, Arc::default());
        let look = |crawl: &mut Crawl, second: u32| {
            let sample = Sample {
                at: second * SECOND,
                repeats: 100 * u64::from(second),
                arrived: 0,
            };
            crawl.look(sample, 16 * MIB, 64 << 10)
        };
        let reported: Vec<_> = (0..4).map(|second| look(&mut crawl, second)).collect();
        assert_eq!(reported, [None, None, Some(Duration::ZERO), Some(SECOND)]);
        crawl.forget();
        assert_eq!(look(&mut crawl, 4), None);
    }

    #[test]
    fn a_crawl_is_noticed_in_time() {
        assert_eq!(noticed(1000, 2 * MIB), Some(2));
        assert_eq!(noticed(8, MIB), Some(2));
        assert_eq!(noticed(100, 0), Some(2));
    }

    #[test]
    fn a_crawl_with_a_short_ring_is_noticed() {
        assert_eq!(noticed_with(MIB / 2, 100, 2 * MIB), Some(2));
        assert_eq!(noticed_with(MIB / 2, 100, 5 * MIB), None);
        assert_eq!(noticed_with(MIB / 2, 3, MIB), None, "chance");
    }

    #[test]
    fn one_of_many_channels_does_not_crawl_while_much_arrives_over_all() {
        let path = Arc::default();
        let mut channels = [(); 64].map(|()| Crawl::new(3 * SECOND, Arc::clone(&path)));
        for second in 0..20_u32 {
            for crawl in &mut channels {
                let sample = Sample {
                    at: second * SECOND,
                    repeats: u64::from(second) * 1000,
                    arrived: u64::from(second) * MIB,
                };
                assert_eq!(crawl.look(sample, MIB, 64 << 10), None);
            }
        }
    }

    #[test]
    fn what_is_slow_or_loses_little_does_not_crawl() {
        assert_eq!(noticed(0, 0), None, "no peer answers");
        assert_eq!(noticed(0, MIB), None, "a slow path");
        assert_eq!(noticed(3, 5 * MIB), None, "chance");
        assert_eq!(noticed(5, 7 * MIB), None, "chance, and much under way");
        assert_eq!(
            noticed(100, 500 * MIB),
            None,
            "a quick path that loses much"
        );
    }
}
