//! The units that each source holds, the queued requests, and which of them is served next.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::Arc;

use crate::policy;
use crate::request::Request;
use crate::source::{Network, Source};

/// The state of a pool. Its maps have entries only for sources that hold or request units.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) capacity: usize,
    pub(crate) held: usize,
    pub(crate) waiting: usize,
    networks: HashMap<Network, usize>,
    accounts: HashMap<Arc<str>, usize>,
    /// The sum over all sources without an account.
    held_without_account: usize,
    queues: HashMap<Source, VecDeque<Arc<Request>>>,
    arrivals: u64,
}

impl State {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            capacity,
            ..Self::default()
        }
    }

    fn free(&self) -> usize {
        self.capacity.saturating_sub(self.held)
    }

    /// Takes as many of `units` as the policy allows now, and returns their number, which may be 0.
    ///
    /// It cannot overtake a queued request: returned units are allocated at once, so the units
    /// that are free now cannot serve any queued request.
    pub(crate) fn take(&mut self, source: &Source, units: usize) -> usize {
        let units = self.most(source).min(units);
        self.add(source, units);
        units
    }

    /// Appends a request to the queue of its source.
    pub(crate) fn enqueue(&mut self, source: &Source, units: usize) -> Arc<Request> {
        let request = Arc::new(Request::new(units, self.arrivals));
        self.arrivals += 1;
        self.waiting += 1;
        let queue = self.queues.entry(source.clone()).or_default();
        queue.push_back(request.clone());
        request
    }

    /// Removes a request from the queue of its source.
    pub(crate) fn dequeue(&mut self, source: &Source, request: &Arc<Request>) {
        if let Entry::Occupied(mut queue) = self.queues.entry(source.clone()) {
            let before = queue.get().len();
            queue.get_mut().retain(|other| !Arc::ptr_eq(other, request));
            self.waiting -= before - queue.get().len();
            if queue.get().is_empty() {
                queue.remove();
            }
        }
    }

    /// Subtracts returned units.
    pub(crate) fn give_back(&mut self, source: &Source, units: usize) {
        self.held -= units;
        subtract(&mut self.networks, &source.network, units);
        match &source.account {
            Some(account) => subtract(&mut self.accounts, account, units),
            None => self.held_without_account -= units,
        }
    }

    /// Allocates free units to queued requests, and returns the requests served.
    ///
    /// The source that holds least is served first (max-min fairness); among equals, the one with the oldest request.
    /// A source at its threshold is skipped.
    pub(crate) fn serve(&mut self) -> Vec<Arc<Request>> {
        let mut served = Vec::new();
        while self.waiting > 0
            && let Some((source, units)) = self.next()
        {
            self.add(&source, units);
            served.extend(self.pop(&source, units));
        }
        served
    }

    /// The number of requests that will be served before this one, if no further request comes and returned units do
    /// not change the order.
    pub(crate) fn ahead(&self, source: &Source, request: &Request) -> usize {
        let own = self.queues.get(source);
        let own = own.into_iter().flatten();
        let before = own.take_while(|other| other.arrival < request.arrival);
        let (count, units) = before.fold((0, 0), |(count, units), next| {
            (count + 1, units + next.wanted)
        });
        // The units that the source will hold when this request is at the front.
        let level = self.held_by(source) + units;
        let others = self.queues.iter().filter(|(other, _)| *other != source);
        let others = others.map(|(other, queue)| {
            let mut level_of_other = self.held_by(other);
            let is_first = |next: &&Arc<Request>| {
                let rank = (level_of_other, next.arrival);
                level_of_other += next.wanted;
                rank < (level, request.arrival)
            };
            queue.iter().take_while(is_first).count()
        });
        count + others.sum::<usize>()
    }

    /// The source to serve next, and the units that it gets.
    fn next(&self) -> Option<(Source, usize)> {
        if self.free() == 0 {
            return None;
        }
        let fronts = self.queues.iter().filter_map(|(source, queue)| {
            let front = queue.front()?;
            let units = self.most(source).min(front.wanted);
            let rank = (self.held_by(source), front.arrival);
            (units > 0).then_some((rank, source, units))
        });
        let (_, source, units) = fronts.min_by_key(|(rank, ..)| *rank)?;
        Some((source.clone(), units))
    }

    /// How many units the policy allows a source to take now.
    fn most(&self, source: &Source) -> usize {
        let free = self.free();
        let held = self.networks.get(&source.network).copied().unwrap_or(0);
        let Some(account) = &source.account else {
            let room =
                policy::without_account(self.capacity).saturating_sub(self.held_without_account);
            return policy::most(held, free.min(room));
        };
        let of_network = policy::most(held, free);
        match self.accounts.get(account) {
            Some(held) => policy::most(*held, free).min(of_network),
            None => of_network.max(free.min(1)),
        }
    }

    fn pop(&mut self, source: &Source, units: usize) -> Option<Arc<Request>> {
        let queue = self.queues.get_mut(source)?;
        let request = queue.pop_front()?;
        if queue.is_empty() {
            self.queues.remove(source);
        }
        self.waiting -= 1;
        request.grant(units);
        Some(request)
    }

    fn add(&mut self, source: &Source, units: usize) {
        if units == 0 {
            return;
        }
        self.held += units;
        *self.networks.entry(source.network).or_default() += units;
        let Some(account) = &source.account else {
            self.held_without_account += units;
            return;
        };
        match self.accounts.get_mut(account) {
            Some(held) => *held += units,
            None => drop(self.accounts.insert(account.clone(), units)),
        }
    }

    /// The number of entries in all maps.
    pub(crate) fn entries(&self) -> usize {
        self.networks.len() + self.accounts.len() + self.queues.len()
    }

    /// The units that a source holds: the greater of its network's and its account's.
    pub(crate) fn held_by(&self, source: &Source) -> usize {
        let network = self.networks.get(&source.network).copied();
        let account = source.account.as_ref();
        let account = account.and_then(|account| self.accounts.get(account).copied());
        network.max(account).unwrap_or(0)
    }
}

fn subtract<K: Hash + Eq>(counts: &mut HashMap<K, usize>, key: &K, units: usize) {
    if let Some(held) = counts.get_mut(key) {
        *held -= units;
        if *held == 0 {
            counts.remove(key);
        }
    }
}
