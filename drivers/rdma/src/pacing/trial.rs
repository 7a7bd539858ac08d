//! The trial of a rate: the bytes sent since the rate was set, and the used share of the rate.

use std::time::Duration;

/// The trial of a rate, from its first message on. Times are counted from one moment, as everywhere
/// in pacing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Trial {
    began: Duration,
    /// Bytes sent.
    bytes: u64,
    /// The sum of this host's delays when the trial began.
    slept: Duration,
}

impl Trial {
    /// `slept` is the sum of this host's delays so far.
    pub(super) fn new(now: Duration, slept: Duration) -> Self {
        Self {
            began: now,
            bytes: 0,
            slept,
        }
    }

    /// When the first message was sent.
    pub(super) fn began(&self) -> Duration {
        self.began
    }

    /// Bytes sent.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// This many bytes are sent.
    pub(super) fn posted(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    /// The used share of `rate`, in bytes per second, without the times in which this host did not
    /// poll. `slept` is as in [`Trial::new`].
    pub(super) fn use_of(&self, rate: f64, now: Duration, slept: Duration) -> f64 {
        let slept = slept - self.slept;
        let awake = now.saturating_sub(self.began).saturating_sub(slept);
        let allowed = awake.as_secs_f64() * rate;
        if allowed > 0.0 {
            self.bytes as f64 / allowed
        } else {
            1.0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const RATE: f64 = 1000.0;

    #[test]
    fn sent_bytes_are_compared_with_allowed_bytes() {
        let mut trial = Trial::new(SECOND, Duration::ZERO);
        assert_eq!(trial.use_of(RATE, SECOND, Duration::ZERO), 1.0);
        trial.posted(800);
        assert_eq!(trial.use_of(RATE, 2 * SECOND, Duration::ZERO), 0.8);
        assert_eq!(trial.use_of(RATE, 3 * SECOND, Duration::ZERO), 0.4);
    }

    #[test]
    fn delays_of_the_host_do_not_count() {
        let mut trial = Trial::new(SECOND, 5 * SECOND);
        trial.posted(800);
        assert_eq!(trial.use_of(RATE, 4 * SECOND, 7 * SECOND), 0.8);
        assert_eq!(trial.use_of(RATE, 4 * SECOND, 6 * SECOND), 0.4);
    }
}
