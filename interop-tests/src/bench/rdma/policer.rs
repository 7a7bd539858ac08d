//! A policed path, with paced and unpaced messages.

use std::num::NonZeroU64;
use std::time::Duration;

use gridhaul_rdma::sim::{
    Experiment, ExperimentError, FabricSettings, Link, Outcome, Pace, Policer,
};

use super::units::GIGABIT;
use crate::bench::record::plot::{Axis, Plot, PlotLine};
use crate::bench::record::section::{Picture, Section, Target};
use crate::bench::record::{percent, table};

const DESCRIPTION: &str = "Figure 9 of the paper on XIO-RDMA: one channel with a ring of 512 MiB on a path of 10 Gb/s and a \
round trip of 120 ms, with a policer of 5 Gb/s and a burst of 1 MB. The device retransmits without a limit, \
and `stall` is 3 s. Shares are those of the policed rate, from the sixth second on.";

const POLICED: u64 = 5 * GIGABIT;
const BURST: u64 = 1_000_000;
const SECONDS: u64 = 25;

/// The interval in which the sixth second starts.
const SETTLED: usize = 50;

pub(super) fn measure() -> Result<Section, ExperimentError> {
    let paced = Pace::Paced {
        rate: POLICED,
        burst: Some(256 << 10),
    };
    let runs = [
        ("`rate=5g`, messages of 256 KiB", run(paced, 256 << 10)?),
        ("`rate=5g`, messages of 64 KiB", run(paced, 64 << 10)?),
        ("`rate=5g`, messages of 2 MiB", run(paced, 2 << 20)?),
        (
            "`rate=auto`, messages of 256 KiB",
            run(Pace::Auto, 256 << 10)?,
        ),
        ("`rate=auto`, messages of 2 MiB", run(Pace::Auto, 2 << 20)?),
        (
            "unpaced, messages of 256 KiB",
            run(Pace::Unpaced, 256 << 10)?,
        ),
        ("unpaced, messages of 2 MiB", run(Pace::Unpaced, 2 << 20)?),
    ];
    let [configured, _, _, auto, _, unpaced, _] = &runs;
    let line = |(name, outcome): &(&str, Outcome)| {
        let stalls: u64 = outcome.intervals.iter().map(|part| part.stalls).sum();
        [
            (*name).to_owned(),
            percent(share(outcome)),
            drops(outcome).to_string(),
            stalls.to_string(),
        ]
    };
    let heading = [
        "messages",
        "share of 5 Gb/s",
        "dropped, settled",
        "queue pairs given up",
    ];
    Ok(Section {
        title: "A policer".to_owned(),
        description: DESCRIPTION.to_owned(),
        table: table(heading, runs.iter().map(line).collect()),
        pictures: vec![Picture {
            name: "rdma-policer.svg".to_owned(),
            plot: plot(&[configured, auto, unpaced]),
        }],
        targets: targets(&configured.1, &auto.1, &unpaced.1),
    })
}

/// The share of the policed rate from the sixth second on.
fn share(outcome: &Outcome) -> f64 {
    outcome.rate_from(SETTLED) / POLICED as f64
}

/// Dropped messages from the sixth second on.
fn drops(outcome: &Outcome) -> u64 {
    let settled = &outcome.intervals[SETTLED..];
    settled.iter().map(|interval| interval.dropped).sum()
}

fn targets(configured: &Outcome, auto: &Outcome, unpaced: &Outcome) -> Vec<Target> {
    let found =
        |outcome: &Outcome| format!("{}, {} drops", percent(share(outcome)), drops(outcome));
    vec![
        Target {
            wanted: "with a configured rate, at least 97 % of the policed rate and no drops"
                .to_owned(),
            found: found(configured),
            is_met: share(configured) >= 0.97 && drops(configured) == 0,
        },
        Target {
            wanted: "with `rate=auto`, after 5 s, at least 95 % and no drops".to_owned(),
            found: found(auto),
            is_met: share(auto) >= 0.95 && drops(auto) == 0,
        },
        Target {
            wanted: "unpaced, a stall below 10 %".to_owned(),
            found: percent(share(unpaced)),
            is_met: share(unpaced) < 0.1,
        },
    ]
}

fn run(pace: Pace, message_bytes: u64) -> Result<Outcome, ExperimentError> {
    let link = Link::new(10 * GIGABIT, Duration::from_millis(60));
    let mut fabric = FabricSettings::new(link);
    fabric.links[0].policer = Some(Policer {
        rate: POLICED,
        burst: BURST,
    });
    let experiment = Experiment {
        fabric,
        channels: 1,
        ring_bytes: NonZeroU64::new(512 << 20).expect("a constant that is not zero"),
        message_bytes,
        queue_pairs: 1,
        pace,
        stall: Some(Duration::from_secs(3)),
        time: Duration::from_secs(SECONDS),
        interval: Duration::from_millis(100),
    };
    experiment.run()
}

/// The rate by second: progress is reported for whole pieces, of which a tenth of a second has only a few.
fn plot(runs: &[&(&str, Outcome)]) -> Plot {
    let lines = runs.iter().map(|(name, outcome)| {
        let seconds = outcome.intervals.chunks(10).enumerate();
        let point = |(second, parts): (usize, &[gridhaul_rdma::sim::Interval])| {
            let sum: f64 = parts.iter().map(|part| part.rate).sum();
            let rate = sum / parts.len() as f64 / GIGABIT as f64;
            [second as f64 + 0.5, rate]
        };
        PlotLine {
            name: name.replace('`', "").replace(", messages of 256 KiB", ""),
            is_model: false,
            points: seconds.map(point).collect(),
        }
    });
    Plot {
        title: "A policer of 5 Gb/s and 1 MB on a path of 10 Gb/s and 120 ms".to_owned(),
        horizontal: Axis::numbers("s"),
        vertical: "Gb/s".to_owned(),
        lines: lines.collect(),
    }
}
