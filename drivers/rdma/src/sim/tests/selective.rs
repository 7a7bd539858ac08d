//! Devices that repeat only what is missing.

use std::num::NonZeroU64;
use std::time::Duration;

use super::{Replay, seeds};
use crate::sim::{Experiment, FabricSettings, Link, Outcome, Pace, Policer, Repeat};

const GIGABIT: u64 = 125_000_000;
const SECOND: Duration = Duration::from_secs(1);

/// What the policer passes, and the rate at which the channel sends.
const POLICED: u64 = 5 * GIGABIT;
const PACED: u64 = POLICED / 100 * 97;

/// A channel with a rate of its own, on a path of 10 Gb/s and 120 ms that loses one packet in 100,000, and with a policer of 5 Gb/s.
fn paced(repeat: Repeat, seed: u64) -> Outcome {
    let mut link = Link::new(10 * GIGABIT, Duration::from_millis(60));
    let back = FabricSettings::new(link.clone()).links[1].clone();
    link.policer = Some(Policer {
        rate: POLICED,
        burst: 1_000_000,
    });
    link.loss = 1e-5;
    let mut fabric = FabricSettings::new(link);
    fabric.links[1] = back;
    fabric.repeat = repeat;
    fabric.seed = seed;
    let experiment = Experiment {
        fabric,
        channels: 1,
        ring_bytes: NonZeroU64::new(512 << 20).unwrap(),
        message_bytes: 256 << 10,
        queue_pairs: 1,
        pace: Pace::Paced {
            rate: PACED,
            burst: Some(512 << 10),
        },
        stall: Some(3 * SECOND),
        time: 12 * SECOND,
        interval: SECOND,
    };
    experiment.run().unwrap()
}

fn share(outcome: &Outcome) -> f64 {
    outcome.rate_from(1) / PACED as f64
}

/// A repetition of one packet fits beside the paced messages, so that a loss costs nothing.
#[test]
fn random_loss_behind_a_policer_costs_a_paced_channel_nothing() {
    for seed in seeds(3) {
        let _replay = Replay(seed);
        let outcome = paced(Repeat::Selective, seed);
        let stalls: u64 = outcome.intervals.iter().map(|part| part.stalls).sum();
        let found = share(&outcome);
        assert!(
            found > 0.97 && stalls == 0,
            "{found}: {:?}",
            outcome.intervals
        );
    }
}

/// The policer drops most of a whole flight that is repeated at the rate of the port.
#[test]
fn the_same_loss_stops_a_channel_that_goes_back() {
    for seed in seeds(3) {
        let _replay = Replay(seed);
        let found = share(&paced(Repeat::GoBackN, seed));
        assert!(found < 0.7, "{found}");
    }
}
