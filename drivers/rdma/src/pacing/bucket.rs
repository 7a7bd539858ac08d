//! A token bucket.

use std::time::Duration;

/// A token bucket: limits the rate, and allows a burst. Time is counted from a fixed moment and
/// must not decrease.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bucket {
    /// In bytes per second; `None` for no limit.
    rate: Option<u64>,
    /// Bytes that may pass at once after a pause.
    burst: u64,
    /// When the bucket will be full.
    full_at: Duration,
}

impl Bucket {
    /// `burst` is in bytes, `rate` in bytes per second.
    pub(super) fn new(rate: Option<u64>, burst: u64) -> Self {
        Self {
            rate: rate.filter(|&rate| rate > 0),
            burst,
            full_at: Duration::ZERO,
        }
    }

    /// In bytes per second.
    pub(super) fn rate(&self) -> Option<u64> {
        self.rate
    }

    /// Changes the limits. The bucket keeps its level.
    pub(super) fn set(&mut self, rate: Option<u64>, burst: u64) {
        (self.rate, self.burst) = (rate.filter(|&rate| rate > 0), burst);
    }

    /// When this many bytes may pass: `now` or later. More bytes than the burst pass when the
    /// bucket is full.
    pub(super) fn ready_at(&self, bytes: u64, now: Duration) -> Duration {
        // The bucket has enough tokens when at most `burst - bytes` are missing.
        let slack = self.slack(bytes);
        slack.map_or(now, |slack| self.full_at.saturating_sub(slack).max(now))
    }

    /// How long before it is full the bucket passes this many bytes; `None` without a rate.
    pub(super) fn slack(&self, bytes: u64) -> Option<Duration> {
        let slack = nanoseconds(self.burst.saturating_sub(bytes)) / u128::from(self.rate?);
        Some(Duration::from_nanos(
            u64::try_from(slack).unwrap_or(u64::MAX),
        ))
    }

    /// Takes the tokens for bytes that pass now.
    pub(super) fn pass(&mut self, bytes: u64, now: Duration) {
        if let Some(rate) = self.rate {
            // Rounded up: passing late is allowed, passing early is not.
            self.full_at = self.full_at.max(now).saturating_add(time_of(bytes, rate));
        }
    }

    /// Has no more tokens than `other`.
    pub(super) fn follow(&mut self, other: &Self) {
        self.full_at = self.full_at.max(other.full_at);
    }
}

/// How long this many bytes take at a rate in bytes per second.
pub(crate) fn time_of(bytes: u64, rate: u64) -> Duration {
    let nanoseconds = nanoseconds(bytes).div_ceil(u128::from(rate.max(1)));
    Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
}

/// How many nanoseconds this many bytes take at one byte per second.
fn nanoseconds(bytes: u64) -> u128 {
    u128::from(bytes) * 1_000_000_000
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn without_a_rate_everything_passes() {
        let mut bucket = Bucket::new(None, 0);
        bucket.pass(u64::MAX, Duration::ZERO);
        assert_eq!(bucket.ready_at(u64::MAX, Duration::ZERO), Duration::ZERO);
    }

    #[test]
    fn a_burst_passes_at_once_and_then_the_rate_holds() {
        let mut bucket = Bucket::new(Some(1000), 100);
        for _ in 0..2 {
            assert_eq!(bucket.ready_at(50, Duration::ZERO), Duration::ZERO);
            bucket.pass(50, Duration::ZERO);
        }
        assert_eq!(
            bucket.ready_at(50, Duration::ZERO),
            Duration::from_millis(50)
        );
        // A message larger than the burst waits for a full bucket.
        assert_eq!(
            bucket.ready_at(500, Duration::ZERO),
            Duration::from_millis(100)
        );
    }

    proptest! {
        /// A policer with this rate and burst drops no message that is sent as early as allowed.
        #[test]
        fn a_policer_lets_everything_through(
            rate in 1_u64..10_000_000_000,
            burst in 1_u64..10_000_000,
            messages in proptest::collection::vec((1_u64..=1000, 0_u64..50_000_000), 1..100),
        ) {
            let mut bucket = Bucket::new(Some(rate), burst);
            let mut now = Duration::ZERO;
            let (mut tokens, mut last) = (burst as f64, Duration::ZERO);
            for (share, pause) in messages {
                let bytes = (burst * share / 1000).max(1);
                now = bucket.ready_at(bytes, now + Duration::from_nanos(pause));
                bucket.pass(bytes, now);
                tokens = (tokens + (now - last).as_secs_f64() * rate as f64).min(burst as f64);
                last = now;
                tokens -= bytes as f64;
                prop_assert!(tokens >= -1.0 - 1e-6 * burst as f64, "{tokens} tokens are left");
            }
        }
    }
}
