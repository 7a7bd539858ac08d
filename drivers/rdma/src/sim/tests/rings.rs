//! Default options fill a path.

use std::time::Duration;

use crate::sim::{Defaults, Link, Preparation};

const GIGABIT: u64 = 125_000_000;
const GIB: u64 = 1 << 30;

/// In Gb/s and milliseconds; `bench-rdma` has more.
const PATHS: [(u64, u64); 5] = [(1, 0), (10, 100), (100, 10), (400, 1), (400, 10)];

fn path(gigabits: u64, milliseconds: u64) -> Link {
    let delay = Duration::from_micros(500 * milliseconds);
    Link::new(gigabits * GIGABIT, delay)
}

#[test]
fn default_options_fill_a_path_at_once_where_the_first_ring_is_long_enough() {
    for (gigabits, milliseconds) in PATHS {
        let rate = gigabits * GIGABIT;
        let defaults = Defaults::new(path(gigabits, milliseconds), 1, 256 * GIB);
        assert!(!defaults.grows().unwrap());
        let found = defaults.run(4).unwrap();
        let words = format!("{gigabits} Gb/s, {milliseconds} ms: {found:?}");
        let share = found.outcome.rate_from(1) / rate as f64;
        assert!(share >= 0.98, "{share} at {words}");
        let warm = found.warm_after(0.95, rate).expect("it is warm");
        assert!(warm <= found.opening + found.interval, "{words}");
        assert_eq!(found.rings[0], found.rings[1], "{words}");
    }
}

/// A server gives a client 1 GiB at first, which is less than this path needs.
#[test]
fn a_longer_path_is_filled_when_the_rings_have_grown() {
    let rate = 100 * GIGABIT;
    let mut defaults = Defaults::new(path(100, 150), 1, 256 * GIB);
    defaults.preparation = Preparation {
        least: Duration::ZERO,
        gibibyte: Duration::from_millis(200),
    };
    assert!(defaults.grows().unwrap());
    let found = defaults.run(8).unwrap();
    let [first, last] = found.rings.map(|rings| rings.bytes[1]);
    assert!(first > GIB / 100 * 99 && found.opening >= Duration::from_millis(198));
    assert!(last > 2 * GIB, "{last}");
    let share = found.outcome.rate_from(6) / rate as f64;
    assert!(share >= 0.95, "{share}: {found:?}");
    let before = found.outcome.intervals[0].rate / rate as f64;
    assert!(before < 0.8, "{before}: {found:?}");
    // While a stream moves, an end has both rings.
    assert!(found.most_bytes.iter().all(|most| *most >= first + last));
    let most = defaults.memory_bytes / 4;
    assert!(found.most_bytes.iter().all(|bytes| *bytes <= most));
}

/// The second ring is as long as the path needs, and both ends prepare theirs at the same time.
#[test]
fn long_paths_are_filled_within_twenty_round_trips_or_two_seconds() {
    for (gigabits, milliseconds) in [(100, 200), (400, 50), (400, 100)] {
        let rate = gigabits * GIGABIT;
        let limit = Duration::from_millis(20 * milliseconds).max(Duration::from_secs(2));
        let defaults = Defaults::new(path(gigabits, milliseconds), 1, 256 * GIB);
        let intervals = limit.as_nanos().div_ceil(defaults.interval().as_nanos()) + 2;
        let found = defaults.run(u32::try_from(intervals).unwrap()).unwrap();
        let warm = found.warm_after(0.95, rate);
        let is_in_time = warm.is_some_and(|warm| warm <= limit);
        assert!(
            is_in_time,
            "{warm:?} at {gigabits} Gb/s, {milliseconds} ms: {found:?}"
        );
    }
}

/// An eighth of a quarter of the memory.
#[test]
fn rings_grow_no_longer_than_the_memory_of_a_machine_allows() {
    let rate = 100 * GIGABIT;
    let found = Defaults::new(path(100, 200), 1, 64 * GIB).run(8).unwrap();
    let [_, last] = found.rings.map(|rings| rings.bytes[1]);
    assert!((GIB + 1..=2 * GIB).contains(&last), "{last}");
    let share = found.outcome.rate_from(6) / rate as f64;
    assert!((0.3..0.9).contains(&share), "{share}: {found:?}");
}

/// The channels of a transfer share the path, and each has its part of the memory.
#[test]
fn several_channels_fill_a_path_together() {
    let rate = 100 * GIGABIT;
    let found = Defaults::new(path(100, 100), 4, 256 * GIB).run(4).unwrap();
    // Whole pages.
    assert_eq!(found.rings[0].bytes, [625_000_000 & !4095; 2]);
    let outcome = found.outcome;
    let share = outcome.rate_from(1) / rate as f64;
    assert!(share >= 0.98, "{share}");
    assert!(outcome.fairness() > 0.9, "{:?}", outcome.channels);
}

/// An acknowledgement timer, a storage or a switch may delay more than the measured round trip.
#[test]
fn a_ring_has_a_reserve() {
    let rate = 10 * GIGABIT;
    let mut defaults = Defaults::new(path(10, 140), 1, 256 * GIB);
    defaults.round_trip = Duration::from_millis(100);
    let share = defaults.run(4).unwrap().outcome.rate_from(1) / rate as f64;
    assert!(share >= 0.95, "{share}");
}
