//! Several queue pairs of a channel, each with a rate of its own.

use std::num::NonZeroU64;
use std::time::Duration;

use crate::handshake::Mode;
use crate::open::queue_pairs::{fetched_at_once, usual, written_at_once};
use crate::open::ring_length::{MOST_MESSAGE_BYTES, message_for};
use crate::pacing::{Path, Rate};
use crate::sim::run::{Run, RunSettings};
use crate::sim::{FabricSettings, Link};
use crate::verbs::DEPTH;

const GIGABIT: u64 = 125_000_000;
const MESSAGE_BYTES: u64 = 256 << 10;

/// A channel with an endless stream to send, over queue pairs of these rates and a port that is no limit.
#[derive(Debug, Clone, Copy)]
struct Uneven<'a> {
    rates: &'a [u64],
    round_trip: Duration,
    mode: Mode,
}

impl Uneven<'_> {
    fn sum(self) -> u64 {
        self.rates.iter().sum()
    }

    /// The delivered share of the sum of the rates.
    fn share(self) -> f64 {
        let port = 2 * self.sum();
        let mut fabric = FabricSettings::new(Link::new(port, self.round_trip / 2));
        fabric.queue_pair_rates = self.rates.to_vec();
        let ring_bytes = ring_bytes(self.sum(), self.round_trip);
        let rate = rate(fabric, self.rates.len(), ring_bytes, self.mode);
        rate / self.sum() as f64
    }
}

/// Three bandwidth-delay products, as the documentation says, and at least the usual length.
pub(super) fn ring_bytes(rate: u64, round_trip: Duration) -> NonZeroU64 {
    let microseconds = u64::try_from(round_trip.as_micros()).unwrap();
    let product = rate / 1000 * microseconds / 1000;
    NonZeroU64::new(3 * product).map_or(USUAL_RING, |ring| ring.max(USUAL_RING))
}

const USUAL_RING: NonZeroU64 = NonZeroU64::new(16 << 20).unwrap();

/// The delivered bytes per second of a channel with an endless stream to send, after the rates of the queue
/// pairs were found.
pub(super) fn rate(
    fabric: FabricSettings,
    queue_pairs: usize,
    ring_bytes: NonZeroU64,
    mode: Mode,
) -> f64 {
    let settings = RunSettings {
        ring_bytes,
        message_bytes: MESSAGE_BYTES,
        queue_pairs,
        mode,
        stall: None,
    };
    rate_with(fabric, settings)
}

fn rate_with(fabric: FabricSettings, settings: RunSettings) -> f64 {
    let round_trip = fabric.links[0].delay + fabric.links[1].delay;
    let rails = 1 + fabric.rails.len();
    let mut run = Run::new(fabric);
    let path = |_| Path::new(Rate::Any, MESSAGE_BYTES);
    let paths = [(); 2].map(|()| (0..rails).map(path).collect());
    run.open_over(settings, paths, [None, None]).unwrap();
    run.channels[0][0].send(u64::MAX, None);
    let warm = (20 * round_trip).max(Duration::from_millis(100));
    run.run_until(warm).unwrap();
    let before = run.channels[0][1].received;
    run.run_until(2 * warm).unwrap();
    let after = run.channels[0][1].received;
    (after - before) as f64 / warm.as_secs_f64()
}

/// One queue pair shares its path with other traffic (ECMP) and gets a fourth of what the others get.
fn with_a_slow_one(counts: &[usize], microseconds: &[u64], mode: Mode, least: f64) {
    for &count in counts {
        for slow in [0, count - 1] {
            let mut rates = vec![5 * GIGABIT; count];
            rates[slow] /= 4;
            for &microseconds in microseconds {
                let uneven = Uneven {
                    rates: &rates,
                    round_trip: Duration::from_micros(microseconds),
                    mode,
                };
                let share = uneven.share();
                assert!(share > least, "{share} of {uneven:?}");
            }
        }
    }
}

#[test]
fn a_slow_queue_pair_does_not_hold_up_the_others() {
    with_a_slow_one(&[2, 4, 8], &[100, 1000, 20_000], Mode::Put, 0.95);
}

/// Announcements wait for the responses of READs on the same queue pair.
#[test]
fn nor_does_it_where_the_receiver_reads() {
    with_a_slow_one(&[2, 4], &[100], Mode::Get, 0.75);
}

#[test]
fn equal_queue_pairs_are_used_equally() {
    let rates = [5 * GIGABIT; 4];
    for milliseconds in [1, 20] {
        let uneven = Uneven {
            rates: &rates,
            round_trip: Duration::from_millis(milliseconds),
            mode: Mode::Put,
        };
        let share = uneven.share();
        assert!(share > 0.98, "{share} of {uneven:?}");
    }
}

/// Without the option `qps` a channel reaches the rate of the port.
#[test]
fn the_usual_number_of_queue_pairs_fills_the_port() {
    let share = |gigabits: u64, round_trip, of_each: Option<u64>, is_one: bool| {
        let port = gigabits * GIGABIT;
        let ring_bytes = ring_bytes(port, round_trip);
        let in_flight = written_at_once(DEPTH, MESSAGE_BYTES);
        let queue_pairs = match is_one {
            true => 1,
            false => usual(port, round_trip, ring_bytes, in_flight, 1),
        };
        let queue_pairs = usize::from(queue_pairs);
        let mut fabric = FabricSettings::new(Link::new(port, round_trip / 2));
        if let Some(gigabits) = of_each {
            fabric.queue_pair_rates = vec![gigabits * GIGABIT; queue_pairs];
        }
        rate(fabric, queue_pairs, ring_bytes, Mode::Put) / port as f64
    };
    let near = Duration::from_micros(100);
    // An adapter whose single queue pair does not reach the rate of the port.
    assert!(share(400, near, Some(100), true) < 0.3);
    assert!(share(400, near, Some(100), false) > 0.95);
    assert!(share(100, near, Some(60), true) < 0.65);
    assert!(share(100, near, Some(60), false) > 0.95);
    // A path that holds more requests than one queue pair.
    let far = Duration::from_millis(50);
    assert!(share(100, far, None, true) < 0.5);
    assert!(share(100, far, None, false) > 0.95);
    assert!(share(10, far, None, false) > 0.95, "one is enough");
}

/// A device has 16 READs in flight on each queue pair.
#[test]
fn reads_are_long_and_many_enough_for_a_long_path() {
    let (port, round_trip) = (100 * GIGABIT, Duration::from_millis(20));
    let ring_bytes = ring_bytes(port, round_trip);
    let of_each = fetched_at_once(16, MOST_MESSAGE_BYTES);
    let queue_pairs = usual(port, round_trip, ring_bytes, of_each, 1).into();
    let share = |message_bytes| {
        let settings = RunSettings {
            ring_bytes,
            message_bytes,
            queue_pairs,
            mode: Mode::Get,
            stall: None,
        };
        let fabric = FabricSettings::new(Link::new(port, round_trip / 2));
        rate_with(fabric, settings) / port as f64
    };
    assert!(share(MESSAGE_BYTES) < 0.1);
    let fitted = message_for(MESSAGE_BYTES, ring_bytes, 16 * queue_pairs);
    let share = share(fitted);
    assert!(share > 0.85, "{share} over {queue_pairs} queue pairs");
}
