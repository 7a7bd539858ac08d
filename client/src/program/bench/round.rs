//! One round of a trial: transfers that do not count until connections are open and the rate is found, and then those that count.

use std::time::{Duration, Instant};

use tokio::time::timeout;

use super::clock::Clock;
use super::trial::{Sample, Trial};
use super::way::Way;

/// The bytes of the first transfer of a trial.
const FIRST_BYTES: u64 = 4 << 20;

/// No transfer has more.
const MOST_BYTES: u64 = 1 << 42;

/// What a transfer may take beside four times the time of a round: the connections, and the first bytes of a slow path.
const GRACE: Duration = Duration::from_secs(30);

/// How much all trials may still move.
#[derive(Debug)]
pub(super) struct Budget {
    left: u64,
}

/// Why a round has no sample.
#[derive(Debug)]
pub(super) enum Halt {
    Failed(String),
    /// The bytes of the budget are used up.
    Spent,
}

impl Budget {
    pub(super) fn new(bytes: u64) -> Self {
        Self { left: bytes }
    }

    fn take(&mut self, bytes: u64) -> Result<(), Halt> {
        self.left = self.left.checked_sub(bytes).ok_or(Halt::Spent)?;
        Ok(())
    }
}

/// The rounds of one trial.
pub(super) struct Rounds {
    pub(super) trial: Trial,
    /// The bytes of a transfer, once they are known.
    bytes: Option<u64>,
}

impl Rounds {
    pub(super) fn new(trial: Trial) -> Self {
        Self { trial, bytes: None }
    }

    /// Adds a round of about this time. A transfer takes a quarter of it, unless the source has too few bytes: a short one fits into
    /// the buffers of a single connection. Those that count take at least a quarter of the time together.
    ///
    /// # Errors
    ///
    /// When a transfer fails, takes too long, or would exceed the budget.
    pub(super) async fn run(
        &mut self,
        way: &mut Way,
        duration: Duration,
        budget: &mut Budget,
    ) -> Result<(), Halt> {
        let enough = duration / 4;
        let mut bytes = match self.bytes {
            Some(bytes) => {
                // Opens the connections of this trial again.
                self.transfer(way, bytes, duration, budget).await?;
                bytes
            }
            None => self.grow(way, duration, budget).await?,
        };
        // A file at the source may be shorter than the transfers that are wanted.
        bytes = bytes.min(way.ends.most_bytes());
        self.bytes = Some(bytes);
        let (began, clock, mut sample) = (Instant::now(), Clock::start(), Sample::default());
        while sample.seconds < enough.as_secs_f64() || began.elapsed() + enough / 2 < duration / 2 {
            let done = self.transfer(way, bytes, duration, budget).await?;
            sample.add(&done, way.sends());
        }
        sample.work = clock.work();
        self.trial.samples.push(sample);
        Ok(())
    }

    /// Finds the bytes of a transfer that takes a quarter of the time. Meanwhile TCP finds its rate.
    async fn grow(
        &self,
        way: &mut Way,
        duration: Duration,
        budget: &mut Budget,
    ) -> Result<u64, Halt> {
        let (mut bytes, enough) = (FIRST_BYTES, duration / 4);
        loop {
            let done = self.transfer(way, bytes, duration, budget).await?;
            // The source has no more bytes.
            if done.took >= enough || done.bytes < bytes || bytes >= MOST_BYTES {
                return Ok(bytes);
            }
            let factor = enough.as_secs_f64() / done.took.as_secs_f64().max(0.001);
            bytes = grown(bytes, factor);
        }
    }

    async fn transfer(
        &self,
        way: &mut Way,
        bytes: u64,
        duration: Duration,
        budget: &mut Budget,
    ) -> Result<crate::transfer::Transferred, Halt> {
        budget.take(bytes.min(way.ends.most_bytes()))?;
        let limit = duration.saturating_mul(4) + GRACE;
        match timeout(limit, way.transfer(&self.trial.setting, bytes)).await {
            Ok(done) => done.map_err(Halt::Failed),
            Err(_) => Err(Halt::Failed(format!(
                "a transfer of {bytes} bytes did not end within {} s: give a longer --duration",
                limit.as_secs()
            ))),
        }
    }
}

/// The bytes of the next transfer, if so many times as many are wanted. The rate may still rise, so it gets a little more.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the factor is between 1 and 16"
)]
fn grown(bytes: u64, factor: f64) -> u64 {
    let sixteenths = (factor * 1.25).clamp(1.25, 16.0) * 16.0;
    (bytes / 16)
        .saturating_mul(sixteenths as u64)
        .min(MOST_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transfers_grow_within_bounds() {
        assert_eq!(grown(16, 0.0), 20);
        assert_eq!(grown(1 << 20, 4.0), 5 << 20);
        assert_eq!(grown(1 << 20, f64::INFINITY), 16 << 20);
        assert_eq!(grown(MOST_BYTES, 2.0), MOST_BYTES);
    }

    #[test]
    fn a_budget_is_not_exceeded() {
        let mut budget = Budget::new(10);
        budget.take(4).expect("10 are left");
        assert!(matches!(budget.take(7), Err(Halt::Spent)));
        budget.take(6).expect("6 are left");
        assert!(matches!(budget.take(1), Err(Halt::Spent)));
    }
}
