//! Many channels to one peer.

use std::num::NonZeroU64;
use std::time::Duration;

use gridhaul_rdma::sim::{
    Experiment, ExperimentError, FabricSettings, Link, Outcome, Pace, Policer,
};

use super::units::GIGABIT;
use crate::bench::record::section::{Section, Target};
use crate::bench::record::{percent, table};

const DESCRIPTION: &str = "64 channels to one peer, with rings of 16 MiB, on a path of 10 Gb/s and a round trip of 40 ms. They \
share one pacing rate with round-robin scheduling.";

const CHANNELS: usize = 64;

pub(super) fn measure() -> Result<Section, ExperimentError> {
    let paced = Pace::Paced {
        rate: 5 * GIGABIT,
        burst: Some(256 << 10),
    };
    let runs = [
        ("unpaced, 10 Gb/s", run(Pace::Unpaced, None)?, 10),
        ("`rate=5g`", run(paced, None)?, 5),
        (
            "`rate=auto`, policed to 5 Gb/s",
            run(Pace::Auto, Some(5))?,
            5,
        ),
    ];
    let line = |(name, outcome, gigabits): &(&str, Outcome, u64)| {
        let slowest = outcome.channels.iter().min().copied().unwrap_or_default();
        [
            (*name).to_owned(),
            percent(outcome.rate_from(10) / (gigabits * GIGABIT) as f64),
            format!("{:.0} MB", slowest as f64 / 1e6),
            format!("{:.2}", outcome.fairness()),
        ]
    };
    let heading = [
        "pace",
        "share of the rate",
        "the slowest channel",
        "slowest over fastest",
    ];
    let least = runs.iter().map(|(_, outcome, _)| outcome.fairness());
    let least = least.fold(1.0, f64::min);
    Ok(Section {
        title: "Many channels".to_owned(),
        description: DESCRIPTION.to_owned(),
        table: table(heading, runs.iter().map(line).collect()),
        pictures: Vec::new(),
        targets: vec![Target {
            wanted: "slowest over fastest above 0.7".to_owned(),
            found: format!("{least:.2}"),
            is_met: least > 0.7,
        }],
    })
}

fn run(pace: Pace, policed: Option<u64>) -> Result<Outcome, ExperimentError> {
    let mut fabric = FabricSettings::new(Link::new(10 * GIGABIT, Duration::from_millis(20)));
    fabric.links[0].policer = policed.map(|gigabits| Policer {
        rate: gigabits * GIGABIT,
        burst: 4_000_000,
    });
    let experiment = Experiment {
        fabric,
        channels: CHANNELS,
        ring_bytes: NonZeroU64::new(16 << 20).expect("a constant that is not zero"),
        message_bytes: 256 << 10,
        queue_pairs: 1,
        pace,
        stall: Some(Duration::from_secs(3)),
        time: Duration::from_secs(20),
        interval: Duration::from_secs(1),
    };
    experiment.run()
}
