//! Throughput by ring length and round trip.

use std::num::NonZeroU64;
use std::time::Duration;

use gridhaul_rdma::sim::{Experiment, ExperimentError, FabricSettings, Link, Pace};

use super::units::GIGABIT;
use crate::bench::record::plot::{Axis, Plot, PlotLine};
use crate::bench::record::section::{Picture, Section, Target};
use crate::bench::record::{percent, table};

const DESCRIPTION: &str = "Figures 7 and 8 of the paper on XIO-RDMA: one channel and one queue pair, by round trip and ring length. \
Each cell is the share of the line rate, with the prediction of a model in parentheses: with *x* bandwidth-delay \
products in the ring and credit for a quarter of it at a time, min(1, *x* / (1 + *x* / 4)). At 400 Gb/s and long round \
trips the line rate needs rings longer than the driver's limit of 4 GiB; the 32 GiB column shows that the ring is the only limit.";

/// Rates in Gb/s, and typical message sizes in bytes.
const RATES: [(u64, u64); 3] = [(10, 256 << 10), (100, 512 << 10), (400, 1 << 20)];

/// Round trips in milliseconds.
const ROUND_TRIPS: [u64; 7] = [0, 1, 10, 25, 50, 100, 200];

const RINGS: [(&str, u64); 5] = [
    ("64 MiB", 64 << 20),
    ("256 MiB", 256 << 20),
    ("1 GiB", 1 << 30),
    ("4 GiB", 4 << 30),
    ("32 GiB", 32 << 30),
];

/// A path, a ring and the result.
struct Cell {
    gigabits: u64,
    round_trip: u64,
    ring: u64,
    share: f64,
    /// Bandwidth-delay products in the ring.
    products: f64,
}

pub(super) fn measure() -> Result<Section, ExperimentError> {
    let mut cells = Vec::new();
    for (gigabits, message_bytes) in RATES {
        for round_trip in ROUND_TRIPS {
            for (_, ring) in RINGS {
                cells.push(cell(gigabits, message_bytes, round_trip, ring)?);
            }
        }
    }
    let enough = cells.iter().filter(|cell| cell.products >= 3.0);
    let least = enough.map(|cell| cell.share).fold(1.0, f64::min);
    Ok(Section {
        title: "Rings and round trips".to_owned(),
        description: DESCRIPTION.to_owned(),
        table: cells_table(&cells),
        pictures: RATES
            .map(|(gigabits, _)| Picture {
                name: format!("rdma-rings-{gigabits}.svg"),
                plot: plot(&cells, gigabits),
            })
            .into(),
        targets: vec![Target {
            wanted: "at least 98 % of the line rate where the ring covers three bandwidth-delay products".to_owned(),
            found: percent(least),
            is_met: least >= 0.98,
        }],
    })
}

fn cell(
    gigabits: u64,
    message_bytes: u64,
    round_trip: u64,
    ring: u64,
) -> Result<Cell, ExperimentError> {
    let time = Duration::from_millis(round_trip);
    let rate = gigabits * GIGABIT;
    // The first interval contains the initial filling of the ring and the first round trip.
    let interval = Duration::from_millis(200) + 4 * time;
    let mut fabric = FabricSettings::new(Link::new(rate, time / 2));
    // The queue depth of adapters: with a smaller one the queue would be the limit and not the ring.
    fabric.depth = 32 << 10;
    let experiment = Experiment {
        fabric,
        channels: 1,
        ring_bytes: NonZeroU64::new(ring).expect("a constant that is not zero"),
        message_bytes,
        queue_pairs: 1,
        pace: Pace::Unpaced,
        stall: None,
        time: 4 * interval,
        interval,
    };
    let product = rate as f64 * time.as_secs_f64();
    Ok(Cell {
        gigabits,
        round_trip,
        ring,
        share: experiment.run()?.rate_from(1) / rate as f64,
        products: if product > 0.0 {
            ring as f64 / product
        } else {
            f64::INFINITY
        },
    })
}

impl Cell {
    fn model(&self) -> f64 {
        if self.products.is_finite() {
            (self.products / (1.0 + self.products / 4.0)).min(1.0)
        } else {
            1.0
        }
    }
}

fn cells_table(cells: &[Cell]) -> String {
    let rows = cells.chunks(RINGS.len()).map(|row| {
        let mut columns = vec![
            format!("{} Gb/s", row[0].gigabits),
            format!("{} ms", row[0].round_trip),
        ];
        let words = |cell: &Cell| {
            let share = format!("{} ({:.0})", percent(cell.share), cell.model() * 100.0);
            if cell.products >= 3.0 {
                format!("**{share}**")
            } else {
                share
            }
        };
        columns.extend(row.iter().map(words));
        columns.try_into().unwrap_or_default()
    });
    let [one, two, three, four, five] = RINGS.map(|(name, _)| name);
    let heading = ["rate", "round trip", one, two, three, four, five];
    let table = table(heading, rows.collect());
    format!("{table}\nBold: rings that cover three bandwidth-delay products.\n")
}

/// The measurement and the model for three of the rings.
fn plot(cells: &[Cell], gigabits: u64) -> Plot {
    let mut lines = Vec::new();
    for (name, ring) in [RINGS[0], RINGS[2], RINGS[3]] {
        let of_ring = cells
            .iter()
            .filter(|cell| cell.gigabits == gigabits && cell.ring == ring);
        for is_model in [false, true] {
            let value = |cell: &Cell| if is_model { cell.model() } else { cell.share };
            let point = |cell: &Cell| {
                let rate = value(cell) * gigabits as f64;
                [cell.round_trip as f64, rate]
            };
            lines.push(PlotLine {
                name: format!("{name}{}", if is_model { ", model" } else { "" }),
                is_model,
                points: of_ring.clone().map(point).collect(),
            });
        }
    }
    Plot {
        title: format!("{gigabits} Gb/s, by round trip and ring"),
        horizontal: Axis::numbers("round trip, ms"),
        vertical: "Gb/s".to_owned(),
        lines,
    }
}
