//! What may be under way to a policer on a short path.
//!
//! A host may be busy, and its device send late, and all together, what was posted one message after the other. When a
//! message left nobody knows, but that it was before it arrived. So what is under way counts as if it left at this moment, and what
//! has arrived as if it had left as late as it can have: then a policer takes it all, however late it comes.

use std::time::Duration;

use super::bucket::Bucket;

/// Counts what arrives. Time is that since some moment, as everywhere in pacing.
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

    /// From now on: the rate, in bytes per second, and how many bytes a policer takes at once.
    pub(super) fn set(&mut self, rate: u64, burst: u64) {
        self.bucket.set(Some(rate), burst);
        self.burst = burst;
    }

    /// So many bytes arrived, and left at `left_at` or earlier.
    pub(super) fn arrived(&mut self, bytes: u64, left_at: Duration) {
        self.bucket.pass(bytes, left_at);
    }

    /// When so many bytes may be under way: `now` or later, or `None` if some of them have to arrive first.
    pub(super) fn ready_at(&self, under_way: u64, now: Duration) -> Option<Duration> {
        (under_way <= self.burst).then(|| self.bucket.ready_at(under_way, now))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_arrived_late_may_have_left_late() {
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
        /// Whenever a device sends what it was given, and in whatever clusters: a policer of this rate and burst drops nothing.
        #[test]
        fn a_policer_takes_it_however_late_it_leaves(
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
