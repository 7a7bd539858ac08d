//! The driver's default options on paths of all rates and lengths.

use std::time::Duration;

use gridhaul_rdma::sim::{Experiment, ExperimentError, Link};

use super::units::GIGABIT;
use crate::bench::record::section::{Section, Target};
use crate::bench::record::{percent, table};

const DESCRIPTION: &str = "One channel with default options (`-dcstack rdma`): both ends know the rate of their ports and \
the round trip, and have enough memory. The share of the line rate once warm; the time after which each interval has 95 % \
of it, where an interval is the time in which the port sends two rings; and what follows from the path: the \
long ring of each end, the messages, the queue pairs, and the requests in flight on each. The other direction has a ring of 256 KiB.";

/// In Gb/s.
const RATES: [u64; 4] = [1, 10, 100, 400];

/// In milliseconds.
const ROUND_TRIPS: [u64; 6] = [0, 1, 10, 50, 100, 200];

/// A path and the result.
struct Cell {
    gigabits: u64,
    round_trip: u64,
    experiment: Experiment,
    share: f64,
    warm: Duration,
}

pub(super) fn measure() -> Result<Section, ExperimentError> {
    let mut cells = Vec::new();
    for gigabits in RATES {
        for round_trip in ROUND_TRIPS {
            cells.push(cell(gigabits, round_trip)?);
        }
    }
    let least = cells.iter().map(|cell| cell.share).fold(1.0, f64::min);
    let late = cells.iter().filter(|cell| !cell.is_warm_in_time()).count();
    Ok(Section {
        title: "Default options".to_owned(),
        description: DESCRIPTION.to_owned(),
        table: table(
            [
                "rate",
                "round trip",
                "share",
                "warm after",
                "ring",
                "messages",
                "queue pairs",
                "requests of each",
            ],
            cells.iter().map(Cell::row).collect(),
        ),
        pictures: Vec::new(),
        targets: vec![
            Target {
                wanted: "at least 95 % of the line rate".to_owned(),
                found: percent(least),
                is_met: least >= 0.95,
            },
            Target {
                wanted: "warm within 20 round trips or 2 s".to_owned(),
                found: format!("{late} of {} later", cells.len()),
                is_met: late == 0,
            },
        ],
    })
}

fn cell(gigabits: u64, round_trip: u64) -> Result<Cell, ExperimentError> {
    let rate = gigabits * GIGABIT;
    let delay = Duration::from_micros(500 * round_trip);
    let experiment = Experiment::with_default_options(Link::new(rate, delay), 1);
    let outcome = experiment.run()?;
    let cold = outcome.below(0.95, rate);
    Ok(Cell {
        gigabits,
        round_trip,
        share: outcome.rate_from(cold.max(1)) / rate as f64,
        warm: experiment.interval * u32::try_from(cold).unwrap_or(u32::MAX),
        experiment,
    })
}

impl Cell {
    fn is_warm_in_time(&self) -> bool {
        let round_trips = Duration::from_millis(20 * self.round_trip);
        self.warm <= round_trips.max(Duration::from_secs(2))
    }

    fn row(&self) -> [String; 8] {
        let Experiment {
            fabric,
            ring_bytes,
            message_bytes,
            queue_pairs,
            ..
        } = &self.experiment;
        [
            format!("{} Gb/s", self.gigabits),
            format!("{} ms", self.round_trip),
            percent(self.share),
            format!("{} ms", self.warm.as_millis()),
            format!("{} MiB", ring_bytes.get() >> 20),
            format!("{} KiB", message_bytes >> 10),
            queue_pairs.to_string(),
            fabric.depth.to_string(),
        ]
    }
}
