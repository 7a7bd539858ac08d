//! Limits of bandwidth that several transfers share.
//!
//! The rate is that of a token bucket, kept as the time at which all bytes so far are paid for (the generic cell rate algorithm
//! of ITU-T I.371).

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::division::Division;
use crate::sync::lock;

/// Unused bandwidth of this time may be used at once.
const BURST: Duration = Duration::from_millis(50);

/// A piece takes about this part of a second at the rate.
const PIECES_PER_SECOND: u64 = 50;

const LEAST_PIECE: u64 = 16 * 1024;

const MOST_PIECE: u64 = 1024 * 1024;

/// A rate that all transfers with this limit share, in both directions together.
#[derive(Debug)]
pub struct BandwidthLimit {
    began: Instant,
    bucket: Mutex<Bucket>,
    /// Among transfers on other machines.
    division: Mutex<Division>,
}

impl BandwidthLimit {
    /// A limit in bytes per second; `None` does not limit.
    pub fn new(rate: Option<u64>) -> Arc<Self> {
        Arc::new(Self {
            began: Instant::now(),
            bucket: Mutex::new(Bucket::new(rate)),
            division: Mutex::default(),
        })
    }

    /// Changes the limit, also for running transfers.
    pub fn set(&self, rate: Option<u64>) {
        lock(&self.bucket).rate = rate.map(|rate| rate.max(1));
    }

    /// The present limit in bytes per second.
    pub fn rate(&self) -> Option<u64> {
        lock(&self.bucket).rate
    }

    /// Takes `bytes`, and returns when they may move.
    pub(crate) fn take(&self, bytes: u64) -> Instant {
        self.began + lock(&self.bucket).take(self.began.elapsed(), bytes)
    }

    /// Gives back bytes that were taken and do not move: otherwise transfers that are aborted while they wait would use up the
    /// bandwidth of others.
    pub(crate) fn give_back(&self, bytes: u64) {
        lock(&self.bucket).give_back(bytes);
    }

    /// How many bytes should move at a time, at most.
    pub(crate) fn piece(&self) -> Option<u64> {
        let rate = lock(&self.bucket).rate?;
        let piece = (rate / PIECES_PER_SECOND).clamp(LEAST_PIECE, MOST_PIECE);
        // Whole blocks of the file, for direct I/O.
        Some(piece - piece % LEAST_PIECE)
    }
}

/// A part of a limit, for one transfer on another machine: all parts together have the rate. Transfers on this machine do not count
/// for them.
#[derive(Debug)]
pub struct BandwidthPart {
    limit: Arc<BandwidthLimit>,
    number: u64,
}

impl BandwidthPart {
    /// A further part of the limit.
    pub fn of(limit: &Arc<BandwidthLimit>) -> Self {
        let number = lock(&limit.division).add(Instant::now());
        Self {
            limit: Arc::clone(limit),
            number,
        }
    }

    /// The rate of the part from `now` on, in bytes per second, when its transfer has moved so many bytes in all. `None` is no limit.
    pub fn rate(&self, moved: u64, now: Instant) -> Option<u64> {
        let rate = self.limit.rate()?;
        let mut division = lock(&self.limit.division);
        Some(division.part(self.number, rate, moved, now))
    }
}

impl Drop for BandwidthPart {
    fn drop(&mut self) {
        lock(&self.limit.division).remove(self.number);
    }
}

/// Two limits are the same only if transfers share them.
impl PartialEq for BandwidthLimit {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for BandwidthLimit {}

/// The token bucket, without a clock.
#[derive(Debug)]
struct Bucket {
    rate: Option<u64>,
    /// When all bytes so far are paid for.
    paid: Duration,
}

impl Bucket {
    fn new(rate: Option<u64>) -> Self {
        Self {
            rate: rate.map(|rate| rate.max(1)),
            paid: Duration::ZERO,
        }
    }

    /// Takes `bytes`, and returns when they may move. In any interval of the length t, at most `rate * t` bytes may move,
    /// and in addition those of [`BURST`], or one piece if that is larger.
    fn take(&mut self, now: Duration, bytes: u64) -> Duration {
        let Some(cost) = self.cost(bytes) else {
            return now;
        };
        self.paid = self.paid.max(now).saturating_add(cost);
        self.paid.saturating_sub(BURST).max(now)
    }

    /// Undoes [`Bucket::take`]. Those who took bytes meanwhile keep their times.
    fn give_back(&mut self, bytes: u64) {
        let cost = self.cost(bytes).unwrap_or_default();
        self.paid = self.paid.saturating_sub(cost);
    }

    /// The time that bytes take at the rate; `None` without a limit.
    fn cost(&self, bytes: u64) -> Option<Duration> {
        const SECOND: u128 = 1_000_000_000;
        let cost = (u128::from(bytes) * SECOND).div_ceil(u128::from(self.rate?));
        Some(Duration::from_nanos(
            u64::try_from(cost).unwrap_or(u64::MAX),
        ))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The times, in nanoseconds, and bytes of the pieces of some workers. Each takes its next piece when the previous one
    /// may move, and some time later.
    fn moves(rate: u64, workers: &[(u64, u64)], pieces: usize) -> Vec<(u128, u64)> {
        let mut bucket = Bucket::new(Some(rate));
        let mut next: Vec<Duration> = workers.iter().map(|_| Duration::ZERO).collect();
        let mut moves = Vec::new();
        for _ in 0..pieces {
            let first = (0..next.len()).min_by_key(|&worker| next[worker]);
            let worker = first.expect("there is one");
            let (bytes, pause) = workers[worker];
            let ready = bucket.take(next[worker], bytes);
            moves.push((ready.as_nanos(), bytes));
            next[worker] = ready + Duration::from_micros(pause);
        }
        moves.sort_unstable();
        moves
    }

    proptest! {
        #[test]
        fn no_interval_has_more_than_the_rate_and_the_burst(
            rate in 1_000_u64..2_000_000_000,
            workers in prop::collection::vec((1_u64..2_000_000, 0_u64..100_000), 1..6),
        ) {
            let moves = moves(rate, &workers, 60);
            let largest = workers.iter().map(|(bytes, _)| *bytes).max().expect("some");
            let burst = (u128::from(rate) * BURST.as_nanos() / 1_000_000_000).max(largest.into());
            for begin in 0..moves.len() {
                let mut sum = 0;
                for &(at, bytes) in &moves[begin..] {
                    sum += u128::from(bytes);
                    let allowed = u128::from(rate) * (at - moves[begin].0) / 1_000_000_000 + burst;
                    prop_assert!(sum <= allowed + 1, "{sum} of {allowed}");
                }
            }
        }

        /// Workers that always have data use the whole rate.
        #[test]
        fn busy_workers_leave_nothing_unused(
            rate in 1_000_u64..2_000_000_000,
            workers in prop::collection::vec((1_u64..2_000_000, Just(0)), 1..6),
        ) {
            let moves = moves(rate, &workers, 60);
            let last = moves.last().expect("some").0;
            let sum: u128 = moves.iter().map(|(_, bytes)| u128::from(*bytes)).sum();
            prop_assert!(u128::from(rate) * last / 1_000_000_000 <= sum);
        }
    }

    #[test]
    fn busy_workers_have_equal_shares() {
        let mut bucket = Bucket::new(Some(1_000_000));
        let mut next = [Duration::ZERO; 4];
        let mut moved = [0_u64; 4];
        while let Some(worker) = (0..4).min_by_key(|&worker| next[worker])
            && next[worker] < Duration::from_secs(10)
        {
            next[worker] = bucket.take(next[worker], 20_000);
            moved[worker] += 20_000;
        }
        // The first one also had the burst.
        let (least, most) = (moved.iter().min(), moved.iter().max());
        let differ = most.zip(least).map(|(most, least)| most - least);
        assert!(differ.is_some_and(|bytes| bytes <= 80_000), "{moved:?}");
        assert!(
            moved.iter().sum::<u64>().abs_diff(10_000_000) <= 200_000,
            "{moved:?}"
        );
    }

    #[test]
    fn bytes_that_do_not_move_delay_no_others() {
        let mut bucket = Bucket::new(Some(1_000_000));
        let now = Duration::from_secs(1);
        let first = bucket.take(now, 100_000);
        for _ in 0..1000 {
            bucket.take(now, 100_000);
            bucket.give_back(100_000);
        }
        let next = bucket.take(now, 100_000);
        assert_eq!(next - first, Duration::from_millis(100));
    }

    #[test]
    fn a_limit_that_is_lifted_does_not_delay() {
        let limit = BandwidthLimit::new(Some(1));
        limit.set(None);
        assert_eq!(limit.piece(), None);
        assert!(limit.take(u64::MAX) <= Instant::now());
    }
}
