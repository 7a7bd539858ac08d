//! An adapter that limits the rate of its queue pairs, and whether it does.
//!
//! Its packets are spaced, so that the software may hand over more at once than a policer's burst. Bytes that complete earlier than
//! the limit allows show that the adapter does not keep to it: then the software paces as for any other adapter. They do not show
//! it where a round trip is longer than what is handed over takes.

use std::time::Duration;

use super::bucket::time_of;

/// The queue pairs of a sender, each with the same limit.
#[derive(Debug)]
pub(super) struct Limiter {
    /// The limit of a queue pair in bytes per second.
    rate: u64,
    runs: Vec<Run>,
}

/// The bytes of a queue pair since it was idle.
#[derive(Debug, Clone, Copy, Default)]
struct Run {
    /// When the first one was handed over.
    began: Duration,
    /// Bytes that have arrived since.
    bytes: u64,
    /// So many messages were handed over under an earlier limit, and do not count.
    earlier: usize,
}

/// So many bytes show whether a limit holds: adapters send some without a pause.
const LEAST_BYTES: u64 = 1 << 20;

impl Limiter {
    pub(super) fn new(rate: u64, queue_pairs: usize) -> Self {
        Self {
            rate,
            runs: vec![Run::default(); queue_pairs],
        }
    }

    /// The limit of a queue pair in bytes per second.
    pub(super) fn rate(&self) -> u64 {
        self.rate
    }

    /// The limit is another one for messages that are handed over from now on. So many are in flight on each queue pair.
    pub(super) fn set(&mut self, rate: u64, in_flight: impl Iterator<Item = usize>) {
        self.rate = rate;
        for (run, earlier) in self.runs.iter_mut().zip(in_flight) {
            run.earlier = earlier;
        }
    }

    /// A message is handed over on a queue pair that is idle.
    pub(super) fn begins(&mut self, queue_pair: usize, now: Duration) {
        self.runs[queue_pair] = Run {
            began: now,
            ..Run::default()
        };
    }

    /// A message of so many bytes has arrived. Returns whether that may be so early.
    pub(super) fn arrived(&mut self, queue_pair: usize, bytes: u64, now: Duration) -> bool {
        let run = &mut self.runs[queue_pair];
        if run.earlier > 0 {
            run.earlier -= 1;
            // The next ones have left since.
            (run.began, run.bytes) = (now, 0);
            return true;
        }
        run.bytes = run.bytes.saturating_add(bytes);
        let took = now.saturating_sub(run.began);
        // A third is tolerated: the limit counts headers, and adapters have few rates.
        run.bytes < LEAST_BYTES || took * 3 >= time_of(run.bytes, self.rate) * 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a queue pair seems to keep to a limit of 1 GB/s that sends so many bytes per second.
    fn keeps_to_it(rate: u64, round_trip: Duration) -> bool {
        let mut limiter = Limiter::new(1_000_000_000, 2);
        let start = Duration::from_secs(5);
        limiter.begins(1, start);
        (1..=40).all(|count| {
            let sent = count * 100_000;
            limiter.arrived(1, 100_000, start + round_trip + time_of(sent, rate))
        })
    }

    #[test]
    fn a_limit_that_does_not_hold_is_noticed() {
        let near = Duration::from_micros(10);
        assert!(keeps_to_it(1_000_000_000, near) && keeps_to_it(1_200_000_000, near));
        assert!(!keeps_to_it(2_000_000_000, near) && !keeps_to_it(12_500_000_000, near));
        // Late arrivals are no evidence.
        assert!(keeps_to_it(100_000_000, near));
        assert!(keeps_to_it(12_500_000_000, Duration::from_millis(100)));
    }

    /// What was handed over before arrives at the earlier rate.
    #[test]
    fn messages_in_flight_do_not_count_for_another_limit() {
        let mut limiter = Limiter::new(8_000_000_000, 1);
        let start = Duration::from_secs(5);
        let message = 1 << 20;
        limiter.begins(0, start);
        limiter.set(1_000_000_000, [10].into_iter());
        assert_eq!(limiter.rate(), 1_000_000_000);
        let fast = |count: u64| start + time_of(count * message, 8_000_000_000);
        assert!((1..=10).all(|count| limiter.arrived(0, message, fast(count))));
        let keeps = (11..=20).all(|count| limiter.arrived(0, message, fast(count)));
        assert!(!keeps, "these were handed over later");
    }

    #[test]
    fn a_pause_begins_a_new_run() {
        let mut limiter = Limiter::new(1_000_000, 1);
        let now = Duration::from_secs(100);
        limiter.begins(0, Duration::ZERO);
        assert!(limiter.arrived(0, 2 << 20, now), "two seconds are enough");
        limiter.begins(0, now);
        assert!(!limiter.arrived(0, 2 << 20, now + Duration::from_millis(1)));
    }
}
