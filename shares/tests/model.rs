//! A pool compared with a list of who holds and who waits, after each step of many random ones.

use std::future::Future;
use std::net::{IpAddr, Ipv4Addr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use gridhaul_shares::policy::{ALPHA, sole_share};
use gridhaul_shares::{GaveUp, Grant, Pool, Source, Turn, Waiting};
use proptest::prelude::*;

#[derive(Debug, Clone, Copy)]
enum Step {
    Take(usize, usize),
    TryTake(usize, usize),
    TakeSome(usize, usize),
    GiveBack(usize),
    Shrink(usize, usize),
    Leave(usize),
    Capacity(usize),
}

/// Three networks with three accounts each, the last of which is none.
const SOURCES: usize = 9;

fn source(index: usize) -> Source {
    let host = u8::try_from(index / 3).expect("few networks");
    let source = Source::at(IpAddr::V4(Ipv4Addr::new(192, 0, 2, host)));
    match index % 3 {
        0 => source.with_account("ada"),
        1 => source.with_account("bob"),
        _ => source,
    }
}

fn step() -> impl Strategy<Value = Step> {
    let units = || prop_oneof![4 => 1..3usize, 1 => 1..20usize];
    prop_oneof![
        6 => (0..SOURCES, units()).prop_map(|(source, units)| Step::Take(source, units)),
        2 => (0..SOURCES, units()).prop_map(|(source, units)| Step::TryTake(source, units)),
        1 => (0..SOURCES, units()).prop_map(|(source, units)| Step::TakeSome(source, units)),
        6 => (0..100usize).prop_map(Step::GiveBack),
        1 => (0..100usize, 0..4usize).prop_map(|(which, units)| Step::Shrink(which, units)),
        2 => (0..100usize).prop_map(Step::Leave),
        1 => (0..24usize).prop_map(Step::Capacity),
    ]
}

#[derive(Debug, Clone)]
struct Request {
    number: usize,
    source: Source,
    units: usize,
}

/// What the pool should be: who holds, and who waits in the order of asking.
#[derive(Debug, Default)]
struct Model {
    capacity: usize,
    holds: Vec<Request>,
    waits: Vec<Request>,
}

impl Model {
    fn held(&self) -> usize {
        self.holds.iter().map(|request| request.units).sum()
    }

    fn free(&self) -> usize {
        self.capacity.saturating_sub(self.held())
    }

    fn ledgers(&self, source: &Source) -> [usize; 2] {
        let sum = |counts: &dyn Fn(&Source) -> bool| {
            let counted = self.holds.iter().filter(|held| counts(&held.source));
            counted.map(|held| held.units).sum()
        };
        [
            sum(&|other| other.network == source.network),
            sum(&|other| source.account.is_some() && other.account == source.account),
        ]
    }

    fn allows(&self, source: &Source, units: usize) -> bool {
        let free = self.free();
        let [network, account] = self.ledgers(source);
        let allows = |held| held == 0 || units <= free && held + units <= ALPHA * (free - units);
        let holds_nothing = source.account.is_some() && account == 0;
        holds_nothing || allows(network) && allows(account)
    }

    fn cut(&self, units: usize) -> usize {
        units.min(sole_share(self.capacity).max(1))
    }

    /// Serves until no request can be served.
    fn serve(&mut self) {
        loop {
            // Only the oldest request of a source counts.
            let mut fronts: Vec<&Request> = Vec::new();
            for request in &self.waits {
                if !fronts.iter().any(|front| front.source == request.source) {
                    fronts.push(request);
                }
            }
            let free = self.free();
            fronts.retain(|front| self.allows(&front.source, self.cut(front.units)));
            let next = fronts
                .iter()
                .min_by_key(|front| (self.ledgers(&front.source).into_iter().max(), front.number));
            let Some(next) = next.filter(|next| self.cut(next.units) <= free) else {
                return;
            };
            let number = next.number;
            let index = self.waits.iter().position(|wait| wait.number == number);
            let mut next = self.waits.remove(index.expect("it waits"));
            next.units = self.cut(next.units);
            self.holds.push(next);
        }
    }
}

#[derive(Debug, Default)]
struct Noticed(AtomicBool);

impl Wake for Noticed {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

struct Test {
    pool: Pool,
    model: Model,
    grants: Vec<(usize, Grant)>,
    waits: Vec<(usize, Waiting, Arc<Noticed>)>,
    number: usize,
}

impl Test {
    fn new(capacity: usize) -> Self {
        Self {
            pool: Pool::new(capacity),
            model: Model {
                capacity,
                ..Model::default()
            },
            grants: Vec::new(),
            waits: Vec::new(),
            number: 0,
        }
    }

    fn request(&mut self, index: usize, units: usize) -> Request {
        self.number += 1;
        Request {
            number: self.number,
            source: source(index),
            units: self.model.cut(units),
        }
    }

    fn carry_out(&mut self, step: Step) {
        match step {
            Step::Take(index, units) => {
                let request = self.request(index, units);
                self.model.waits.push(request.clone());
                // Others may be served as well: what an account gets here can take it out of their way.
                self.model.serve();
                let waits = self.model.waits.iter();
                let has_to_wait = waits
                    .map(|wait| wait.number)
                    .any(|number| number == request.number);
                match self.pool.take(&request.source, units) {
                    Turn::Now(grant) => {
                        assert!(!has_to_wait);
                        self.grants.push((request.number, grant));
                    }
                    Turn::Later(waiting) => {
                        assert!(has_to_wait);
                        // A request that is polled for the first time has no waker yet.
                        let noticed = Arc::new(Noticed(AtomicBool::new(true)));
                        self.waits.push((request.number, waiting, noticed));
                    }
                }
            }
            Step::TryTake(index, units) => {
                let request = self.request(index, units);
                self.model.waits.push(request.clone());
                self.model.serve();
                self.model
                    .waits
                    .retain(|wait| wait.number != request.number);
                let grant = self.pool.try_take(&request.source, units);
                let mut holds = self.model.holds.iter();
                let is_served = holds.any(|held| held.number == request.number);
                assert_eq!(grant.is_some(), is_served);
                self.grants
                    .extend(grant.map(|grant| (request.number, grant)));
            }
            Step::TakeSome(index, units) => {
                let request = self.request(index, units);
                let grant = self.pool.take_some(&request.source, units);
                assert!(grant.units() <= units);
                if grant.units() > 0 {
                    assert!(self.model.allows(&request.source, grant.units()));
                    self.model.holds.push(Request {
                        units: grant.units(),
                        ..request.clone()
                    });
                }
                self.grants.push((request.number, grant));
            }
            Step::GiveBack(which) => {
                if !self.grants.is_empty() {
                    let (number, grant) = self.grants.swap_remove(which % self.grants.len());
                    drop(grant);
                    self.model.holds.retain(|held| held.number != number);
                }
            }
            Step::Shrink(which, units) => {
                if !self.grants.is_empty() {
                    let which = which % self.grants.len();
                    let (number, grant) = &mut self.grants[which];
                    grant.shrink(units);
                    for held in &mut self.model.holds {
                        if held.number == *number {
                            held.units = held.units.min(units);
                        }
                    }
                }
            }
            Step::Leave(which) => {
                if !self.waits.is_empty() {
                    let (number, waiting, _) = self.waits.swap_remove(which % self.waits.len());
                    drop(waiting);
                    self.model.waits.retain(|wait| wait.number != number);
                }
            }
            Step::Capacity(capacity) => {
                self.pool.set_capacity(capacity);
                self.model.capacity = capacity;
            }
        }
        self.model.serve();
        self.collect();
    }

    /// Fetches what was served, and insists that each request that was served was woken.
    fn collect(&mut self) {
        let mut waits = Vec::new();
        for (number, mut waiting, noticed) in self.waits.drain(..) {
            let waker = Waker::from(noticed.clone());
            let was_woken = noticed.0.swap(false, Ordering::Acquire);
            let mut context = Context::from_waker(&waker);
            match Pin::new(&mut waiting).poll(&mut context) {
                Poll::Ready(grant) => {
                    assert!(was_woken, "a lost wake-up");
                    self.grants.push((number, grant));
                }
                Poll::Pending => waits.push((number, waiting, noticed)),
            }
        }
        self.waits = waits;
    }

    fn compare(&self) {
        let numbers = |mut numbers: Vec<usize>| {
            numbers.sort_unstable();
            numbers
        };
        let waits = self.waits.iter().map(|(number, ..)| *number).collect();
        let expected = self.model.waits.iter().map(|wait| wait.number).collect();
        assert_eq!(numbers(waits), numbers(expected));
        let load = self.pool.load();
        assert_eq!(load.capacity, self.model.capacity);
        assert_eq!(load.held, self.model.held());
        assert_eq!(load.waiting, self.model.waits.len());
        let granted: usize = self.grants.iter().map(|(_, grant)| grant.units()).sum();
        assert_eq!(load.held, granted, "units are neither lost nor made");
        for index in 0..SOURCES {
            let expected = self.model.ledgers(&source(index)).into_iter().max();
            assert_eq!(Some(self.pool.held_by(&source(index))), expected);
        }
    }

    /// A source that holds nothing and waits, waits for room, or behind another source that holds nothing.
    fn assert_nobody_is_shut_out(&self) {
        let free = self.model.free();
        let with_nothing = |wait: &&Request| self.model.ledgers(&wait.source) == [0, 0];
        let first = self.model.waits.iter().find(with_nothing);
        if let Some(first) = first {
            assert!(self.model.cut(first.units) > free);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn a_pool_does_what_the_model_does(
        capacity in 0..24usize,
        steps in proptest::collection::vec(step(), 1..120),
    ) {
        let mut test = Test::new(capacity);
        for step in steps {
            let before = test.pool.load().held;
            test.carry_out(step);
            let load = test.pool.load();
            prop_assert!(load.held <= load.capacity.max(before), "more than there is");
            test.compare();
            test.assert_nobody_is_shut_out();
        }
        test.waits.clear();
        test.grants.clear();
        prop_assert_eq!(test.pool.load().held, 0);
        prop_assert_eq!(test.pool.remembered(), 0, "sources that are gone");
    }
}

fn later(turn: Turn) -> Waiting {
    match turn {
        Turn::Now(_) => panic!("it need not wait"),
        Turn::Later(waiting) => waiting,
    }
}

#[test]
fn greedy_sources_leave_room_for_the_next() {
    let pool = Pool::new(500);
    let mut grants = Vec::new();
    let mut shares = Vec::new();
    for index in [2, 5] {
        let before = grants.len();
        grants.extend(std::iter::from_fn(|| pool.try_take(&source(index), 1)));
        shares.push(grants.len() - before);
    }
    // One alone takes 3/4, the next one of what that left.
    assert_eq!(shares, [375, 93]);
    // An account that holds nothing is not shut out by its network, and gets no share of its own.
    let account = source(2).with_account("eve");
    let _one = pool.try_take(&account, 1).expect("it holds nothing");
    assert!(pool.try_take(&account, 1).is_none());
    // One account in many networks is one source.
    let pool = Pool::new(500);
    let mut held = Vec::new();
    for index in 0..SOURCES {
        let account = source(index).with_account("eve");
        held.extend(std::iter::from_fn(|| pool.try_take(&account, 1)));
    }
    assert_eq!(held.len(), 375);
}

#[test]
fn who_waits_hears_how_many_are_before() {
    let pool = Pool::new(4);
    let held = [2, 2, 2].map(|index| pool.try_take(&source(index), 1).expect("within its share"));
    let other = pool.try_take(&source(5), 1).expect("room is left");
    let mut waits: Vec<_> = [2, 2, 5, 8, 8]
        .map(|index| later(pool.take(&source(index), 1)))
        .into();
    // By rank: the first of 8 (holds 0), then by what they would hold at their turn.
    let ahead: Vec<usize> = waits.iter().map(Waiting::ahead).collect();
    assert_eq!(ahead, [3, 4, 1, 0, 2]);
    drop(waits.remove(3));
    assert_eq!(waits[2].ahead(), 1, "source 5 holds less than it will");
    drop((held, other, waits));
    assert_eq!(pool.remembered(), 0);
}

#[test]
fn threads_wait_until_they_are_served_cancelled_or_late() {
    let pool = Pool::new(1);
    let held = pool.try_take(&source(2), 1).expect("free");
    let cancelled = later(pool.take(&source(5), 1)).wait(None, || true);
    assert_eq!(cancelled.expect_err("cancelled"), GaveUp::Cancelled);
    let late = later(pool.take(&source(5), 1)).wait(Some(Instant::now()), || false);
    assert_eq!(late.expect_err("late"), GaveUp::Late);
    let waiting = later(pool.take(&source(5), 1));
    let waiter = thread::spawn(move || waiting.wait(None, || false).map(|grant| grant.units()));
    drop(held);
    assert_eq!(waiter.join().expect("no panic"), Ok(1));
    assert_eq!((pool.load().held, pool.remembered()), (0, 0));
}

#[test]
fn threads_that_share_a_pool_lose_nothing() {
    const ROUNDS: usize = 500;
    let pool = Pool::new(5);
    thread::scope(|scope| {
        for index in 0..SOURCES {
            let pool = &pool;
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let grant = match pool.take(&source(index), 1 + round % 3) {
                        Turn::Now(grant) => grant,
                        Turn::Later(waiting) if round % 7 == 0 => {
                            drop(waiting);
                            continue;
                        }
                        Turn::Later(waiting) => {
                            let deadline = Instant::now() + Duration::from_secs(60);
                            waiting.wait(Some(deadline), || false).expect("its turn")
                        }
                    };
                    let load = pool.load();
                    assert!(load.held <= load.capacity);
                    drop(grant);
                }
            });
        }
    });
    assert_eq!((pool.load().held, pool.remembered()), (0, 0));
}
