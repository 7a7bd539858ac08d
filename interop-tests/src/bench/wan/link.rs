//! One direction of an emulated network path: a queue, a link with a rate, and a propagation delay.
//!
//! It computes the arrival time of a packet, or its loss. It has no clock and moves no packets.

use std::time::Duration;

/// The properties of a path, the same in both directions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Path {
    /// The round-trip time without queueing.
    pub round_trip: Duration,
    /// The rate of the link; `None` for no limit.
    pub bits_per_second: Option<u64>,
    /// The probability of random loss, from 0 to 1.
    pub loss: f64,
}

/// One direction of a [`Path`].
#[derive(Debug)]
pub struct Link {
    path: Path,
    /// The length of the queue in bytes.
    queue_bytes: u64,
    /// The time at which the last accepted byte leaves the link, since the start.
    free: Duration,
    /// The state of the random number generator (xorshift64, Marsaglia 2003).
    state: u64,
}

/// The minimum queue: a burst of a sender.
const LEAST_QUEUE_BYTES: u64 = 1 << 20;

impl Path {
    /// The bandwidth-delay product.
    pub fn product_bytes(self) -> u64 {
        let bits = u128::from(self.bits_per_second.unwrap_or_default());
        let bytes = bits * self.round_trip.as_nanos() / 8 / 1_000_000_000;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

impl Link {
    /// An idle link. The same seed loses the same packets.
    pub fn new(path: Path, seed: u64) -> Self {
        Self {
            path,
            queue_bytes: path.product_bytes().max(LEAST_QUEUE_BYTES),
            free: Duration::ZERO,
            // Zero is a fixed point of xorshift.
            state: seed | 1,
        }
    }

    /// The arrival time, since the start, of a packet of `bytes` bytes that is sent `now`; `None` when it is
    /// lost, at random or because the queue is full.
    pub fn arrival(&mut self, now: Duration, bytes: usize) -> Option<Duration> {
        if self.random() < self.path.loss {
            return None;
        }
        let one_way = self.path.round_trip / 2;
        let Some(rate) = self.path.bits_per_second else {
            return Some(now + one_way);
        };
        let start = self.free.max(now);
        if carried(start - now, rate) > self.queue_bytes {
            return None;
        }
        self.free = start + Duration::from_nanos(bytes as u64 * 8 * 1_000_000_000 / rate.max(1));
        Some(self.free + one_way)
    }

    /// Uniformly distributed from 0 to 1.
    #[expect(clippy::cast_precision_loss, reason = "53 bits are exact")]
    fn random(&mut self) -> f64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// The bytes that a link carries in a time.
fn carried(time: Duration, bits_per_second: u64) -> u64 {
    let bytes = u128::from(bits_per_second) * time.as_nanos() / 8 / 1_000_000_000;
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: Path = Path {
        round_trip: Duration::from_millis(100),
        bits_per_second: Some(8_000_000),
        loss: 0.0,
    };

    #[test]
    fn packets_follow_each_other_at_the_rate_of_the_link() {
        let mut link = Link::new(PATH, 1);
        // 1000 bytes take a millisecond; the propagation takes 50.
        let arrivals = [0, 0, 10].map(|now| link.arrival(Duration::from_millis(now), 1000));
        assert_eq!(
            arrivals,
            [51, 52, 61].map(|at| Some(Duration::from_millis(at)))
        );
    }

    #[test]
    fn a_full_queue_drops_packets() {
        let mut link = Link::new(PATH, 1);
        let accepted = (0..2000).filter(|_| link.arrival(Duration::ZERO, 1000).is_some());
        // The minimum queue is 1 MiB; the packet that fills it is the last accepted one.
        assert_eq!(accepted.count(), 1049);
        assert!(link.arrival(Duration::from_millis(10), 1000).is_some());
    }

    #[test]
    fn random_loss_has_the_configured_rate_and_is_reproducible() {
        let path = Path {
            loss: 0.01,
            bits_per_second: None,
            ..PATH
        };
        let lost = |seed| -> Vec<bool> {
            let mut link = Link::new(path, seed);
            (0..100_000)
                .map(|_| link.arrival(Duration::ZERO, 1000).is_none())
                .collect()
        };
        let first = lost(7);
        let count = first.iter().filter(|lost| **lost).count();
        assert!((800..1200).contains(&count), "{count}");
        assert_eq!(first, lost(7));
        assert_ne!(first, lost(8));
    }

    #[test]
    fn the_product_is_bandwidth_times_delay() {
        assert_eq!(PATH.product_bytes(), 100_000);
    }
}
