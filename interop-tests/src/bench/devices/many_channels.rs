//! Many channels that share a pool of memory.

use std::time::Duration;

use gridhaul_rdma::memory_load;

use super::pump::Moved;
use super::runs::load_for;
use crate::bench::record::section::{Section, Target};
use crate::bench::record::table;
use crate::support::guest_network::RIGHT;

const CHANNELS: usize = 64;

/// The last one uses no pool: it shows the effect of this number of threads in the guest.
const STACKS: [&str; 3] = ["rdma:provider=soft", "rdma:provider=verbs", "tcp"];

/// Long enough to average out scheduling: the guest's one processor serves 128 threads only a few times in a second.
const TIME: Duration = Duration::from_secs(30);

/// The target: the slowest channel's share of the fastest one's.
const FAIR: f64 = 0.7;

pub(super) fn measure() -> Section {
    let outcomes = STACKS.map(|stack| load_for(TIME, stack, RIGHT, CHANNELS));
    let bound = memory_load().limit_bytes >> 20;
    let rows = STACKS.iter().zip(&outcomes);
    let heading = [
        "stack",
        "MB/s together",
        "slowest channel, MB/s",
        "slowest over fastest",
    ];
    Section {
        title: "Many channels".to_owned(),
        description: format!(
            "{CHANNELS} concurrent channels between two addresses for {} s. The rings of both ends share {bound} MiB.",
            TIME.as_secs()
        ),
        table: table(
            heading,
            rows.map(|(stack, outcome)| row(stack, outcome)).collect(),
        ),
        targets: vec![target(&outcomes[..2])],
        pictures: Vec::new(),
    }
}

fn row(stack: &str, outcome: &Result<Moved, String>) -> [String; 4] {
    let stack = format!("`{stack}`");
    match outcome {
        Ok(moved) => {
            let slowest = moved.bytes.iter().min().copied().unwrap_or_default();
            let speed = format!("{:.0}", moved.megabytes_per_second());
            let failure = moved.failure.as_ref();
            [
                stack,
                failure.map_or(speed, |error| error.to_string()),
                format!("{:.2}", slowest as f64 / moved.elapsed.as_secs_f64() / 1e6),
                format!("{:.2}", moved.fairness()),
            ]
        }
        Err(words) => [stack, words.clone(), "-".into(), "-".into()],
    }
}

fn target(outcomes: &[Result<Moved, String>]) -> Target {
    let fairness = outcomes.iter().map(|outcome| match outcome {
        Ok(moved) if moved.failure.is_none() => moved.fairness(),
        _ => 0.0,
    });
    let least = fairness.fold(1.0, f64::min);
    Target {
        wanted: format!("slowest over fastest above {FAIR}"),
        found: format!("{least:.2}"),
        is_met: least > FAIR,
    }
}
