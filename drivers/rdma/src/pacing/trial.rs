//! The trial of a rate: the bytes sent since the rate was set, and the used share of the rate.

use std::time::Duration;

/// The trial of a rate, from its first message on. Times are counted from one moment, as everywhere
/// in pacing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Trial {
    began: Duration,
    /// Bytes sent.
    bytes: u64,
}

impl Trial {
    pub(super) fn new(now: Duration) -> Self {
        Self {
            began: now,
            bytes: 0,
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

    /// The used share of `rate`, in bytes per second.
    pub(super) fn use_of(&self, rate: f64, now: Duration) -> f64 {
        let allowed = now.saturating_sub(self.began).as_secs_f64() * rate;
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
        let mut trial = Trial::new(SECOND);
        assert_eq!(trial.use_of(RATE, SECOND), 1.0);
        trial.posted(800);
        assert_eq!(trial.use_of(RATE, 2 * SECOND), 0.8);
        assert_eq!(trial.use_of(RATE, 3 * SECOND), 0.4);
    }
}
