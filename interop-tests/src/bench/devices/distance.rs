//! RDMA and TCP over a long path of 1 Gb/s.

use std::fs;
use std::io;
use std::time::Duration;

use super::pump::Moved;
use super::runs::{in_one_line, load_for};
use crate::bench::record::plot::{Axis, Plot, PlotLine};
use crate::bench::record::section::{Picture, Section};
use crate::bench::record::table;
use crate::support::guest_network::RIGHT;
use crate::support::policer::tc;

const DESCRIPTION: &str = "The paper on XIO-RDMA, figure 8, over soft-RoCE: 1 and 8 channels on an emulated path of 1 Gb/s without loss (netem), \
by round trip. Mb/s from the third to the sixth second. soft-RoCE has up to 128 packets in flight on a queue pair (RXE_MAX_UNACKED_PSNS of \
Linux), which is 512 KiB for each round trip, 42 Mb/s at 100 ms: only several queue pairs fill a long path. Buffers of TCP grow to 64 MiB; the queue of the path has room for everything that is in \
flight. With default options the ends take the rate of their virtual network cards for that of the path, 10 Gb/s; `rate` names the real one.";

/// Of the path, in bits per second with the unit of tc(8).
const RATE: &str = "1gbit";

/// In milliseconds.
const ROUND_TRIPS: [u64; 5] = [0, 10, 50, 100, 200];

const HEADING: [&str; 2 + ROUND_TRIPS.len()] = [
    "stack", "channels", "0 ms", "10 ms", "50 ms", "100 ms", "200 ms",
];

const STACKS: [&str; 5] = [
    "rdma:provider=verbs",
    "rdma:provider=verbs;qps=16",
    // Headers of packets of 4 KiB take 1.5 %.
    "rdma:provider=verbs;rate=960m;qps=16",
    "tcp:cc=cubic",
    "tcp:cc=bbr",
];

const CHANNELS: [usize; 2] = [1, 8];

const TIME: Duration = Duration::from_secs(6);

/// Congestion controls have found their rates by then.
const WARM: Duration = Duration::from_secs(2);

/// One stack with one number of channels: a cell for each round trip.
struct Line {
    stack: &'static str,
    channels: usize,
    outcomes: Vec<Result<Moved, String>>,
}

pub(super) fn measure() -> io::Result<Section> {
    for name in ["tcp_rmem", "tcp_wmem"] {
        let path = format!("/proc/sys/net/ipv4/{name}");
        fs::write(path, "4096 131072 67108864")?;
    }
    let mut lines = Vec::new();
    for stack in STACKS {
        for channels in CHANNELS {
            let outcomes = Vec::new();
            lines.push(Line {
                stack,
                channels,
                outcomes,
            });
        }
    }
    for milliseconds in ROUND_TRIPS {
        emulate(milliseconds)?;
        for line in &mut lines {
            line.outcomes
                .push(load_for(TIME, line.stack, RIGHT, line.channels));
        }
    }
    Ok(Section {
        title: "Distance, 1 Gb/s".to_owned(),
        description: DESCRIPTION.to_owned(),
        table: table(HEADING, lines.iter().map(Line::row).collect()),
        targets: Vec::new(),
        pictures: vec![Picture {
            name: "rdma-roce-distance.svg".to_owned(),
            plot: plot(&lines),
        }],
    })
}

/// Sets up the path. Half of the round trip is in each direction, and the rate in both.
fn emulate(milliseconds: u64) -> io::Result<()> {
    let microseconds = milliseconds * 500;
    for end in ["left", "right"] {
        tc(&format!(
            "qdisc replace dev {end} root netem rate {RATE} delay {microseconds}us limit 100000"
        ))?;
    }
    Ok(())
}

impl Line {
    fn row(&self) -> [String; HEADING.len()] {
        let cell = |outcome: &Result<Moved, String>| match outcome {
            Ok(moved) => match &moved.failure {
                None => format!("{:.0}", megabits(moved)),
                Some(error) => in_one_line(&error.to_string()),
            },
            Err(words) => words.clone(),
        };
        let first = [format!("`{}`", self.stack), self.channels.to_string()];
        let cells = first.into_iter().chain(self.outcomes.iter().map(cell));
        let cells: Vec<_> = cells.collect();
        cells.try_into().expect("a column for each round trip")
    }
}

fn megabits(moved: &Moved) -> f64 {
    moved.megabytes_per_second_from(WARM) * 8.0
}

/// One channel, by round trip.
fn plot(lines: &[Line]) -> Plot {
    let line = |line: &Line| {
        let moved = |outcome: &Result<Moved, String>| {
            let moved = outcome.as_ref().ok()?;
            moved.failure.is_none().then(|| megabits(moved))
        };
        let outcomes = line.outcomes.iter().enumerate();
        PlotLine {
            name: line
                .stack
                .replace("provider=verbs;", "")
                .replace(":provider=verbs", ""),
            is_model: false,
            points: outcomes
                .filter_map(|(at, outcome)| Some([at as f64, moved(outcome)?]))
                .collect(),
        }
    };
    let single = lines.iter().filter(|line| line.channels == 1);
    Plot {
        title: "One channel on a path of 1 Gb/s, by round trip".to_owned(),
        horizontal: Axis::steps("round trip", HEADING[2..].iter().copied()),
        vertical: "Mb/s".to_owned(),
        lines: single.map(line).collect(),
    }
}
