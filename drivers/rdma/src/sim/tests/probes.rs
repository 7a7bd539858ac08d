//! Policers whose rate changes, minutes after it was found.

use std::num::NonZeroU64;
use std::time::Duration;

use super::pacing::policed;
use crate::sim::{Experiment, Interval, Outcome, Pace, Policer};

const SECOND: Duration = Duration::from_secs(1);

/// In bytes per second.
const LOW: u64 = 20_000_000;
const HIGH: u64 = 40_000_000;

/// Short for the rate, so that the policer drops some of what a probe sends above it.
fn policer(rate: u64) -> Policer {
    Policer {
        rate,
        burst: 160_000,
    }
}

/// A channel for two minutes behind a policer that has the second rate after the change.
fn changing([first, second]: [u64; 2], change: u32) -> Outcome {
    let mut experiment = Experiment {
        message_bytes: 32 << 10,
        ring_bytes: NonZeroU64::new(64 << 20).unwrap(),
        time: 120 * SECOND,
        ..policed(Pace::Auto)
    };
    for link in &mut experiment.fabric.links {
        link.delay = SECOND / 100;
    }
    let link = &mut experiment.fabric.links[0];
    link.policer = Some(policer(first));
    link.repolice = Some((change * SECOND, policer(second)));
    experiment.run().unwrap()
}

/// The share of the rate that is delivered in these seconds.
fn share(outcome: &Outcome, rate: u64, seconds: std::ops::Range<usize>) -> f64 {
    let count = seconds.len();
    let rates = outcome.intervals[seconds].iter();
    rates.map(|interval| interval.rate).sum::<f64>() / count as f64 / rate as f64
}

/// Nothing but a probe tells that.
#[test]
fn a_policer_that_became_faster_is_noticed() {
    let outcome = changing([LOW, HIGH], 20);
    let shares = [
        share(&outcome, LOW, 10..20),
        // The search rests for thirty seconds.
        share(&outcome, LOW, 21..30),
        share(&outcome, HIGH, 60..120),
    ];
    let is_found = shares.iter().all(|share| (0.9..1.02).contains(share));
    assert!(is_found, "{shares:?}: {:?}", outcome.intervals);
}

#[test]
fn a_policer_that_became_slower_is_noticed() {
    let outcome = changing([HIGH, LOW], 20);
    let shares = [share(&outcome, HIGH, 10..20), share(&outcome, LOW, 30..120)];
    let is_found = shares.iter().all(|share| (0.9..1.02).contains(share));
    assert!(is_found, "{shares:?}: {:?}", outcome.intervals);
}

/// They are the only ones that lose messages after the rate was found: after the first rest of thirty seconds, and after another one of
/// a minute.
#[test]
fn probes_that_fail_become_rare() {
    let outcome = changing([LOW; 2], 60);
    let settled = &outcome.intervals[10..];
    let found = || format!("{:?}", outcome.intervals);
    let seconds = 0..settled.len();
    let drops: Vec<_> = seconds
        .filter(|&second| settled[second].dropped > 0)
        .collect();
    let [first, second] = drops[..] else {
        panic!("{drops:?}: {}", found());
    };
    assert!(
        first > 20 && (60..70).contains(&(second - first)),
        "{drops:?}"
    );
    let pace = |interval: &Interval| interval.pace.expect("a rate");
    let (least, most) = (
        settled.iter().map(pace).min().unwrap(),
        settled.iter().map(pace).max().unwrap(),
    );
    assert!(most <= least / 100 * 102 + 100, "{least} to {most}");
    let share = share(&outcome, LOW, 10..120);
    assert!(share > 0.95, "{share}: {}", found());
}
