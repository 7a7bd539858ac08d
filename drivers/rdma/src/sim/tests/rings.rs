//! Default options fill a path.

use std::time::Duration;

use crate::sim::{Experiment, FabricSettings, Link};

const GIGABIT: u64 = 125_000_000;

/// In Gb/s and milliseconds; `bench-rdma` has more.
const PATHS: [(u64, u64); 5] = [(1, 0), (10, 100), (100, 10), (400, 1), (400, 200)];

#[test]
fn default_options_fill_any_path_at_once() {
    for (gigabits, milliseconds) in PATHS {
        let delay = Duration::from_micros(500 * milliseconds);
        let rate = gigabits * GIGABIT;
        let experiment = Experiment::with_default_options(Link::new(rate, delay), 1);
        let outcome = experiment.run().unwrap();
        let words = format!("{gigabits} Gb/s, {milliseconds} ms: {outcome:?}");
        let share = outcome.rate_from(1) / rate as f64;
        assert!(share >= 0.98, "{share} at {words}");
        assert!(outcome.below(0.95, rate) <= 1, "{words}");
    }
}

/// The channels of a transfer share the path, and each has its part of the memory.
#[test]
fn several_channels_fill_a_path_together() {
    let rate = 100 * GIGABIT;
    let link = Link::new(rate, Duration::from_millis(50));
    let experiment = Experiment::with_default_options(link, 4);
    assert_eq!(experiment.ring_bytes.get(), 625_000_000);
    let outcome = experiment.run().unwrap();
    let share = outcome.rate_from(1) / rate as f64;
    assert!(share >= 0.98, "{share}");
    assert!(outcome.fairness() > 0.9, "{:?}", outcome.channels);
}

/// An acknowledgement timer, a storage or a switch may delay more than the measured round trip.
#[test]
fn a_ring_has_a_reserve() {
    let rate = 10 * GIGABIT;
    let measured = Link::new(rate, Duration::from_millis(50));
    let mut experiment = Experiment::with_default_options(measured, 1);
    let longer = Link::new(rate, Duration::from_millis(70));
    experiment.fabric = FabricSettings {
        depth: experiment.fabric.depth,
        ..FabricSettings::new(longer)
    };
    let share = experiment.run().unwrap().rate_from(1) / rate as f64;
    assert!(share >= 0.95, "{share}");
}
