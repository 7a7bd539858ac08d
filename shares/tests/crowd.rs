//! Hundreds of simulated clients, of which few misbehave. Time is simulated and every run has a seed, so a
//! failure can be repeated.
//!
//! A well-behaved client thinks, asks for a unit, uses it for a while, gives it back, and begins again. One that
//! misbehaves takes everything it gets from changing addresses of its network, asks for more without end, and gives
//! nothing back.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use gridhaul_shares::{Allocation, Grant, Pool, Source, Waiting};

/// In milliseconds.
type Time = u64;

#[derive(Debug, Clone, Copy)]
struct Scene {
    seed: u64,
    capacity: usize,
    clients: usize,
    /// Networks whose clients misbehave, and how many requests of each wait at a time.
    greedy: usize,
    greedy_requests: usize,
    think: Time,
    service: Time,
}

/// Measurements of the well-behaved clients.
#[derive(Debug, Default)]
struct Seen {
    waits: Vec<Time>,
    /// Clients that still waited at the end.
    starved: usize,
}

const END: Time = 12_000;

impl Seen {
    fn mean(&self) -> f64 {
        self.waits.iter().sum::<Time>() as f64 / self.waits.len().max(1) as f64
    }

    fn longest(&self) -> Time {
        self.waits.iter().copied().max().unwrap_or(0)
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Between half of `mean` and one and a half.
    fn around(&mut self, mean: Time) -> Time {
        mean / 2 + self.next() % (mean + 1)
    }
}

/// Clients that were woken.
type Ready = Arc<Mutex<Vec<usize>>>;

struct Bell {
    client: usize,
    ready: Ready,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.ready.lock().expect("not poisoned").push(self.client);
    }
}

enum Client {
    Thinks,
    Waits(Waiting, Time),
    /// Until the unit is dropped.
    Uses {
        _grant: Grant,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Happens {
    Asks(usize),
    IsDone(usize),
    GreedyReconnects(usize),
}

struct Simulation {
    scene: Scene,
    pool: Pool,
    random: Random,
    now: Time,
    agenda: BinaryHeap<Reverse<(Time, u64, Happens)>>,
    number: u64,
    clients: Vec<Client>,
    ready: Ready,
    hoard: Vec<Grant>,
    greedy: Vec<Vec<Waiting>>,
    seen: Seen,
}

fn address(client: usize) -> Source {
    let number = u32::try_from(client).expect("few clients");
    Source::at(IpAddr::V4(Ipv4Addr::from(0x0a00_0000 + number)))
}

impl Simulation {
    fn new(scene: Scene) -> Self {
        let mut simulation = Self {
            pool: Pool::new(scene.capacity),
            random: Random(scene.seed),
            now: 0,
            agenda: BinaryHeap::new(),
            number: 0,
            clients: (0..scene.clients).map(|_| Client::Thinks).collect(),
            ready: Ready::default(),
            hoard: Vec::new(),
            greedy: (0..scene.greedy).map(|_| Vec::new()).collect(),
            seen: Seen::default(),
            scene,
        };
        // Clients that misbehave come first, while all units are free.
        for greedy in 0..scene.greedy {
            simulation.plan(0, Happens::GreedyReconnects(greedy));
        }
        for client in 0..scene.clients {
            let after = simulation.random.around(scene.think);
            simulation.plan(after, Happens::Asks(client));
        }
        simulation
    }

    fn plan(&mut self, after: Time, what: Happens) {
        self.number += 1;
        let entry = (self.now + after, self.number, what);
        self.agenda.push(Reverse(entry));
    }

    fn run(mut self) -> Seen {
        while let Some(Reverse((time, _, what))) = self.agenda.pop() {
            if time > END {
                break;
            }
            self.now = time;
            match what {
                Happens::Asks(client) => self.ask(client),
                Happens::IsDone(client) => {
                    self.clients[client] = Client::Thinks;
                    let after = self.random.around(self.scene.think);
                    self.plan(after, Happens::Asks(client));
                }
                Happens::GreedyReconnects(network) => self.be_greedy(network),
            }
            self.let_in();
            assert!(self.pool.load().held <= self.scene.capacity);
        }
        // Clients that still wait are counted with the time so far.
        for client in &self.clients {
            if let Client::Waits(_, since) = client {
                self.seen.waits.push(self.now - since);
                self.seen.starved += usize::from(self.now - since > END / 2);
            }
        }
        self.seen
    }

    fn ask(&mut self, client: usize) {
        match self.pool.take(&address(client), 1) {
            Allocation::Granted(grant) => self.begin(client, grant, 0),
            Allocation::Queued(waiting) => {
                self.clients[client] = Client::Waits(waiting, self.now);
                self.ready.lock().expect("not poisoned").push(client);
            }
        }
    }

    fn begin(&mut self, client: usize, grant: Grant, waited: Time) {
        self.seen.waits.push(waited);
        self.clients[client] = Client::Uses { _grant: grant };
        let after = self.random.around(self.scene.service);
        self.plan(after, Happens::IsDone(client));
    }

    /// Polls the clients that were woken.
    fn let_in(&mut self) {
        loop {
            let next = self.ready.lock().expect("not poisoned").pop();
            let Some(client) = next else {
                return;
            };
            let Client::Waits(waiting, since) = &mut self.clients[client] else {
                continue;
            };
            let bell = Bell {
                client,
                ready: self.ready.clone(),
            };
            let waker = Waker::from(Arc::new(bell));
            let waited = self.now - *since;
            if let Poll::Ready(grant) = Pin::new(waiting).poll(&mut Context::from_waker(&waker)) {
                self.begin(client, grant, waited);
            }
        }
    }

    /// Keeps the granted units, drops the waiting requests, and asks again from other addresses of the same network.
    fn be_greedy(&mut self, network: usize) {
        let mut context = Context::from_waker(Waker::noop());
        for mut waiting in std::mem::take(&mut self.greedy[network]) {
            if let Poll::Ready(grant) = Pin::new(&mut waiting).poll(&mut context) {
                self.hoard.push(grant);
            }
        }
        let network_bits = 0x2001_0db8_0000_0000_u128 + network as u128;
        while self.greedy[network].len() < self.scene.greedy_requests {
            let host = u128::from(self.random.next());
            let source = Source::at(IpAddr::V6(Ipv6Addr::from(network_bits << 64 | host)));
            let units = 1 + usize::try_from(self.random.next() % 3).expect("small");
            match self.pool.take(&source, units) {
                Allocation::Granted(grant) => self.hoard.push(grant),
                Allocation::Queued(waiting) => self.greedy[network].push(waiting),
            }
        }
        self.plan(400, Happens::GreedyReconnects(network));
    }
}

fn compare(scene: Scene) -> (Seen, Seen) {
    let without = Scene { greedy: 0, ..scene };
    (Simulation::new(without).run(), Simulation::new(scene).run())
}

/// Hundreds of clients that need less than a quarter of all: one that hoards costs them nothing.
#[test]
fn clients_do_not_wait_for_a_hoarder_while_there_is_room() {
    for seed in 0..120 {
        let scene = Scene {
            seed,
            capacity: 400,
            clients: 300,
            greedy: 1,
            greedy_requests: 60,
            think: 2400,
            service: 400,
        };
        let (without, with) = compare(scene);
        assert_eq!(without.longest(), 0, "seed {seed}");
        assert_eq!(with.longest(), 0, "seed {seed}");
        assert!(with.waits.len() > 300 * 3, "seed {seed}");
    }
}

/// With more clients than units, a hoarder can take three quarters before the others come. In a closed system a
/// quarter of the units makes the mean cycle (wait, use, think) four times as long at most.
#[test]
fn a_crowd_waits_in_proportion_to_what_is_left() {
    for seed in 0..120 {
        let scene = Scene {
            seed,
            capacity: 40,
            clients: 200,
            greedy: 1,
            greedy_requests: 60,
            think: 1000,
            service: 300,
        };
        let (without, with) = compare(scene);
        let rest = (scene.think + scene.service) as f64;
        let bound = 4.0 * without.mean() + 3.0 * rest;
        assert_eq!(with.starved, 0, "seed {seed}");
        assert!(
            with.mean() <= bound * 1.1,
            "seed {seed}: {} instead of {}, at most {bound}",
            with.mean(),
            without.mean(),
        );
    }
}

/// Three networks that hoard, one after the other, take all but a sixty-fourth (`policy`).
#[test]
fn several_hoarders_leave_room() {
    for seed in 0..100 {
        let scene = Scene {
            seed,
            capacity: 500,
            clients: 200,
            greedy: 3,
            greedy_requests: 60,
            think: 4000,
            service: 50,
        };
        let (_, with) = compare(scene);
        assert_eq!(with.starved, 0, "seed {seed}");
        assert!(
            with.longest() <= 2 * scene.service,
            "seed {seed}: {}",
            with.longest()
        );
    }
}
