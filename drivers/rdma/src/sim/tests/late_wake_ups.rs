//! Threads wake up later than they planned, as on every machine, and messages keep their rate.

use std::num::NonZeroU64;
use std::time::Duration;

use super::{Replay, seeds};
use crate::sim::{Experiment, FabricSettings, Link, Outcome, Pace, Policer};

const GIGABIT: u64 = 125_000_000;
const MESSAGE_BYTES: u64 = 256 << 10;

/// A channel that sends at this rate on a path of 800 Gb/s and 2 ms. Its ends wake up 60 to 150 µs late,
/// which is usual on a machine that is not idle.
fn late(rate: u64, burst: Option<u64>, seed: u64) -> Experiment {
    let mut fabric = FabricSettings::new(Link::new(800 * GIGABIT, Duration::from_millis(1)));
    fabric.wakes_late = Some(Duration::from_micros(60)..Duration::from_micros(150));
    fabric.depth = 4096;
    fabric.seed = seed;
    Experiment {
        fabric,
        channels: 1,
        // Four bandwidth-delay products.
        ring_bytes: NonZeroU64::new((rate / 125).max(8 << 20)).unwrap(),
        message_bytes: MESSAGE_BYTES,
        queue_pairs: 1,
        pace: Pace::Paced { rate, burst },
        stall: Some(Duration::from_secs(3)),
        time: Duration::from_millis(if rate > GIGABIT { 600 } else { 2100 }),
        interval: Duration::from_millis(100),
    }
}

/// The share of the rate after the first interval.
fn share(outcome: &Outcome, rate: u64) -> f64 {
    outcome.rate_from(1) / rate as f64
}

#[test]
fn a_configured_rate_is_reached() {
    for seed in seeds(4) {
        let _replay = Replay(seed);
        for gigabits in [1, 10, 100, 400] {
            let rate = gigabits * GIGABIT;
            let outcome = late(rate, None, seed).run().unwrap();
            let share = share(&outcome, rate);
            assert!((0.98..1.01).contains(&share), "{gigabits} Gb/s: {share}");
        }
    }
}

/// On a short path too: without a policer more than a burst may be in flight.
#[test]
fn a_configured_rate_is_reached_on_a_short_path() {
    for gigabits in [10, 100, 400] {
        let rate = gigabits * GIGABIT;
        let mut experiment = late(rate, None, gigabits);
        for link in &mut experiment.fabric.links {
            link.delay = Duration::from_micros(5);
        }
        let share = share(&experiment.run().unwrap(), rate);
        assert!((0.98..1.01).contains(&share), "{gigabits} Gb/s: {share}");
    }
}

/// Channels that share a rate also share what a late one did not use in time.
#[test]
fn several_channels_reach_their_rate_together() {
    for channels in [2, 8] {
        let rate = 100 * GIGABIT;
        let mut experiment = late(rate, None, 1);
        experiment.channels = channels;
        experiment.ring_bytes = NonZeroU64::new(32 << 20).unwrap();
        let outcome = experiment.run().unwrap();
        let (share, fairness) = (share(&outcome, rate), outcome.fairness());
        assert!((0.98..1.01).contains(&share), "{channels}: {share}");
        assert!(fairness > 0.7, "{channels}: {:?}", outcome.channels);
    }
}

/// A policer's burst that is configured is never exceeded, and where it is short for the rate, the sender
/// polls before each message instead of sleeping.
#[test]
fn a_policer_with_a_short_burst_drops_nothing() {
    for (gigabits, burst) in [
        (1, 384 << 10),
        (10, 512 << 10),
        (10, 384 << 10),
        (40, 512 << 10),
    ] {
        let rate = gigabits * GIGABIT;
        let mut experiment = late(rate, Some(burst), burst);
        // Announcements are not paced.
        experiment.fabric.links[0].policer = Some(Policer {
            rate: rate / 100 * 101,
            burst: burst + 4096,
        });
        let outcome = experiment.run().unwrap();
        let share = share(&outcome, rate);
        let dropped: u64 = outcome.intervals.iter().map(|part| part.dropped).sum();
        let found = || format!("{gigabits} Gb/s, {burst}: {share}, {dropped} dropped");
        assert!(share > 0.98 && dropped == 0, "{}", found());
    }
}

/// The search climbs only while the sender uses the rate, and late wake-ups must not keep it from that.
#[test]
fn a_fast_path_is_used_with_the_rate_that_is_found() {
    let rate = 100 * GIGABIT;
    let mut experiment = Experiment {
        pace: Pace::Auto,
        time: Duration::from_secs(3),
        ..late(rate, None, 1)
    };
    for link in &mut experiment.fabric.links {
        link.rate = rate;
    }
    let outcome = experiment.run().unwrap();
    let share = outcome.rate_from(20) / rate as f64;
    assert!(share > 0.95, "{share}: {:?}", outcome.intervals);
}
