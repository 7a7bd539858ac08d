//! Streams over paths with every fault: they arrive whole and in order, or not at all.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use super::{Replay, seeds};
use crate::handshake::Mode;
use crate::memory::Memory;
use crate::pacing::{Path, Rate};
use crate::provider::Endpoint;
use crate::sim::random::Random;
use crate::sim::run::{Run, RunSettings};
use crate::sim::{Dcqcn, FabricSettings, Link, Marking, Policer, Queue, Repeat};

const MINUTE: Duration = Duration::from_secs(60);

fn millis(random: &mut Random, most: u64) -> Duration {
    Duration::from_millis(random.below(most + 1))
}

/// A random path.
fn link(random: &mut Random) -> Link {
    let mut link = Link::new(10_000_000 + random.below(1 << 30), millis(random, 40));
    let mut sometimes = |one_in: u64| random.below(one_in) == 0;
    let (jitters, queues, polices, loses, fails) = (
        sometimes(2),
        sometimes(3),
        sometimes(3),
        sometimes(2),
        sometimes(4),
    );
    if jitters {
        link.jitter = millis(random, 10);
    }
    if queues {
        link.queue = Some(Queue {
            rate: 1_000_000 + random.below(link.rate),
            bytes: 8_000 + random.below(100_000),
            marking: None,
        });
    }
    if polices {
        link.policer = Some(Policer {
            rate: 1_000_000 + random.below(link.rate),
            burst: 8_000 + random.below(100_000),
        });
    }
    if loses {
        link.loss = random.share() * 0.02;
    }
    if fails {
        let from = millis(random, 500);
        link.down = from..from + millis(random, 2000);
    }
    link
}

fn run(random: &mut Random, replaces: bool) -> Run {
    run_over(random, replaces, 1, Device::Usual)
}

/// A channel with everything random, over so many rails.
pub(super) fn run_over(random: &mut Random, replaces: bool, rails: usize, device: Device) -> Run {
    let mut settings = FabricSettings::new(link(random));
    settings.links[1] = link(random);
    settings.rails = (1..rails).map(|_| [link(random), link(random)]).collect();
    if device == Device::Newer {
        settings.repeat = Repeat::Selective;
        settings.turn_packets = 1 + random.below(8);
        settings.congestion_control = Some(Dcqcn::of_paper());
        let queues = settings
            .links
            .iter_mut()
            .filter_map(|link| link.queue.as_mut());
        for queue in queues {
            queue.marking = Some(Marking {
                most_bytes: 5_000 + random.below(100_000),
                ..Marking::of_paper()
            });
        }
    }
    settings.seed = random.next();
    settings.immediate = settings.seed.is_multiple_of(2);
    settings.packet_bytes = 256 << random.below(5);
    settings.depth = 4 + random.index(60);
    settings.retries = [1, 3, 7][random.index(3)];
    settings.replaces = replaces;
    let message_bytes = 1 + random.index(6000);
    let ring_bytes = NonZeroUsize::new(message_bytes * 3 + random.index(50_000));
    let ring_bytes = ring_bytes.unwrap();
    let message_bytes = message_bytes as u64;
    let channel = RunSettings {
        ring_bytes: ring_bytes.try_into().unwrap(),
        message_bytes,
        queue_pairs: rails + random.index(4),
        mode: [Mode::Put, Mode::Get][random.index(2)],
        stall: (random.below(2) == 0).then_some(Duration::from_secs(3)),
    };
    let memory = || Arc::new(Memory::new(ring_bytes).unwrap());
    let memories = || Some([memory(), memory()]);
    let mut path = || {
        let rate = match random.below(3) {
            0 => Rate::Any,
            1 => Rate::Fixed(2_000_000),
            _ if !replaces || channel.mode == Mode::Get => Rate::Any,
            _ => Rate::Auto { port: None },
        };
        Path::new(rate, message_bytes)
    };
    let mut paths = || -> Vec<_> { (0..rails).map(|_| path()).collect() };
    let paths = [paths(), paths()];
    let mut run = Run::new(settings);
    run.open_over(channel, paths, [memories(), memories()])
        .unwrap();
    for end in &mut run.channels[0] {
        let amounts = (random.below(2) == 0).then(|| Random::new(random.next()));
        end.send(random.below(100_000), amounts);
    }
    run
}

/// The devices of both ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Device {
    /// They go back to the first missing packet.
    Usual,
    /// They repeat what is missing, take turns after some packets, and slow down when packets are marked.
    Newer,
}

#[test]
fn streams_survive_everything() {
    survives(Device::Usual);
}

#[test]
fn streams_survive_everything_with_selective_repeat() {
    survives(Device::Newer);
}

/// Where lost queue pairs are replaced, every stream arrives after any losses.
fn survives(device: Device) {
    for seed in seeds(1000) {
        let _replay = Replay(seed);
        let mut random = Random::new(seed);
        let run = run_over(&mut random, true, 1, device);
        survive(run, &mut random);
    }
}

/// Queue pairs are lost, and the streams of both ends arrive nevertheless.
pub(super) fn survive(mut run: Run, random: &mut Random) {
    for _ in 0..random.below(4) {
        let at = run.now + millis(random, 300);
        run.run_until(at).unwrap();
        let end = &mut run.channels[0][random.index(2)];
        let queue_pair = random.index(end.endpoint.limits().queue_pairs);
        match random.below(2) {
            0 => end.endpoint.break_queue_pair(queue_pair),
            _ => end.exchange.close(&mut end.endpoint, queue_pair),
        }
    }
    let end = run.now + 60 * MINUTE;
    while !run.channels[0].iter().all(|end| end.is_done()) {
        assert!(run.step(end).unwrap(), "it stalls: {:?}", run.channels[0]);
    }
    for (here, there) in [(0, 1), (1, 0)] {
        let [here, there] = [here, there].map(|end| &run.channels[0][end]);
        assert_eq!(here.received, there.length);
    }
}

/// Where they are not, the stream ends with an error, and no part of it passes for the whole.
#[test]
fn streams_end_where_nothing_is_replaced() {
    for seed in seeds(500) {
        let _replay = Replay(seed);
        let mut random = Random::new(seed);
        let mut run = run(&mut random, false);
        let at = millis(&mut random, 100);
        run.run_until(at).unwrap();
        let aborts = random.index(2);
        run.channels[0][aborts].endpoint.abort();
        run.run_until(10 * MINUTE).unwrap();
        let [aborted, other] = [aborts, 1 - aborts].map(|end| &run.channels[0][end]);
        assert!(other.exchange.is_over());
        let is_finished = other.exchange.receiver.is_finished();
        assert_eq!(is_finished, other.received == aborted.length && is_finished);
    }
}
