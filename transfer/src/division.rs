//! Divides the rate of a limit among transfers on other machines, which count their bytes there.
//!
//! Each part tells now and then how many bytes it has moved. One that uses three quarters of what it has wants as much as possible;
//! another one wants half more than it uses. The rate is divided max-min fair among these wants. What is left goes to all in equal
//! parts, so that a transfer whose demand rises is not slow at first.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long the bytes of a part are counted before they tell its demand. They come a quarter of a second late, more or less.
const SAMPLE: Duration = Duration::from_millis(1900);

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
    /// A further part; its number.
    pub(crate) fn add(&mut self, now: Instant) -> u64 {
        let number = self.next;
        self.next += 1;
        let part = Part {
            rate: 0,
            least: 0,
            since: now,
            moved: 0,
            wants: None,
        };
        self.parts.insert(number, part);
        number
    }

    pub(crate) fn remove(&mut self, number: u64) {
        self.parts.remove(&number);
    }

    /// What a part has from `now` on of this rate, when it has moved so many bytes in all.
    pub(crate) fn part(&mut self, number: u64, rate: u64, moved: u64, now: Instant) -> u64 {
        if let Some(part) = self.parts.get_mut(&number) {
            part.note(moved, now);
        }
        self.divide(rate);
        // A number is that of a part until it is removed.
        self.parts.get(&number).map_or(rate, |part| part.rate)
    }

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
    fn after_a_while(demands: &[u64]) -> Vec<u64> {
        let (begun, mut division) = (Instant::now(), Division::default());
        let parts: Vec<_> = demands.iter().map(|_| division.add(begun)).collect();
        let (mut moved, mut rates) = (vec![0; demands.len()], vec![0; demands.len()]);
        for step in 1..=20_u32 {
            let now = begun + step * Duration::from_millis(500);
            for (index, part) in parts.iter().enumerate() {
                moved[index] += rates[index].min(demands[index]) / 2;
                rates[index] = division.part(*part, 100_000, moved[index], now);
            }
        }
        rates
    }

    #[test]
    fn what_one_transfer_does_not_use_others_have() {
        assert_eq!(after_a_while(&[1_000_000]), [100_000]);
        assert_eq!(after_a_while(&[1_000_000; 4]), [25_000; 4]);
        let rates = after_a_while(&[1_000_000, 10_000]);
        assert!(rates[0] >= 80_000 && rates[1] >= 10_000, "{rates:?}");
        assert!(rates.iter().sum::<u64>() <= 100_000, "{rates:?}");
    }

    #[test]
    fn an_ended_transfer_leaves_its_part() {
        let (now, mut division) = (Instant::now(), Division::default());
        let (one, other) = (division.add(now), division.add(now));
        assert_eq!(division.part(one, 1_000, 0, now), 500);
        division.remove(other);
        assert_eq!(division.part(one, 1_000, 0, now), 1_000);
    }
}
