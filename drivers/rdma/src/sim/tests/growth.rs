//! Rings that become longer and shorter while data flows.

mod contended;
mod offered;

use std::num::{NonZeroU64, NonZeroUsize};
use std::sync::Arc;
use std::time::Duration;

use gridhaul_stack::{Cancel, Operation, Side};

use super::{Replay, seeds};
use crate::handshake::Mode;
use crate::memory::{Holder, Lengths, Memory, Part, Pool, Share};
use crate::open::ring_length::MostGrown;
use crate::open::shape::Shaping;
use crate::pacing::{Path, Rate};
use crate::provider::Endpoint as _;
use crate::sim::random::Random;
use crate::sim::run::{Disk, Run, RunSettings, pieces};
use crate::sim::supply::Supplies;
use crate::sim::{FabricSettings, Link, Preparation};

const GIGABIT: u64 = 125_000_000;
const MIB: u64 = 1 << 20;

/// The length of a ring where the rate of a port is not known.
const USUAL: u64 = 16 * MIB;

fn bytes(count: u64) -> NonZeroU64 {
    NonZeroU64::new(count).unwrap()
}

/// A channel's part of a pool, with two rings of this length.
fn share(pool: &Arc<Pool>, side: Side, ring_bytes: NonZeroU64) -> (Arc<Share>, [Part; 2]) {
    let cancel = Cancel::new();
    let operation = Operation {
        deadline: None,
        cancel: &cancel,
    };
    let holder = Holder {
        side,
        pins: 0,
        party: None,
    };
    let share = pool.take(holder, Lengths::both(ring_bytes), &operation);
    share.unwrap().without_pages()
}

/// So many bytes, where the rate of the port is not known.
fn up_to(bytes: u64) -> MostGrown {
    MostGrown {
        bytes,
        knows_path: false,
    }
}

/// Rings of any length take so long.
fn prepared_in(least: Duration) -> Preparation {
    Preparation {
        least,
        gibibyte: Duration::ZERO,
    }
}

/// Hosts with a port for each rail, whose rates are in Gb/s.
fn fabric(rails: &[u64], round_trip: Duration) -> FabricSettings {
    let links = rails.iter().map(|gigabits| {
        let link = Link::new(gigabits * GIGABIT, round_trip / 2);
        [link.clone(), link]
    });
    let mut links: Vec<_> = links.collect();
    let [first, _] = links.remove(0);
    FabricSettings {
        rails: links,
        ..FabricSettings::new(first)
    }
}

/// Some channels whose rings are too short for their path, with endless streams to send.
struct Grown {
    run: Run,
    /// The memory of each end.
    pools: [Arc<Pool>; 2],
    round_trip: Duration,
    rate: u64,
}

/// What the channels are like.
struct Channels<'a> {
    mode: Mode,
    count: usize,
    /// The rates of the rails in Gb/s. A channel has a queue pair on each.
    rails: &'a [u64],
    round_trip: Duration,
    /// The bounds of the memory of each end in bytes.
    pools: [u64; 2],
    /// How long the rings of each end take to be there.
    takes: [Duration; 2],
    /// One ring of so many of each end cannot be prepared; 0 if all can.
    fails_once_in: [u64; 2],
}

/// A few times as long as the engine waits before it asks again.
const SOON: Duration = Duration::from_millis(12);

impl Grown {
    /// Over one rail, with bounds of the memory of each end in bytes.
    fn new(gigabits: u64, round_trip: Duration, count: usize, pools: [u64; 2]) -> Self {
        Self::with(Channels {
            mode: Mode::Put,
            count,
            rails: &[gigabits],
            round_trip,
            pools,
            takes: [SOON; 2],
            fails_once_in: [0; 2],
        })
    }

    fn with(channels: Channels<'_>) -> Self {
        let rails = channels.rails.len();
        let requests = match channels.mode {
            Mode::Put => 1024,
            Mode::Get => 16,
        };
        let shaping = Shaping {
            message: 256 << 10,
            fits_message: true,
            most_message: 1 << 30,
            queue_pairs: rails,
            requests: requests * rails,
            pieces: pieces(bytes(USUAL)),
            immediate: true,
        };
        let settings = RunSettings {
            ring_bytes: bytes(USUAL),
            // A device has few READs in flight.
            message_bytes: shaping.longest_message(bytes(USUAL)),
            queue_pairs: rails,
            stall: None,
            mode: channels.mode,
        };
        let mut run = Run::new(fabric(channels.rails, channels.round_trip));
        let pools = channels.pools.map(|limit| Pool::new(limit, u64::MAX));
        for channel in 0..channels.count {
            let paths = || (0..rails).map(|_| Path::new(Rate::Any, 4 * MIB)).collect();
            run.open_over(settings, [paths(), paths()], [None, None])
                .unwrap();
            let sides = [Side::Connector, Side::Acceptor];
            let supplies = [0, 1].map(|host| Supplies {
                share: share(&pools[host], sides[host], bytes(USUAL)),
                shaping,
                mode: channels.mode,
                most: up_to(32 << 30),
                preparation: prepared_in(channels.takes[host]),
                fails_once_in: channels.fails_once_in[host],
            });
            run.let_rings_change(channel, supplies);
            run.channels[channel][0].send(u64::MAX, None);
        }
        Self {
            run,
            pools,
            round_trip: channels.round_trip,
            rate: channels.rails.iter().sum::<u64>() * GIGABIT,
        }
    }

    /// The share of the rate of the path that is delivered in these round trips.
    fn share_from(&mut self, rounds: std::ops::Range<u32>) -> f64 {
        self.run.run_until(rounds.start * self.round_trip).unwrap();
        let before = self.received();
        self.run.run_until(rounds.end * self.round_trip).unwrap();
        let time = (rounds.end - rounds.start) * self.round_trip;
        let bytes = self.received().iter().sum::<u64>() - before.iter().sum::<u64>();
        bytes as f64 / time.as_secs_f64() / self.rate as f64
    }

    fn received(&self) -> Vec<u64> {
        let channels = self.run.channels.iter();
        channels.map(|[_, receiver]| receiver.received).collect()
    }

    /// How often the ends of the first channel have moved to another ring.
    fn moves(&self) -> [u64; 2] {
        [0, 1].map(|end| self.run.channels[0][end].exchange.meter().moves())
    }

    fn ring(&self, channel: usize) -> u64 {
        self.run.channels[channel][1].exchange.receiver.ring_bytes()
    }
}

/// The rate of the ports is not known, so that the first ring carries 1.3 % of it.
#[test]
fn a_ring_grows_until_it_fills_the_path() {
    let mut grown = Grown::new(100, Duration::from_millis(100), 1, [64 << 30; 2]);
    let at_first = grown.share_from(1..2);
    assert!(at_first < 0.02, "{at_first}");
    let share = grown.share_from(20..40);
    assert!(share >= 0.95, "{share} with {} bytes", grown.ring(0));
    // A ring gets up to four times what a round trip delivers.
    let product = 100 * GIGABIT / 10;
    let ring = grown.ring(0);
    assert!(ring <= 4 * product, "{ring}");
}

#[test]
fn rings_grow_on_other_paths_too() {
    for (gigabits, milliseconds) in [(10, 200), (400, 20), (25, 60)] {
        let round_trip = Duration::from_millis(milliseconds);
        let mut grown = Grown::new(gigabits, round_trip, 1, [64 << 30; 2]);
        // An observation takes 50 ms where the round trip is shorter.
        let rounds = 20 * 50_u32.div_ceil(u32::try_from(milliseconds).unwrap());
        let share = grown.share_from(rounds..2 * rounds);
        let found = || format!("{share} of {gigabits} Gb/s, {milliseconds} ms");
        assert!(share >= 0.95, "{}, ring {}", found(), grown.ring(0));
    }
}

/// A ring has a key at each of the adapters.
#[test]
fn rings_grow_over_several_rails() {
    for rails in [&[50, 50][..], &[10, 5], &[40, 40, 20, 20]] {
        let mut grown = Grown::with(Channels {
            mode: Mode::Put,
            count: 1,
            rails,
            round_trip: Duration::from_millis(50),
            pools: [64 << 30; 2],
            takes: [SOON; 2],
            fails_once_in: [0; 2],
        });
        let at_first = grown.share_from(1..2);
        assert!(at_first < 0.25, "{at_first}");
        let share = grown.share_from(20..40);
        let ring = grown.ring(0);
        assert!(share >= 0.9, "{share} of {rails:?}, ring {ring}");
    }
}

/// The receiver fetches from a ring of the sender that has grown as well, with READs that are as long as both rings need.
#[test]
fn rings_grow_where_the_receiver_reads() {
    for rails in [&[10][..], &[5, 5]] {
        let mut grown = Grown::with(Channels {
            mode: Mode::Get,
            count: 1,
            rails,
            round_trip: Duration::from_millis(25),
            pools: [64 << 30; 2],
            takes: [SOON; 2],
            fails_once_in: [0; 2],
        });
        let at_first = grown.share_from(1..4);
        assert!(at_first < 0.5, "{at_first}");
        let share = grown.share_from(60..120);
        let rings = [
            grown.run.channels[0][0].exchange.sender.ring_length().get(),
            grown.ring(0),
        ];
        // Announcements wait for the responses of READs on the same queue pair.
        assert!(share >= 0.7, "{share} of {rails:?}, rings {rings:?}");
        assert!(rings.iter().all(|ring| *ring > 2 * USUAL), "{rings:?}");
    }
}

/// The ring of a path that it fills stays as it is.
#[test]
fn a_ring_that_is_long_enough_does_not_grow() {
    let mut grown = Grown::new(10, Duration::from_millis(5), 1, [64 << 30; 2]);
    assert!(grown.share_from(20..400) > 0.95);
    assert_eq!(grown.ring(0), USUAL);
}

/// Either end has little memory: the rings grow as far as it goes, and the bound holds.
#[test]
fn rings_grow_within_the_bounds_of_both_ends() {
    const LIMIT: u64 = 512 * MIB;
    for pools in [[LIMIT, 64 << 30], [64 << 30, LIMIT]] {
        let mut grown = Grown::new(100, Duration::from_millis(100), 1, pools);
        let share = grown.share_from(20..40);
        assert!((0.02..0.5).contains(&share), "{share}");
        let [sender, receiver] = &grown.run.channels[0];
        let rings = [
            sender.exchange.sender.ring_length().get(),
            receiver.exchange.receiver.ring_bytes(),
        ];
        let bounded = rings[0].min(rings[1]);
        assert!(bounded > 2 * USUAL && bounded < LIMIT / 2, "{rings:?}");
    }
}

#[test]
fn two_channels_share_a_path_and_the_memory() {
    let mut grown = Grown::new(100, Duration::from_millis(50), 2, [16 << 30; 2]);
    let share = grown.share_from(40..80);
    assert!(share >= 0.95, "{share}");
    let received = grown.received();
    let fairness = received[0].min(received[1]) as f64 / received[0].max(received[1]) as f64;
    assert!(fairness > 0.5, "{received:?}");
    let used = |channel: usize| grown.ring(channel);
    assert!(used(0) + used(1) < 8 << 30, "{} and {}", used(0), used(1));
}

/// A channel whose rings have grown to the length that its path needs, and that length in bytes.
fn long() -> (Grown, u64) {
    let mut grown = Grown::new(10, Duration::from_millis(100), 1, [64 << 30; 2]);
    assert!(grown.share_from(20..30) > 0.95);
    let long = grown.ring(0);
    assert!(long > 4 * USUAL, "{long}");
    (grown, long)
}

/// The sender has 10 MiB in each of so many seconds.
fn send_slowly(grown: &mut Grown, seconds: u32) {
    for _ in 0..seconds {
        let now = grown.run.now;
        let sender = &mut grown.run.channels[0][0];
        sender.have(sender.sent + 10 * MIB, now);
        grown.run.run_until(now + Duration::from_secs(1)).unwrap();
    }
}

/// The sender becomes slow: rings that it does not need are given back.
#[test]
fn a_ring_that_is_not_used_becomes_shorter() {
    let (mut grown, long) = long();
    send_slowly(&mut grown, 45);
    let rings = [
        grown.run.channels[0][0].exchange.sender.ring_length().get(),
        grown.ring(0),
    ];
    assert!(
        rings.iter().all(|ring| *ring <= long / 2),
        "{rings:?} of {long}"
    );
}

/// The receiver takes what is in the ring once in a second: a shorter ring would carry less.
#[test]
fn a_ring_in_which_bytes_wait_stays_as_long_as_it_is() {
    let (mut grown, long) = long();
    for _ in 0..45 {
        let now = grown.run.now;
        grown.run.channels[0][1].idle = now..now + Duration::from_millis(990);
        grown.run.run_until(now + Duration::from_secs(1)).unwrap();
    }
    assert!(grown.ring(0) >= long, "{} of {long}", grown.ring(0));
}

/// Every byte arrives once and in order while rings change at any time, over paths that lose packets and
/// queue pairs.
#[test]
fn streams_survive_changes_of_rings() {
    let mut moves = 0;
    for seed in seeds(100) {
        let _replay = Replay(seed);
        let mut random = Random::new(seed);
        let mut link = Link::new(
            10_000_000 + random.below(1 << 28),
            Duration::from_millis(random.below(30)),
        );
        link.loss = [0.0, random.share() * 0.01][random.index(2)];
        link.jitter = Duration::from_millis(random.below(5));
        let mut settings = FabricSettings::new(link);
        settings.seed = random.next();
        settings.immediate = settings.seed.is_multiple_of(2);
        settings.packet_bytes = 256 << random.below(5);
        settings.depth = 4 + random.index(60);
        let rails = 1 + random.index(3);
        let links = [settings.links[0].clone(), settings.links[1].clone()];
        settings.rails = vec![links; rails - 1];
        let message_bytes = 1 + random.below(3000);
        let ring_bytes = bytes(3 * message_bytes + random.below(10_000));
        let channel = RunSettings {
            ring_bytes,
            message_bytes,
            queue_pairs: rails + random.index(3),
            stall: None,
            mode: [Mode::Put, Mode::Get][random.index(2)],
        };
        let immediate = settings.immediate;
        let mut run = Run::new(settings);
        let length = NonZeroUsize::try_from(ring_bytes).unwrap();
        let memory = || Arc::new(Memory::new(length).unwrap());
        let memories = || Some([memory(), memory()]);
        let paths = || {
            let path = |_| Path::new(Rate::Any, message_bytes);
            (0..rails).map(path).collect()
        };
        let memories = [memories(), memories()];
        run.open_over(channel, [paths(), paths()], memories)
            .unwrap();
        let pool = Pool::new(64 * MIB, u64::MAX);
        let sides = [Side::Connector, Side::Acceptor];
        let supplies = sides.map(|side| share(&pool, side, bytes(64 << 10)));
        let supplies = supplies.map(|share| Supplies {
            share,
            shaping: Shaping {
                message: message_bytes,
                fits_message: false,
                most_message: 1 << 30,
                queue_pairs: channel.queue_pairs,
                requests: 64,
                pieces: pieces(ring_bytes),
                immediate,
            },
            mode: channel.mode,
            most: up_to([40_000, 4 * MIB][random.index(2)]),
            preparation: prepared_in(Duration::from_millis(5 * random.below(4))),
            fails_once_in: random.below(4),
        });
        run.let_rings_change(0, supplies);
        for end in &mut run.channels[0] {
            if random.below(2) == 0 {
                let soon = Duration::from_millis(random.below(40));
                end.exchange.take_rings_back_after(soon);
            }
            let of_user = Random::new(random.next());
            let length = random.below(3_000_000);
            match random.below(3) {
                0 => end.send(length, None),
                1 => end.send(length, Some(of_user)),
                _ => {
                    end.send(length, None);
                    end.use_disk(Disk::new(of_user));
                }
            }
        }
        for _ in 0..random.below(5) {
            let at = run.now + Duration::from_millis(random.below(200));
            run.run_until(at).unwrap();
            let end = &mut run.channels[0][random.index(2)];
            let queue_pair = random.index(end.endpoint.limits().queue_pairs);
            match random.below(2) {
                0 => end.endpoint.break_queue_pair(queue_pair),
                _ => end.exchange.close(&mut end.endpoint, queue_pair),
            }
        }
        let until = run.now + Duration::from_secs(3600);
        while !run.channels[0].iter().all(|end| end.is_done()) {
            assert!(run.step(until).unwrap(), "it stalls: {:?}", run.channels[0]);
        }
        for (here, there) in [(0, 1), (1, 0)] {
            let [here, there] = [here, there].map(|end| &run.channels[0][end]);
            assert_eq!(here.received, there.length);
            moves += here.exchange.meter().moves();
        }
    }
    assert!(moves > 50, "{moves} moves in all");
}
