//! The search for a rate on a thousand paths of four kinds, by which its rules are judged.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use super::Replay;
use super::pacing::{behind_any, busy, lossy, policed};
use crate::sim::random::Random;
use crate::sim::{Experiment, Naps, Pace, Policer};

const GIGABIT: u64 = 125_000_000;
const SECOND: Duration = Duration::from_secs(1);
const SEEDS: u64 = 1000;

const KINDS: [&str; 4] = [
    "any policer",
    "a short path with a policer",
    "random loss on a long path",
    "random loss on a short path",
];

/// A path, the number of its kind, and the rate that it permits in bytes per second.
fn path(seed: u64) -> (Experiment, usize, u64) {
    let mut random = Random::new(seed);
    let (mut experiment, kind, rate) = match seed % 8 {
        0..=3 => {
            let (experiment, policer) = behind_any(seed);
            (experiment, 0, policer.rate)
        }
        number @ 4..=5 => {
            let policer = Policer {
                rate: GIGABIT / 5 + random.below(GIGABIT / 5 * 8),
                burst: (128 << 10) + random.below(1_470_000),
            };
            let mut experiment = busy(seed / 8);
            experiment.fabric.seed = seed;
            experiment.fabric.links[0].policer = Some(policer);
            experiment.fabric.naps = (number == 5).then_some(Naps {
                apart: SECOND,
                longest: SECOND / 100,
            });
            (experiment, 1, policer.rate)
        }
        6 => {
            let mut experiment = policed(Pace::Auto);
            let delay = Duration::from_millis(random.below(60));
            let loss = [1e-6, 1e-7][random.index(2)];
            for link in &mut experiment.fabric.links {
                (link.policer, link.loss, link.delay) = (None, loss, delay);
            }
            experiment.fabric.seed = seed;
            experiment.message_bytes = 1 << 20;
            experiment.queue_pairs = 1 + random.index(4);
            (experiment, 2, 10 * GIGABIT)
        }
        _ => (
            lossy([1e-4, 1e-5, 1e-6][random.index(3)], seed),
            3,
            2 * GIGABIT,
        ),
    };
    experiment.time = 20 * SECOND;
    experiment.fabric.wakes_late = Some(Duration::from_micros(60)..Duration::from_micros(150));
    (experiment, kind, rate)
}

/// The delivered share of the rate in the last six seconds.
fn share_of(experiment: &Experiment, rate: u64) -> f64 {
    experiment.run().unwrap().rate_from(14) / rate as f64
}

/// Slow policers whose burst hides several steps of a climb, and fast ones that pass much more than
/// their burst at the port's rate.
#[test]
fn bursts_do_not_hide_the_rate_of_a_short_path() {
    for seed in [148, 404, 124, 141, 461] {
        let _replay = Replay(seed);
        let (experiment, _, rate) = path(seed);
        let share = share_of(&experiment, rate);
        assert!(share > 0.95, "{seed}: {share}");
    }
}

/// Of each kind the number, the median and the least shares of the rate, in the last six seconds.
#[test]
#[ignore = "takes minutes, also in a release build"]
fn the_rate_is_found_on_four_kinds_of_paths() {
    let next = AtomicU64::new(0);
    let run = || {
        let mut shares: [Vec<(f64, u64)>; 4] = Default::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= SEEDS {
                return shares;
            }
            let (experiment, kind, rate) = path(seed);
            shares[kind].push((share_of(&experiment, rate), seed));
        }
    };
    let threads = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let mut shares: [Vec<(f64, u64)>; 4] = Default::default();
    thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        for thread in threads {
            for (all, some) in shares.iter_mut().zip(thread.join().unwrap()) {
                all.extend(some);
            }
        }
    });
    for (name, mut shares) in KINDS.into_iter().zip(shares) {
        shares.sort_by(|one, other| one.0.total_cmp(&other.0));
        let median = shares[shares.len() / 2].0;
        let below = shares.partition_point(|(share, _)| *share < 0.8);
        println!(
            "{name}: median {median:.4}, least {:.4?}, {below} of {} below 0.8",
            &shares[..4],
            shares.len()
        );
    }
}
