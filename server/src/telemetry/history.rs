//! What the server did in the last hour: one sample for each ten seconds, in memory of a fixed size.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::time::{Instant, MissedTickBehavior, interval_at};

use crate::status::{self, MOST_SAMPLES, Sample, utc};

/// The time between two samples.
const INTERVAL: Duration = Duration::from_secs(10);

/// The samples.
#[derive(Debug, Default)]
pub(crate) struct History(Mutex<Recorded>);

#[derive(Debug, Default)]
struct Recorded {
    samples: VecDeque<Sample>,
    before: Totals,
}

/// Numbers that only grow, since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Totals {
    /// Of transfers that have ended, and of those in progress.
    pub(crate) sent_bytes: u64,
    pub(crate) received_bytes: u64,
    /// Processor time of all processes of the server.
    pub(crate) processor_time: Duration,
    pub(crate) refusals: u64,
    /// Warnings and errors of the log.
    pub(crate) errors: u64,
}

/// What a sample is made of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reading {
    pub(crate) totals: Totals,
    /// Present sessions and transfers.
    pub(crate) sessions: usize,
    pub(crate) transfers: usize,
}

/// Calls `record` for each sample, until it returns `None` because the server has ended.
pub(crate) async fn keep_history(record: impl Fn() -> Option<()>) {
    let mut ticks = interval_at(Instant::now() + INTERVAL, INTERVAL);
    // After a delay, one sample has what happened meanwhile.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        ticks.tick().await;
        if record().is_none() {
            return;
        }
    }
}

impl History {
    /// Adds the sample of the interval that ends now.
    pub(crate) fn record(&self, now: SystemTime, reading: &Reading) {
        // Every change under the lock is complete, so a panic elsewhere leaves no partial state.
        let mut recorded = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (before, totals) = (recorded.before, reading.totals);
        let processor_time = totals.processor_time.saturating_sub(before.processor_time);
        let sample = Sample {
            time: utc(now),
            sent_bytes: totals.sent_bytes.saturating_sub(before.sent_bytes),
            received_bytes: totals.received_bytes.saturating_sub(before.received_bytes),
            cpu_seconds: processor_time.as_secs_f64(),
            sessions: reading.sessions as u64,
            transfers: reading.transfers as u64,
            refusals: totals.refusals.saturating_sub(before.refusals),
            errors: totals.errors.saturating_sub(before.errors),
        };
        recorded.before = totals.at_least(&before);
        if recorded.samples.len() == MOST_SAMPLES {
            recorded.samples.pop_front();
        }
        recorded.samples.push_back(sample);
    }

    /// The samples, oldest first.
    pub(crate) fn status(&self) -> status::History {
        let recorded = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        status::History {
            interval_seconds: INTERVAL.as_secs(),
            samples: recorded.samples.iter().cloned().collect(),
        }
    }
}

impl Totals {
    /// A total that fell, as the count of a process that has ended, is not counted again.
    fn at_least(self, before: &Self) -> Self {
        Self {
            sent_bytes: self.sent_bytes.max(before.sent_bytes),
            received_bytes: self.received_bytes.max(before.received_bytes),
            processor_time: self.processor_time.max(before.processor_time),
            refusals: self.refusals.max(before.refusals),
            errors: self.errors.max(before.errors),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn reading(sent_bytes: u64) -> Reading {
        Reading {
            totals: Totals {
                sent_bytes,
                processor_time: Duration::from_millis(sent_bytes * 10),
                refusals: sent_bytes / 100,
                ..Totals::default()
            },
            sessions: 3,
            transfers: 1,
        }
    }

    #[test]
    fn samples_are_differences_and_the_oldest_is_dropped() {
        let history = History::default();
        for number in 1..=1000 {
            let now = SystemTime::UNIX_EPOCH + INTERVAL * number;
            history.record(now, &reading(u64::from(number) * 100));
        }
        let status = history.status();
        assert_eq!(status.samples.len(), MOST_SAMPLES);
        assert_eq!(status.samples[0].time, "1970-01-01T01:46:50Z");
        assert_eq!(
            status.samples[MOST_SAMPLES - 1].time,
            "1970-01-01T02:46:40Z"
        );
        for sample in status.samples {
            assert_eq!((sample.sent_bytes, sample.refusals), (100, 1));
            assert!((sample.cpu_seconds - 1.0).abs() < 1e-9);
        }
    }

    #[test]
    fn a_total_that_falls_is_not_counted_twice() {
        let history = History::default();
        for total in [500, 200, 500, 700] {
            history.record(SystemTime::UNIX_EPOCH, &reading(total));
        }
        let sent: Vec<u64> = history
            .status()
            .samples
            .iter()
            .map(|sample| sample.sent_bytes)
            .collect();
        assert_eq!(sent, [500, 0, 0, 200]);
    }

    #[tokio::test(start_paused = true)]
    async fn there_is_a_sample_each_ten_seconds_until_the_server_ends() {
        let begun = Instant::now();
        let taken = Cell::new(0);
        keep_history(|| {
            taken.set(taken.get() + 1);
            (taken.get() < 4).then_some(())
        })
        .await;
        assert_eq!(begun.elapsed(), INTERVAL * 4);
    }
}
