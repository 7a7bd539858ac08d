//! One direction of an emulated network path: a queue before a link of some rate, and a long way behind it.
//!
//! It decides when a packet arrives, or that it does not. It has no clock and moves no packet.

use std::time::Duration;

/// What a path is like, the same in both directions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Path {
    /// From one end to the other and back, without a queue.
    pub round_trip: Duration,
    /// What the link carries; as much as it can without.
    pub bits_per_second: Option<u64>,
    /// The share of packets that are lost at random, from 0 to 1.
    pub loss: f64,
}

/// One direction of a [`Path`].
#[derive(Debug)]
pub struct Link {
    path: Path,
    /// Bytes that may wait for the link.
    queue_bytes: u64,
    /// When the last byte of what was accepted leaves the link, since the beginning.
    free: Duration,
    /// The state of the random numbers (xorshift64, Marsaglia 2003).
    state: u64,
}

/// The smallest queue: what a sender may send at once.
const LEAST_QUEUE_BYTES: u64 = 1 << 20;

impl Path {
    /// What is on its way when the link is busy: bandwidth times delay.
    pub fn product_bytes(self) -> u64 {
        let bits = u128::from(self.bits_per_second.unwrap_or_default());
        let bytes = bits * self.round_trip.as_nanos() / 8 / 1_000_000_000;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

impl Link {
    /// A link with nothing on it. The same seed loses the same packets.
    pub fn new(path: Path, seed: u64) -> Self {
        Self {
            path,
            queue_bytes: path.product_bytes().max(LEAST_QUEUE_BYTES),
            free: Duration::ZERO,
            // Zero would stay zero.
            state: seed | 1,
        }
    }

    /// When a packet of so many bytes arrives that is sent `now`, since the beginning; `None` when it is
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

    /// Evenly spread from 0 to 1.
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
        // 1000 bytes take a millisecond; the way takes 50.
        let arrivals = [0, 0, 10].map(|now| link.arrival(Duration::from_millis(now), 1000));
        assert_eq!(
            arrivals,
            [51, 52, 61].map(|at| Some(Duration::from_millis(at)))
        );
    }

    #[test]
    fn a_full_queue_loses_what_comes() {
        let mut link = Link::new(PATH, 1);
        let accepted = (0..2000).filter(|_| link.arrival(Duration::ZERO, 1000).is_some());
        // The least queue is 1 MiB; the packet that fills it is the last one.
        assert_eq!(accepted.count(), 1049);
        assert!(link.arrival(Duration::from_millis(10), 1000).is_some());
    }

    #[test]
    fn the_share_that_was_asked_for_is_lost_and_again_the_same() {
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
    fn the_product_is_what_is_on_its_way() {
        assert_eq!(PATH.product_bytes(), 100_000);
    }
}
