//! A slow peer and random loss are not mistaken for a crawl.

use std::num::NonZeroU64;
use std::time::Duration;

use super::{Replay, seeds};
use crate::handshake::Mode;
use crate::pacing::{Path, Rate};
use crate::sim::run::{Run, RunSettings};
use crate::sim::{FabricSettings, Link};

const MEGABIT: u64 = 125_000;
const SECOND: Duration = Duration::from_secs(1);
const MESSAGE_BYTES: u64 = 1 << 20;

/// A channel over a path that loses one packet of a thousand, with an endless stream to send.
fn lossy(rate: u64, delay: Duration, ring_bytes: u64, seed: u64) -> Run {
    let mut link = Link::new(rate, delay);
    link.loss = 1e-3;
    let mut fabric = FabricSettings::new(link);
    fabric.seed = seed;
    let mut run = Run::new(fabric);
    let settings = RunSettings {
        ring_bytes: NonZeroU64::new(ring_bytes).unwrap(),
        message_bytes: MESSAGE_BYTES,
        queue_pairs: 1,
        mode: Mode::Put,
        stall: Some(3 * SECOND),
    };
    let paths = [(); 2].map(|()| Path::new(Rate::Any, MESSAGE_BYTES));
    run.open(settings, paths, [None, None]).unwrap();
    run.channels[0][0].send(u64::MAX, None);
    run
}

fn stalls(run: &Run) -> u64 {
    run.channels[0][0].exchange.meter().stalls()
}

#[test]
fn a_slow_path_with_a_long_ring_does_not_crawl() {
    for seed in seeds(6) {
        let _replay = Replay(seed);
        for milliseconds in [1, 10, 50] {
            let delay = Duration::from_millis(milliseconds);
            let mut run = lossy(250 * MEGABIT, delay, 64 << 20, seed);
            run.run_until(20 * SECOND).unwrap();
            assert_eq!(stalls(&run), 0, "{delay:?}");
        }
    }
}

#[test]
fn a_receiver_whose_disk_stops_does_not_make_the_path_crawl() {
    for seed in seeds(6) {
        let _replay = Replay(seed);
        let mut run = lossy(1000 * MEGABIT, SECOND / 200, 256 << 20, seed);
        run.channels[0][1].idle = 3 * SECOND..8 * SECOND;
        run.run_until(15 * SECOND).unwrap();
        assert_eq!(stalls(&run), 0);
    }
}
