//! A policer in the path of soft-RoCE, with paced and unpaced messages.

use std::fs;
use std::io;
use std::thread;
use std::time::Duration;

use super::pump::Moved;
use super::runs::{in_one_line, load_for};
use crate::bench::record::plot::{Axis, Plot, PlotLine};
use crate::bench::record::section::{Picture, Section, Target};
use crate::bench::record::{percent, table};
use crate::support::guest_network::RIGHT;
use crate::support::policer::Policer;

const DESCRIPTION: &str = "The paper on XIO-RDMA, figure 9, over soft-RoCE: channels behind a policer of 400 Mb/s with a burst of 128 KiB. \
Shares are those of the policed rate: over the whole time, and settled, from the sixth second on. Unpaced runs last four \
seconds: a stall in the table was detected within them.";

/// The policer's rate, in bits per second, and its burst in bytes.
const POLICED: u64 = 400_000_000;
const BURST: u64 = 128 << 10;

/// The documented time in which the driver finds a rate.
const SETTLED: Duration = Duration::from_secs(5);

/// The target for options of the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    /// The policed rate, from the start and without loss.
    Paced,
    /// The policed rate, after the driver has found it.
    Found,
    /// A stall that the engine detects.
    Detected,
}

/// Options, number of channels, and target.
const RUNS: [(&str, usize, Wanted); 10] = [
    // A policer counts headers: 392 Mb/s of payload are 398 Mb/s. The burst leaves room for spurious retransmissions of soft-RoCE.
    ("message=32K;rate=392m;burst=104K", 1, Wanted::Paced),
    ("message=64K;rate=392m;burst=104K", 1, Wanted::Paced),
    ("message=32K;rate=392m;burst=104K", 4, Wanted::Paced),
    ("message=64K;rate=392m;burst=104K", 4, Wanted::Paced),
    ("message=256K;rate=388m", 1, Wanted::Detected),
    ("message=64K", 1, Wanted::Detected),
    ("message=1M", 1, Wanted::Detected),
    ("message=64K;rate=auto", 1, Wanted::Found),
    ("message=1M;rate=auto", 1, Wanted::Found),
    ("message=64K;rate=auto", 4, Wanted::Found),
];

/// The result of one of [`RUNS`].
struct Run {
    options: &'static str,
    channels: usize,
    wanted: Wanted,
    outcome: Result<Moved, String>,
    /// Packets that the policer dropped.
    dropped: u64,
    /// Sequence errors at the receiving device from the sixth second on.
    missed_settled: u64,
}

pub(super) fn measure() -> io::Result<Section> {
    let runs = RUNS.map(|(options, channels, wanted)| run(options, channels, wanted));
    let runs = runs.into_iter().collect::<io::Result<Vec<_>>>()?;
    let heading = [
        "options",
        "channels",
        "Mb/s",
        "of the policed rate",
        "settled",
        "packets dropped",
        "missed, settled",
        "stalls",
        "queue pairs replaced",
        "slowest over fastest",
    ];
    Ok(Section {
        title: "A policer of 400 Mb/s".to_owned(),
        description: DESCRIPTION.to_owned(),
        table: table(heading, runs.iter().map(Run::row).collect()),
        targets: runs.iter().map(Run::target).collect(),
        pictures: vec![Picture {
            name: "rdma-roce-policer.svg".to_owned(),
            plot: plot(&runs),
        }],
    })
}

fn run(options: &'static str, channels: usize, wanted: Wanted) -> io::Result<Run> {
    Policer::OfRight.install(POLICED, BURST)?;
    let time = Duration::from_secs(if wanted == Wanted::Detected { 4 } else { 15 });
    let stack = format!("rdma:provider=verbs;{options}");
    let (outcome, missed_before) = thread::scope(|scope| {
        let settling = scope.spawn(|| {
            thread::sleep(SETTLED.min(time));
            missed()
        });
        let outcome = load_for(time, &stack, RIGHT, channels);
        (
            outcome,
            settling.join().expect("reading a counter does not panic"),
        )
    });
    Ok(Run {
        options,
        channels,
        wanted,
        outcome,
        dropped: Policer::OfRight.dropped()?,
        missed_settled: missed()? - missed_before?,
    })
}

/// The number of out-of-sequence packets at the receiving device. During a run this replaces the counter of the policer: reading that
/// starts tc(8), which occupies the only processor long enough to delay packets, which then leave as a burst.
fn missed() -> io::Result<u64> {
    let shown = fs::read_to_string(
        "/sys/class/infiniband/rxe_right/ports/1/hw_counters/out_of_seq_request",
    )?;
    shown.trim().parse().map_err(|_| io::Error::other(shown))
}

impl Run {
    fn row(&self) -> [String; 10] {
        let options = format!("`{}`", self.options);
        let channels = self.channels.to_string();
        let counts = [self.dropped, self.missed_settled].map(|count| count.to_string());
        let [dropped, missed_settled] = counts;
        let moved = match &self.outcome {
            Ok(moved) => moved,
            Err(words) => {
                let none = || "-".to_owned();
                let words = words.clone();
                return [
                    options,
                    channels,
                    words,
                    none(),
                    none(),
                    dropped,
                    missed_settled,
                    none(),
                    none(),
                    none(),
                ];
            }
        };
        let megabits = format!("{:.0}", moved.megabytes_per_second() * 8.0);
        let failure = moved.failure.as_ref();
        let fairness = (self.channels > 1).then(|| format!("{:.2}", moved.fairness()));
        [
            options,
            channels,
            failure.map_or(megabits, |error| in_one_line(&error.to_string())),
            percent(share(moved.megabytes_per_second())),
            self.settled().map_or_else(|| "-".to_owned(), percent),
            dropped,
            missed_settled,
            moved.count("stalls").to_string(),
            moved.count("restored").to_string(),
            fairness.unwrap_or_else(|| "-".to_owned()),
        ]
    }

    /// The share of the policed rate from the sixth second on, if the run lasted that long.
    fn settled(&self) -> Option<f64> {
        let moved = self.outcome.as_ref().ok()?;
        (moved.elapsed > SETTLED).then(|| share(moved.megabytes_per_second_from(SETTLED)))
    }

    fn target(&self) -> Target {
        let options = self.options;
        let moved = self.outcome.as_ref().ok();
        let (wanted, found, is_met) = match self.wanted {
            Wanted::Paced => {
                let share = moved.map_or(0.0, |moved| share(moved.megabytes_per_second()));
                (
                    "at least 95 % of the policed rate and no packet dropped",
                    format!("{}, {} dropped", percent(share), self.dropped),
                    share >= 0.95 && self.dropped == 0,
                )
            }
            Wanted::Found => {
                let share = self.settled().unwrap_or_default();
                (
                    "after 5 s at least 95 % of the policed rate and no packet missed",
                    format!("{}, {} missed", percent(share), self.missed_settled),
                    share >= 0.95 && self.missed_settled == 0,
                )
            }
            Wanted::Detected => {
                let stalls = moved.map_or(0, |moved| moved.count("stalls"));
                let words = "a stall that is detected within 4 s";
                (words, format!("{stalls} detected"), stalls > 0)
            }
        };
        Target {
            wanted: match self.channels {
                1 => format!("`{options}`: {wanted}"),
                several => format!("`{options}`, {several} channels: {wanted}"),
            },
            found,
            is_met,
        }
    }
}

fn share(megabytes_per_second: f64) -> f64 {
    megabytes_per_second * 8e6 / POLICED as f64
}

/// The received rate in intervals of half a second.
fn plot(runs: &[Run]) -> Plot {
    let shown = [
        "message=64K;rate=392m;burst=104K",
        "message=64K",
        "message=64K;rate=auto",
        "message=1M;rate=auto",
    ];
    let line = |run: &Run| {
        let moved = run.outcome.as_ref().ok()?;
        let looks: Vec<_> = moved.progress.iter().step_by(5).collect();
        let point = |pair: &[&(Duration, u64)]| {
            let [(before, less), (after, more)] = [pair[0], pair[1]].map(|&look| look);
            let seconds = (after - before).as_secs_f64();
            let megabits = (more - less) as f64 * 8.0 / seconds / 1e6;
            [before.as_secs_f64() + seconds / 2.0, megabits]
        };
        Some(PlotLine {
            name: run.options.replace("message=", ""),
            is_model: false,
            points: looks.windows(2).map(point).collect(),
        })
    };
    let shown = runs
        .iter()
        .filter(|run| run.channels == 1 && shown.contains(&run.options));
    Plot {
        title: "A policer of 400 Mb/s and 128 KiB, by message size and pacing".to_owned(),
        horizontal: Axis::numbers("s"),
        vertical: "Mb/s".to_owned(),
        lines: shown.filter_map(line).collect(),
    }
}
