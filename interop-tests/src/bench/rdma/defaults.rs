//! The driver's default options on paths of all rates and lengths.

use std::time::Duration;

use gridhaul_rdma::sim::{Defaults, DefaultsOutcome, ExperimentError, Link, Preparation};

use super::units::GIGABIT;
use crate::bench::record::section::{Section, Target};
use crate::bench::record::{percent, table};

const DESCRIPTION: &str = "One channel between two servers with default options (`-dcstack rdma`): both ends act for a client, and \
know the rate of their ports and the round trip. Rings may take a quarter of each machine's memory, the first ring of a client has \
1 GiB at most, and a ring grows to an eighth of that quarter. Rings, queue pairs and messages come from the functions that open a channel. \
The other direction has a ring of 256 KiB. Not simulated: the round trips of the handshake, tables of the adapter, and storage.

*Share* is that of the line rate once warm, and in the last quarter of the time where a path does not become warm. *Warm after* is the \
time after which each interval has 95 % of the line rate, where an interval is the time in which the port sends two rings that fill the path. It includes *opening*, the time in which both ends map, clear and pin \
their first rings. Further rings are prepared by a thread of each end while data flows, at the same time. *Ring* is the \
receiver's, and *memory* the most that an end had reserved; while a stream moves to another ring, an end has both.

Paths that miss a target are repeated with more memory.";

/// In Gb/s.
const RATES: [u64; 4] = [1, 10, 100, 400];

/// In milliseconds.
const ROUND_TRIPS: [u64; 6] = [0, 1, 10, 50, 100, 200];

/// The memory of each machine, and that of a larger one, in GiB.
const MEMORY: [u64; 2] = [256, 1024];

/// A path with machines and the result.
struct Cell {
    gigabits: u64,
    round_trip: u64,
    memory: u64,
    found: DefaultsOutcome,
    share: f64,
    warm: Option<Duration>,
}

pub(super) fn measure() -> Result<Section, ExperimentError> {
    let mut cells = Vec::new();
    let [usual, large] = MEMORY;
    for gigabits in RATES {
        for round_trip in ROUND_TRIPS {
            let with_usual = cell(gigabits, round_trip, usual)?;
            let is_met = with_usual.is_fast() && with_usual.is_warm_in_time();
            cells.push(with_usual);
            if !is_met {
                cells.push(cell(gigabits, round_trip, large)?);
            }
        }
    }
    Ok(Section {
        title: "Default options".to_owned(),
        description: description(),
        table: table(HEADING, cells.iter().map(Cell::row).collect()),
        pictures: Vec::new(),
        targets: vec![
            target(
                &cells,
                "at least 95 % of the line rate, with 256 GiB",
                Cell::is_fast,
            ),
            target(
                &cells,
                "warm within 20 round trips, or 2 s where that is longer, with 256 GiB",
                Cell::is_warm_in_time,
            ),
        ],
    })
}

fn description() -> String {
    let millis = Preparation::MEASURED.gibibyte.as_millis();
    format!(
        "{DESCRIPTION} To map, clear and pin 1 GiB takes {millis} ms: the time of one thread with huge pages, about the least of seven runs \
         on a virtual AMD EPYC processor with other work, whose median was 274 ms (`what_a_gibibyte_takes` in `drivers/rdma/src/sim/preparation.rs`)."
    )
}

/// Over the paths with the usual memory.
fn target(cells: &[Cell], wanted: &str, is_met: impl Fn(&Cell) -> bool) -> Target {
    let usual = || cells.iter().filter(|cell| cell.memory == MEMORY[0]);
    let missed: Vec<_> = usual().filter(|cell| !is_met(cell)).collect();
    let mut found = format!("{} of {} paths miss it", missed.len(), usual().count());
    if !missed.is_empty() {
        let names: Vec<_> = missed.iter().map(|cell| cell.name()).collect();
        found += &format!(" ({})", names.join("; "));
    }
    Target {
        wanted: wanted.to_owned(),
        found,
        is_met: missed.is_empty(),
    }
}

/// How long it may take until a path is warm.
fn warm_limit(round_trip: u64) -> Duration {
    Duration::from_millis(20 * round_trip).max(Duration::from_secs(2))
}

fn cell(gigabits: u64, round_trip: u64, memory: u64) -> Result<Cell, ExperimentError> {
    let rate = gigabits * GIGABIT;
    let delay = Duration::from_micros(500 * round_trip);
    let defaults = Defaults::new(Link::new(rate, delay), 1, memory << 30);
    let intervals = if defaults.grows()? {
        // Rings that are not there in time are still observed.
        let time = 6 * warm_limit(round_trip);
        4 + u32::try_from(time.as_nanos().div_ceil(defaults.interval().as_nanos())).unwrap_or(4)
    } else {
        4
    };
    let found = defaults.run(intervals)?;
    let warm = found.warm_after(0.95, rate);
    let from = match warm {
        Some(_) => found.outcome.below(0.95, rate).max(1),
        // One that does not become warm has what it has in the last quarter of the time.
        None => found.outcome.intervals.len() / 4 * 3,
    };
    Ok(Cell {
        gigabits,
        round_trip,
        memory,
        share: found.outcome.rate_from(from) / rate as f64,
        warm,
        found,
    })
}

const HEADING: [&str; 11] = [
    "rate",
    "round trip",
    "machines",
    "share",
    "warm after",
    "opening",
    "ring",
    "messages",
    "queue pairs",
    "requests of each",
    "memory",
];

impl Cell {
    fn is_fast(&self) -> bool {
        self.share >= 0.95
    }

    fn is_warm_in_time(&self) -> bool {
        self.warm
            .is_some_and(|warm| warm <= warm_limit(self.round_trip))
    }

    fn name(&self) -> String {
        format!("{} Gb/s, {} ms", self.gigabits, self.round_trip)
    }

    fn row(&self) -> [String; 11] {
        let [first, last] = self.found.rings;
        let ring = match [first, last].map(|rings| rings.bytes[1] >> 20) {
            [first, last] if first == last => format!("{first} MiB"),
            [first, last] => format!("{first}, then {last} MiB"),
        };
        let most = self.found.most_bytes.map(|bytes| bytes >> 20);
        [
            format!("{} Gb/s", self.gigabits),
            format!("{} ms", self.round_trip),
            format!("{} GiB", self.memory),
            percent(self.share),
            self.warm.map_or_else(|| "never".to_owned(), milliseconds),
            milliseconds(self.found.opening),
            ring,
            format!("{} KiB", last.message_bytes >> 10),
            self.found.queue_pairs.to_string(),
            self.found.requests.to_string(),
            format!("{} and {} MiB", most[0], most[1]),
        ]
    }
}

fn milliseconds(time: Duration) -> String {
    format!("{} ms", time.as_millis())
}
