//! What left since a rate was set, and whether that is enough to tell anything of the rate.

use std::time::Duration;

/// A rate under trial, from the first message on. Time is that since some moment, as everywhere in pacing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Trial {
    began: Duration,
    /// How many bytes left.
    bytes: u64,
    /// How long nobody looked at the path, in all, when it began.
    slept: Duration,
}

/// A rate is used by whoever sends so much of what might have left.
const USED: f64 = 0.8;

impl Trial {
    /// `slept` is how long nobody has looked at the path, in all.
    pub(super) fn new(now: Duration, slept: Duration) -> Self {
        Self {
            began: now,
            bytes: 0,
            slept,
        }
    }

    /// When the first message left.
    pub(super) fn began(&self) -> Duration {
        self.began
    }

    /// How many bytes left.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// So many bytes leave.
    pub(super) fn posted(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    /// Whether as much left as might have at `rate`, in bytes per second, while somebody looked. `slept` is as in
    /// [`Trial::new`].
    pub(super) fn is_used(&self, rate: f64, now: Duration, slept: Duration) -> bool {
        let slept = slept - self.slept;
        let awake = now.saturating_sub(self.began).saturating_sub(slept);
        let allowed = awake.as_secs_f64() * rate;
        self.bytes as f64 >= USED * allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const RATE: f64 = 1000.0;

    #[test]
    fn who_sends_little_proves_nothing() {
        let mut trial = Trial::new(SECOND, Duration::ZERO);
        trial.posted(800);
        assert!(trial.is_used(RATE, 2 * SECOND, Duration::ZERO));
        assert!(!trial.is_used(RATE, 2 * SECOND + SECOND / 10, Duration::ZERO));
    }

    #[test]
    fn what_was_overslept_does_not_count() {
        let mut trial = Trial::new(SECOND, 5 * SECOND);
        trial.posted(800);
        assert!(trial.is_used(RATE, 4 * SECOND, 7 * SECOND));
        assert!(!trial.is_used(RATE, 4 * SECOND, 6 * SECOND));
    }
}
