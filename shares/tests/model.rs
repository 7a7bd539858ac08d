//! Compares a pool with a simple model (a list of holders and a list of waiting requests) after each of many random steps.

use std::future::Future;
use std::net::{IpAddr, Ipv4Addr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use gridhaul_shares::policy::{ALPHA, FOR_ACCOUNTS};
use gridhaul_shares::{Allocation, Grant, Pool, Source, WaitError, Waiting};
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

/// The model: granted requests, and waiting requests in the order of arrival.
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

    /// The free units that a source may use.
    fn free_for(&self, source: &Source) -> usize {
        if source.account.is_some() {
            return self.free();
        }
        let without_account = self
            .holds
            .iter()
            .filter(|held| held.source.account.is_none());
        let held: usize = without_account.map(|held| held.units).sum();
        let room = self.capacity - self.capacity / FOR_ACCOUNTS;
        self.free().min(room.saturating_sub(held))
    }

    fn allows(&self, source: &Source, units: usize) -> bool {
        let free = self.free_for(source);
        if units > free {
            return false;
        }
        let [network, account] = self.ledgers(source);
        let allows = |held: usize| {
            let is_first = held == 0 && units == 1;
            is_first || held + units <= ALPHA * (free - units)
        };
        let is_first_of_account = source.account.is_some() && account == 0 && units == 1;
        // An account that holds nothing has no threshold of its own: it holds as much as its network lets it.
        let account_allows = source.account.is_none() || account == 0 || allows(account);
        is_first_of_account || allows(network) && account_allows
    }

    /// The largest part of a request that can be granted.
    fn most(&self, source: &Source, units: usize) -> usize {
        let parts = (1..=units).rev();
        let mut allowed = parts.filter(|part| self.allows(source, *part));
        allowed.next().unwrap_or(0)
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
            fronts.retain(|front| self.most(&front.source, front.units) > 0);
            let next = fronts
                .iter()
                .min_by_key(|front| (self.ledgers(&front.source).into_iter().max(), front.number));
            let Some(next) = next else {
                return;
            };
            let number = next.number;
            let index = self.waits.iter().position(|wait| wait.number == number);
            let mut next = self.waits.remove(index.expect("it waits"));
            next.units = self.most(&next.source, next.units);
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
            units,
        }
    }

    fn carry_out(&mut self, step: Step) {
        match step {
            Step::Take(index, units) => {
                let request = self.request(index, units);
                self.model.waits.push(request.clone());
                self.model.serve();
                let waits = self.model.waits.iter();
                let has_to_wait = waits
                    .map(|wait| wait.number)
                    .any(|number| number == request.number);
                match self.pool.take(&request.source, units) {
                    Allocation::Granted(grant) => {
                        assert!(!has_to_wait);
                        self.grants.push((request.number, grant));
                    }
                    Allocation::Queued(waiting) => {
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
                assert_eq!(grant.units(), self.model.most(&request.source, units));
                if grant.units() > 0 {
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

    /// Collects the grants of served requests, and checks that each of these was woken.
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

    /// A source that holds nothing waits only while no unit is free for it.
    fn assert_no_source_is_shut_out(&self) {
        let with_nothing = |wait: &&Request| self.model.ledgers(&wait.source) == [0, 0];
        for wait in self.model.waits.iter().filter(with_nothing) {
            assert_eq!(self.model.free_for(&wait.source), 0);
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
            test.assert_no_source_is_shut_out();
        }
        test.waits.clear();
        test.grants.clear();
        prop_assert_eq!(test.pool.load().held, 0);
        prop_assert_eq!(test.pool.entries(), 0, "sources that are gone");
    }
}

fn later(allocation: Allocation) -> Waiting {
    match allocation {
        Allocation::Granted(_) => panic!("it need not wait"),
        Allocation::Queued(waiting) => waiting,
    }
}

#[test]
fn greedy_sources_leave_room_for_the_next() {
    let pool = Pool::new(500);
    let mut grants = Vec::new();
    let mut shares = Vec::new();
    for index in [0, 4] {
        let before = grants.len();
        grants.extend(std::iter::from_fn(|| pool.try_take(&source(index), 1)));
        shares.push(grants.len() - before);
    }
    // One alone takes 3/4, the next one of what that left.
    assert_eq!(shares, [375, 93]);
    // An account that holds nothing is not shut out by its network, and gets no share of its own.
    let account = source(0).with_account("eve");
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
fn a_request_for_more_than_is_free_does_not_hold_others_up() {
    let pool = Pool::new(16);
    let held = pool.try_take(&source(0), 12).expect("within the share");
    let rest = pool.try_take(&source(4), 16).expect("what is left");
    assert_eq!((held.units(), rest.units()), (12, 3));
    let eve = source(6).with_account("eve");
    let large = pool.try_take(&eve, 16).expect("the last one");
    assert_eq!(large.units(), 1, "as many as there are");
    let waiting = later(pool.take(&source(8), 16));
    drop(large);
    assert_eq!(waiting.ahead(), 0);
    let mut context = Context::from_waker(Waker::noop());
    let mut waiting = std::pin::pin!(waiting);
    let Poll::Ready(grant) = waiting.as_mut().poll(&mut context) else {
        panic!("one is free, so it need not wait for sixteen");
    };
    assert_eq!(grant.units(), 1);
}

#[test]
fn hosts_without_an_account_leave_accounts_an_eighth() {
    let pool = Pool::new(64);
    let hosts = (0..200).map(|host| Source::at(IpAddr::V4(Ipv4Addr::new(198, 51, 100, host))));
    let held: Vec<Grant> = hosts
        .flat_map(|host| std::iter::repeat_with(move || host.clone()).take(64))
        .filter_map(|host| pool.try_take(&host, 1))
        .collect();
    assert_eq!(held.len(), 56, "all that they may have");
    // An account gets of the rest what it would get of a pool of that size.
    let ada: Vec<Grant> = std::iter::from_fn(|| pool.try_take(&source(0), 1)).collect();
    assert_eq!(ada.len(), 6);
    drop(pool.try_take(&source(4), 1).expect("room for the next"));
}

#[test]
fn a_queued_request_reports_how_many_are_ahead() {
    let pool = Pool::new(4);
    let held = [2, 2, 2].map(|index| pool.try_take(&source(index), 1).expect("within its share"));
    let other = pool.try_take(&source(5), 1).expect("room is left");
    let mut waits: Vec<_> = [2, 2, 5, 8, 8]
        .map(|index| later(pool.take(&source(index), 1)))
        .into();
    // By rank: the first of 8 (holds 0), then by what they would hold when served.
    let ahead: Vec<usize> = waits.iter().map(Waiting::ahead).collect();
    assert_eq!(ahead, [3, 4, 1, 0, 2]);
    drop(waits.remove(3));
    assert_eq!(waits[2].ahead(), 1, "source 5 holds less than it will");
    drop((held, other, waits));
    assert_eq!(pool.entries(), 0);
}

#[test]
fn threads_wait_until_they_are_served_cancelled_or_late() {
    let pool = Pool::new(1);
    let held = pool.try_take(&source(2), 1).expect("free");
    let cancelled = later(pool.take(&source(5), 1)).wait(None, || true);
    assert_eq!(cancelled.expect_err("cancelled"), WaitError::Cancelled);
    let late = later(pool.take(&source(5), 1)).wait(Some(Instant::now()), || false);
    assert_eq!(late.expect_err("late"), WaitError::TimedOut);
    let waiting = later(pool.take(&source(5), 1));
    let waiter = thread::spawn(move || waiting.wait(None, || false).map(|grant| grant.units()));
    drop(held);
    assert_eq!(waiter.join().expect("no panic"), Ok(1));
    assert_eq!((pool.load().held, pool.entries()), (0, 0));
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
                        Allocation::Granted(grant) => grant,
                        Allocation::Queued(waiting) if round % 7 == 0 => {
                            drop(waiting);
                            continue;
                        }
                        Allocation::Queued(waiting) => {
                            let deadline = Instant::now() + Duration::from_secs(60);
                            waiting.wait(Some(deadline), || false).expect("served")
                        }
                    };
                    let load = pool.load();
                    assert!(load.held <= load.capacity);
                    drop(grant);
                }
            });
        }
    });
    assert_eq!((pool.load().held, pool.entries()), (0, 0));
}
