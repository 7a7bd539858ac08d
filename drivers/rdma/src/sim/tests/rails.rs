//! A channel over several adapters, each with a path of its own.

use std::num::{NonZeroU64, NonZeroUsize};
use std::sync::Arc;
use std::time::Duration;

use super::queue_pairs::{rate, ring_bytes};
use super::streams::{Device, run_over, survive};
use super::{Replay, seeds};
use crate::handshake::Mode;
use crate::memory::Memory;
use crate::pacing::{Burst, Path, Rate};
use crate::sim::random::Random;
use crate::sim::run::{Run, RunSettings};
use crate::sim::{FabricSettings, Link, Policer};

const GIGABIT: u64 = 125_000_000;
const MESSAGE_BYTES: u64 = 256 << 10;
const SECOND: Duration = Duration::from_secs(1);

/// Hosts with ports of these rates in bytes per second, each connected to that of the other host.
fn fabric(rates: &[u64], round_trip: Duration) -> FabricSettings {
    let mut links = rates.iter().map(|&rate| Link::new(rate, round_trip / 2));
    let first = links.next().unwrap();
    FabricSettings {
        rails: links.map(|link| [link.clone(), link]).collect(),
        ..FabricSettings::new(first)
    }
}

fn sum(rates: &[u64]) -> u64 {
    rates.iter().sum()
}

#[test]
fn unequal_rails_add_up() {
    for rates in [
        &[10 * GIGABIT, 10 * GIGABIT][..],
        &[10 * GIGABIT, 5 * GIGABIT / 2],
        &[GIGABIT, 4 * GIGABIT, 2 * GIGABIT],
    ] {
        for microseconds in [100, 1000, 20_000] {
            let round_trip = Duration::from_micros(microseconds);
            let ring_bytes = ring_bytes(sum(rates), round_trip);
            for of_each in [1, 2] {
                let queue_pairs = of_each * rates.len();
                let fabric = fabric(rates, round_trip);
                let rate = rate(fabric, queue_pairs, ring_bytes, Mode::Put);
                let share = rate / sum(rates) as f64;
                assert!(
                    share > 0.95,
                    "{share} of {rates:?}, {microseconds} us, {queue_pairs}"
                );
            }
        }
    }
}

/// The receiver's READs take turns with the rails as well.
#[test]
fn rails_add_up_where_the_receiver_reads() {
    let rates = [10 * GIGABIT; 2];
    let round_trip = Duration::from_micros(100);
    let ring_bytes = ring_bytes(sum(&rates), round_trip);
    let rate = rate(fabric(&rates, round_trip), 4, ring_bytes, Mode::Get);
    let share = rate / sum(&rates) as f64;
    assert!(share > 0.9, "{share}");
}

/// A channel over rails that are not paced.
fn channel(queue_pairs: usize, ring_bytes: NonZeroU64, message_bytes: u64) -> RunSettings {
    RunSettings {
        ring_bytes,
        message_bytes,
        queue_pairs,
        mode: Mode::Put,
        stall: Some(3 * SECOND),
    }
}

fn unpaced(rails: usize) -> [Vec<Arc<Path>>; 2] {
    let path = |_| Path::new(Rate::Any, MESSAGE_BYTES);
    [(); 2].map(|()| (0..rails).map(path).collect())
}

/// The adapter of the second rail, or its path, fails and stays so.
#[test]
fn a_rail_that_dies_leaves_the_rate_of_the_others() {
    let rates = [4 * GIGABIT, 10 * GIGABIT];
    let round_trip = Duration::from_millis(10);
    let mut settings = fabric(&rates, round_trip);
    // A device gives up after seven timeouts of 67 ms.
    settings.retries = 6;
    for link in &mut settings.rails[0] {
        link.down = SECOND..1_000_000 * SECOND;
    }
    let mut run = Run::new(settings);
    let ring_bytes = ring_bytes(sum(&rates), round_trip);
    let channel = channel(4, ring_bytes, MESSAGE_BYTES);
    run.open_over(channel, unpaced(2), [None, None]).unwrap();
    run.channels[0][0].send(u64::MAX, None);
    let mut share = |from: Duration, to: Duration, rate: u64| {
        run.run_until(from).unwrap();
        let before = run.channels[0][1].received;
        run.run_until(to).unwrap();
        let bytes = run.channels[0][1].received - before;
        bytes as f64 / (to - from).as_secs_f64() / rate as f64
    };
    let before = share(SECOND / 2, SECOND, sum(&rates));
    assert!(before > 0.95, "{before}");
    let after = share(2 * SECOND, 3 * SECOND, rates[0]);
    assert!(after > 0.95, "{after}");
}

/// What was under way on it arrives over the other, and nothing twice.
#[test]
fn a_rail_that_dies_costs_no_byte() {
    const LENGTH: u64 = 40_000_000;
    let rates = [20_000_000, 10_000_000];
    let mut settings = fabric(&rates, Duration::from_millis(5));
    settings.retries = 6;
    for link in &mut settings.rails[0] {
        link.down = SECOND / 2..1_000_000 * SECOND;
    }
    let mut run = Run::new(settings);
    let bytes = NonZeroUsize::new(1 << 20).unwrap();
    let memory = || Arc::new(Memory::new(bytes).unwrap());
    let memories = || Some([memory(), memory()]);
    let channel = channel(2, bytes.try_into().unwrap(), 16 << 10);
    let memories = [memories(), memories()];
    run.open_over(channel, unpaced(2), memories).unwrap();
    run.channels[0][0].send(LENGTH, None);
    run.channels[0][1].send(0, None);
    // At the rate of the first rail, and the time until the loss is noticed.
    let end = 2 * SECOND + 2 * SECOND;
    while run.channels[0][1].received < LENGTH {
        assert!(
            run.step(end).unwrap(),
            "{} arrived",
            run.channels[0][1].received
        );
    }
}

#[test]
fn streams_survive_everything_over_rails() {
    for seed in seeds(300) {
        let _replay = Replay(seed);
        let mut random = Random::new(seed);
        let rails = 2 + random.index(3);
        let run = run_over(&mut random, true, rails, Device::Usual);
        survive(run, &mut random);
    }
}

/// Each rail has a policer of its own, and a pace.
#[test]
fn the_rates_of_paced_rails_add_up() {
    let burst = 2 * MESSAGE_BYTES;
    for (rates, round_trip) in [
        ([5 * GIGABIT, 5 * GIGABIT], Duration::from_millis(20)),
        ([5 * GIGABIT, GIGABIT], Duration::from_millis(20)),
        ([5 * GIGABIT, 2 * GIGABIT], Duration::from_micros(100)),
    ] {
        let mut settings = fabric(&[10 * GIGABIT; 2], round_trip);
        let further = settings.rails.iter_mut().flatten();
        for (link, rate) in settings.links[..1].iter_mut().chain(further).zip(rates) {
            // Announcements take some of it.
            let rate = rate / 100 * 103;
            link.policer = Some(Policer { rate, burst });
        }
        let mut run = Run::new(settings);
        let ring_bytes = ring_bytes(sum(&rates), round_trip);
        let paced = rates.map(|rate| Path::new(Rate::Fixed(rate), Burst::from(burst)));
        let [_, back] = unpaced(2);
        let channel = channel(4, ring_bytes, MESSAGE_BYTES);
        let paths = [paced.to_vec(), back];
        run.open_over(channel, paths, [None, None]).unwrap();
        run.channels[0][0].send(u64::MAX, None);
        run.run_until(SECOND).unwrap();
        let before = run.channels[0][1].received;
        run.run_until(2 * SECOND).unwrap();
        let share = (run.channels[0][1].received - before) as f64 / sum(&rates) as f64;
        assert!(share > 0.95, "{share} of {rates:?} at {round_trip:?}");
        assert_eq!(run.fabric.dropped(0), 0, "the policers drop nothing");
    }
}
