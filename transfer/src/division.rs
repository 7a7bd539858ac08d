//! Divides the rate of a limit among transfers on other machines, which count their bytes there.
//!
//! Each part tells now and then how many bytes it has moved. One that uses three quarters of what it has wants as much as possible;
//! another one wants half more than it uses. The rate is divided max-min fair among these wants. What is left goes to all in equal
//! parts, so that a transfer whose demand rises is not slow at first.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::bandwidth::BandwidthLimit;
use crate::sync::lock;

/// How long the bytes of a part are counted before they tell its demand. They come a quarter of a second late, more or less.
const SAMPLE: Duration = Duration::from_millis(1900);

/// A part of a [`BandwidthLimit`], for one transfer on another machine.
#[derive(Debug)]
pub struct BandwidthPart {
    limit: Arc<BandwidthLimit>,
    number: u64,
}

/// The parts of a limit.
#[derive(Debug, Default)]
pub(crate) struct Division {
    parts: BTreeMap<u64, Part>,
    next: u64,
}

/// What a part has, and what it has used.
#[derive(Debug)]
struct Part {
    /// Bytes per second that it may move.
    rate: u64,
    /// The least rate since the sample began: a part that got more a moment ago has not had time to use it.
    least: u64,
    /// When the sample began, and the bytes in all by then.
    since: Instant,
    moved: u64,
    /// What it wants; `None` is as much as possible.
    wants: Option<u64>,
}

impl BandwidthPart {
    pub(crate) fn new(limit: &Arc<BandwidthLimit>, now: Instant) -> Self {
        let mut division = lock(&limit.division);
        let number = division.next;
        division.next += 1;
        let part = Part {
            rate: 0,
            least: 0,
            since: now,
            moved: 0,
            wants: None,
        };
        division.parts.insert(number, part);
        drop(division);
        Self {
            limit: Arc::clone(limit),
            number,
        }
    }

    /// The rate that the part has from `now` on, in bytes per second, when its transfer has moved so many bytes in all. `None` is no limit.
    pub fn rate(&self, moved: u64, now: Instant) -> Option<u64> {
        let rate = self.limit.rate()?;
        let mut division = lock(&self.limit.division);
        if let Some(part) = division.parts.get_mut(&self.number) {
            part.note(moved, now);
        }
        division.divide(rate);
        division.parts.get(&self.number).map(|part| part.rate)
    }
}

impl Drop for BandwidthPart {
    fn drop(&mut self) {
        lock(&self.limit.division).parts.remove(&self.number);
    }
}

impl Part {
    fn note(&mut self, moved: u64, now: Instant) {
        let time = now.saturating_duration_since(self.since);
        if time < SAMPLE {
            return;
        }
        let bytes = u128::from(moved.saturating_sub(self.moved));
        let used = bytes * 1000 / time.as_millis().max(1);
        let used = u64::try_from(used).unwrap_or(u64::MAX);
        let uses_all = used >= self.least / 4 * 3;
        self.wants = (!uses_all).then(|| used.saturating_add(used / 2));
        (self.since, self.moved, self.least) = (now, moved, self.rate);
    }
}

impl Division {
    fn divide(&mut self, rate: u64) {
        let wants: Vec<_> = self.parts.values().map(|part| part.wants).collect();
        let shares = shares(rate, &wants);
        for (part, share) in self.parts.values_mut().zip(shares) {
            part.rate = share;
            part.least = part.least.min(share);
        }
    }
}

/// The shares of those who want so much.
fn shares(rate: u64, wants: &[Option<u64>]) -> Vec<u64> {
    let mut order: Vec<usize> = (0..wants.len()).collect();
    order.sort_by_key(|&index| wants[index].unwrap_or(u64::MAX));
    let (mut left, mut shares) = (rate, vec![0; wants.len()]);
    for (place, &index) in order.iter().enumerate() {
        let fair = left / (wants.len() - place) as u64;
        shares[index] = wants[index].map_or(fair, |want| want.min(fair));
        left -= shares[index];
    }
    let extra = left / wants.len().max(1) as u64;
    // No transfer stands still, whose client would take that for a fault.
    shares
        .iter_mut()
        .for_each(|share| *share = (*share + extra).max(1));
    shares
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_shares_are_the_rate_and_fair(
            rate in 1_000_u64..10_000_000_000,
            wants in proptest::collection::vec(proptest::option::of(0_u64..20_000_000_000), 1..50),
        ) {
            let shares = shares(rate, &wants);
            let sum: u64 = shares.iter().sum();
            prop_assert!(sum <= rate && rate - sum <= 2 * wants.len() as u64, "{sum} of {rate}");
            for (one, share) in wants.iter().zip(&shares) {
                // Who has less than another one has what it wants.
                let most = shares.iter().max().expect("one");
                let is_content = one.is_some_and(|want| want <= *share);
                prop_assert!(is_content || share + wants.len() as u64 >= *most, "{shares:?}");
            }
        }
    }

    /// Transfers with these demands, in bytes per second; what they have after some seconds.
    fn after_a_while(limit: &Arc<BandwidthLimit>, demands: &[u64]) -> Vec<u64> {
        let begun = Instant::now();
        let parts: Vec<_> = demands.iter().map(|_| limit.part()).collect();
        let (mut moved, mut rates) = (vec![0; demands.len()], vec![0; demands.len()]);
        for step in 1..=20_u32 {
            let now = begun + step * Duration::from_millis(500);
            for (index, part) in parts.iter().enumerate() {
                moved[index] += rates[index].min(demands[index]) / 2;
                rates[index] = part.rate(moved[index], now).expect("a limit");
            }
        }
        rates
    }

    #[test]
    fn what_one_transfer_does_not_use_others_have() {
        let limit = BandwidthLimit::new(Some(100_000));
        assert_eq!(after_a_while(&limit, &[1_000_000]), [100_000]);
        assert_eq!(after_a_while(&limit, &[1_000_000; 4]), [25_000; 4]);
        let rates = after_a_while(&limit, &[1_000_000, 10_000]);
        assert!(rates[0] >= 80_000 && rates[1] >= 10_000, "{rates:?}");
        assert!(rates.iter().sum::<u64>() <= 100_000, "{rates:?}");
    }

    #[test]
    fn an_ended_transfer_leaves_its_part() {
        let limit = BandwidthLimit::new(Some(1_000));
        let (one, other) = (limit.part(), limit.part());
        let now = Instant::now();
        assert_eq!(one.rate(0, now), Some(500));
        drop(other);
        assert_eq!(one.rate(0, now), Some(1_000));
        limit.set(None);
        assert_eq!(one.rate(0, now), None);
    }
}
