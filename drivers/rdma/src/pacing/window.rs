//! The bound of the bytes in flight towards a policer on a short path.
//!
//! The device of a busy host may send several messages late and at once.
//! The time of sending is only known to be before the arrival. So the bytes in flight are counted as
//! sent at this moment, and arrived bytes as sent at the latest possible time. Then a policer passes
//! all of them, however late they are sent.

use std::time::Duration;

use super::bucket::Bucket;

/// Counts arrivals. Times are counted from one moment, as everywhere in pacing.
#[derive(Debug)]
pub(super) struct Window {
    bucket: Bucket,
    burst: u64,
}

impl Window {
    pub(super) fn new() -> Self {
        Self {
            bucket: Bucket::new(None, 0),
            burst: 0,
        }
    }

    /// Sets the rate in bytes per second, and the bytes that a policer passes at once.
    pub(super) fn set(&mut self, rate: u64, burst: u64) {
        self.bucket.set(Some(rate), burst);
        self.burst = burst;
    }

    /// This many bytes arrived, and were sent at `left_at` or earlier.
    pub(super) fn arrived(&mut self, bytes: u64, left_at: Duration) {
        self.bucket.pass(bytes, left_at);
    }

    /// When this many bytes may be in flight: `now` or later; `None` if some of them must arrive
    /// first.
    pub(super) fn ready_at(&self, under_way: u64, now: Duration) -> Option<Duration> {
        (under_way <= self.burst).then(|| self.bucket.ready_at(under_way, now))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn late_arrivals_count_as_sent_late() {
        const MILLISECOND: Duration = Duration::from_millis(1);
        let mut window = Window::new();
        window.set(1_000_000, 3000);
        assert_eq!(window.ready_at(3000, Duration::ZERO), Some(Duration::ZERO));
        assert_eq!(window.ready_at(3001, Duration::ZERO), None);
        window.arrived(2000, 10 * MILLISECOND);
        let ready_at = |bytes| window.ready_at(bytes, 10 * MILLISECOND);
        assert_eq!(ready_at(1000), Some(10 * MILLISECOND));
        assert_eq!(ready_at(2000), Some(11 * MILLISECOND));
        assert_eq!(ready_at(3000), Some(12 * MILLISECOND));
    }

    proptest! {
        /// At any times and in any clusters a device sends, a policer with this rate and burst drops no
        /// packet.
        #[test]
        fn a_policer_passes_messages_however_late_they_leave(
            rate in 1_000_u64..1_000_000_000,
            burst in 100_u64..1_000_000,
            messages in proptest::collection::vec((1_u64..=100, 0_u64..3), 1..100),
        ) {
            let mut window = Window::new();
            window.set(rate, burst);
            let (mut now, mut under_way) = (Duration::ZERO, Vec::new());
            let (mut tokens, mut last) = (burst as f64, Duration::ZERO);
            let mut leave = |under_way: &mut Vec<u64>, window: &mut Window, now: Duration| {
                for bytes in under_way.drain(..) {
                    tokens = (tokens + (now - last).as_secs_f64() * rate as f64).min(burst as f64);
                    last = now;
                    tokens -= bytes as f64;
                    window.arrived(bytes, now);
                }
                tokens
            };
            for (share, leaves) in messages {
                let bytes = (burst * share / 100).max(1);
                loop {
                    let all = under_way.iter().sum::<u64>() + bytes;
                    match window.ready_at(all, now) {
                        Some(at) if at == now => break,
                        Some(at) => now = at,
                        None => {
                            now += Duration::from_micros(bytes % 977);
                            leave(&mut under_way, &mut window, now);
                        }
                    }
                }
                under_way.push(bytes);
                if leaves == 0 {
                    now += Duration::from_micros(bytes % 1009);
                    leave(&mut under_way, &mut window, now);
                }
            }
            let left = leave(&mut under_way, &mut window, now);
            prop_assert!(left >= -1.0 - 1e-6 * burst as f64, "{left} tokens are left");
        }
    }
}
