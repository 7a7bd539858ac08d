//! Channels at a bottleneck that marks packets, between devices with DCQCN.

use std::num::NonZeroU64;
use std::time::Duration;

use super::{Replay, seeds};
use crate::handshake::Mode;
use crate::pacing::{Path, Rate};
use crate::sim::run::{Run, RunSettings};
use crate::sim::{
    Dcqcn, Experiment, FabricSettings, Interval, Link, Marking, Outcome, Pace, Queue,
};

const GIGABIT: u64 = 125_000_000;
const MILLISECOND: Duration = Duration::from_millis(1);
const MESSAGE_BYTES: u64 = 64 << 10;

/// The rate of the bottleneck, half of that of the port.
const BOTTLENECK: u64 = 20 * GIGABIT;

/// The paper's parameters are for ports of 40 Gb/s and the delays of a data centre. The queue is longer than needed.
fn bottleneck(delay: Duration, seed: u64) -> FabricSettings {
    let mut link = Link::new(2 * BOTTLENECK, delay);
    let back = link.clone();
    link.queue = Some(Queue {
        rate: BOTTLENECK,
        bytes: 64 << 20,
        marking: Some(Marking::of_paper()),
    });
    let mut fabric = FabricSettings::new(link);
    fabric.links[1] = back;
    fabric.turn_packets = 4;
    fabric.congestion_control = Some(Dcqcn::of_paper());
    fabric.seed = seed;
    fabric
}

/// The second channel comes when the first one has the whole bottleneck.
#[test]
fn two_channels_share_a_bottleneck() {
    for seed in seeds(2) {
        let _replay = Replay(seed);
        let mut run = Run::new(bottleneck(MILLISECOND / 200, seed));
        let settings = RunSettings {
            ring_bytes: NonZeroU64::new(16 << 20).unwrap(),
            message_bytes: MESSAGE_BYTES,
            queue_pairs: 1,
            mode: Mode::Put,
            stall: None,
        };
        for channel in 0..2 {
            let paths = [(); 2].map(|()| Path::new(Rate::Any, MESSAGE_BYTES));
            run.open(settings, paths, [None, None]).unwrap();
            run.channels[channel][0].send(u64::MAX, None);
            run.run_until(run.now + 200 * MILLISECOND).unwrap();
        }
        let received = |run: &Run| [0, 1].map(|channel: usize| run.channels[channel][1].received);
        let before = received(&run);
        let time = 600 * MILLISECOND;
        run.run_until(run.now + time).unwrap();
        let after = received(&run);
        let shares = [0, 1].map(|channel| {
            let rate = (after[channel] - before[channel]) as f64 / time.as_secs_f64();
            rate / BOTTLENECK as f64
        });
        assert_eq!(run.fabric.dropped(0), 0, "the queue is long enough");
        assert!(shares.iter().all(|&share| share >= 0.4), "{shares:?}");
        assert!(shares.iter().sum::<f64>() >= 0.9, "{shares:?}");
    }
}

fn sum(outcome: &Outcome, part: impl Fn(&Interval) -> u64) -> u64 {
    outcome.intervals.iter().map(part).sum()
}

/// A cut by the device delays messages, and no packet is lost: the search must not close a queue pair for it. With the longer delay
/// the law itself uses little of the path: its notifications come too late.
#[test]
fn a_search_for_a_rate_does_not_take_cuts_for_losses() {
    for seed in seeds(2) {
        let _replay = Replay(seed);
        for (microseconds, channels, least) in [(5, 1, 0.9), (5, 3, 0.9), (2_000, 1, 0.1)] {
            let experiment = Experiment {
                fabric: bottleneck(Duration::from_micros(microseconds), seed),
                channels,
                ring_bytes: NonZeroU64::new(16 << 20).unwrap(),
                message_bytes: MESSAGE_BYTES,
                queue_pairs: 2,
                pace: Pace::Auto,
                stall: Some(3000 * MILLISECOND),
                time: 2000 * MILLISECOND,
                interval: 250 * MILLISECOND,
            };
            let outcome = experiment.run().unwrap();
            let closed = sum(&outcome, |part| part.stalls);
            let dropped = sum(&outcome, |part| part.dropped);
            let share = outcome.rate_from(4) / BOTTLENECK as f64;
            let found = || {
                format!(
                    "{microseconds} us, {channels}: {share} {:?}",
                    outcome.intervals
                )
            };
            assert!(closed == 0 && dropped == 0, "{}", found());
            assert!(share > least, "{}", found());
        }
    }
}

/// Without the reaction of devices a queue of four mebibytes drops messages.
#[test]
fn the_devices_prevent_drops() {
    let mut fabric = bottleneck(MILLISECOND / 200, 1);
    fabric.congestion_control = None;
    let queue = fabric.links[0].queue.as_mut().unwrap();
    queue.bytes = 4 << 20;
    let experiment = Experiment {
        fabric,
        channels: 2,
        ring_bytes: NonZeroU64::new(16 << 20).unwrap(),
        message_bytes: MESSAGE_BYTES,
        queue_pairs: 1,
        pace: Pace::Unpaced,
        stall: None,
        time: 200 * MILLISECOND,
        interval: 100 * MILLISECOND,
    };
    assert!(sum(&experiment.run().unwrap(), |part| part.dropped) > 0);
}
