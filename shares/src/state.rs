//! Who holds how much, who waits, and who is next.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::Arc;

use crate::policy;
use crate::source::{Network, Source};
use crate::waiting::Waiter;

/// The state of a pool. Every entry of its maps is a source that holds or wants something.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) capacity: usize,
    pub(crate) held: usize,
    pub(crate) waiting: usize,
    networks: HashMap<Network, usize>,
    accounts: HashMap<Arc<str>, usize>,
    /// What all sources without an account hold together.
    held_by_strangers: usize,
    queues: HashMap<Source, VecDeque<Arc<Waiter>>>,
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

    /// Takes as many of `units` as the policy gives now, and returns how many: maybe none.
    ///
    /// It overtakes no request that waits, because none could be served: units that come back are dealt out at
    /// once, and what a source takes leaves less for all.
    pub(crate) fn take(&mut self, source: &Source, units: usize) -> usize {
        let units = self.most(source).min(units);
        self.add(source, units);
        units
    }

    /// Puts a request into the queue of its source.
    pub(crate) fn wait(&mut self, source: &Source, units: usize) -> Arc<Waiter> {
        let waiter = Arc::new(Waiter::new(units, self.arrivals));
        self.arrivals += 1;
        self.waiting += 1;
        let queue = self.queues.entry(source.clone()).or_default();
        queue.push_back(waiter.clone());
        waiter
    }

    /// Takes a request out of the queue.
    pub(crate) fn leave(&mut self, source: &Source, waiter: &Arc<Waiter>) {
        if let Entry::Occupied(mut queue) = self.queues.entry(source.clone()) {
            let before = queue.get().len();
            queue.get_mut().retain(|other| !Arc::ptr_eq(other, waiter));
            self.waiting -= before - queue.get().len();
            if queue.get().is_empty() {
                queue.remove();
            }
        }
    }

    /// Units come back.
    pub(crate) fn give_back(&mut self, source: &Source, units: usize) {
        self.held -= units;
        subtract(&mut self.networks, &source.network, units);
        match &source.account {
            Some(account) => subtract(&mut self.accounts, account, units),
            None => self.held_by_strangers -= units,
        }
    }

    /// Gives free units to those whose turn it is, and returns them.
    ///
    /// The source that holds least is next (max-min fairness); among equals the one whose request is oldest. A
    /// source at its threshold is passed over.
    pub(crate) fn serve(&mut self) -> Vec<Arc<Waiter>> {
        let mut served = Vec::new();
        while self.waiting > 0
            && let Some((source, units)) = self.next()
        {
            self.add(&source, units);
            served.extend(self.pop(&source, units));
        }
        served
    }

    /// How many requests will be served before this one, if nothing is given back meanwhile that the policy would
    /// deal out otherwise and no further request comes.
    pub(crate) fn ahead(&self, source: &Source, waiter: &Waiter) -> usize {
        let own = self.queues.get(source);
        let own = own.into_iter().flatten();
        let before = own.take_while(|other| other.arrival < waiter.arrival);
        let (count, units) = before.fold((0, 0), |(count, units), next| {
            (count + 1, units + next.wanted)
        });
        // What the source holds when it is this request's turn.
        let level = self.held_by(source) + units;
        let others = self.queues.iter().filter(|(other, _)| *other != source);
        let others = others.map(|(other, queue)| {
            let mut level_of_other = self.held_by(other);
            let is_first = |next: &&Arc<Waiter>| {
                let rank = (level_of_other, next.arrival);
                level_of_other += next.wanted;
                rank < (level, waiter.arrival)
            };
            queue.iter().take_while(is_first).count()
        });
        count + others.sum::<usize>()
    }

    /// The source whose turn it is, and what it gets.
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

    /// How many units the policy gives to a source now.
    fn most(&self, source: &Source) -> usize {
        let free = self.free();
        let held = self.networks.get(&source.network).copied().unwrap_or(0);
        let Some(account) = &source.account else {
            let room = policy::for_strangers(self.capacity).saturating_sub(self.held_by_strangers);
            return policy::most(held, free.min(room));
        };
        let of_network = policy::most(held, free);
        match self.accounts.get(account) {
            Some(held) => policy::most(*held, free).min(of_network),
            None => of_network.max(free.min(1)),
        }
    }

    fn pop(&mut self, source: &Source, units: usize) -> Option<Arc<Waiter>> {
        let queue = self.queues.get_mut(source)?;
        let waiter = queue.pop_front()?;
        if queue.is_empty() {
            self.queues.remove(source);
        }
        self.waiting -= 1;
        waiter.grant(units);
        Some(waiter)
    }

    fn add(&mut self, source: &Source, units: usize) {
        if units == 0 {
            return;
        }
        self.held += units;
        *self.networks.entry(source.network).or_default() += units;
        let Some(account) = &source.account else {
            self.held_by_strangers += units;
            return;
        };
        match self.accounts.get_mut(account) {
            Some(held) => *held += units,
            None => drop(self.accounts.insert(account.clone(), units)),
        }
    }

    /// How many sources are remembered.
    pub(crate) fn remembered(&self) -> usize {
        self.networks.len() + self.accounts.len() + self.queues.len()
    }

    /// What a source holds: the greater of its network's and its account's units.
    pub(crate) fn held_by(&self, source: &Source) -> usize {
        let network = self.networks.get(&source.network).copied();
        let account = source.account.as_ref();
        let account = account.and_then(|account| self.accounts.get(account).copied());
        network.max(account).unwrap_or(0)
    }
}

fn subtract<K: Hash + Eq>(ledger: &mut HashMap<K, usize>, key: &K, units: usize) {
    if let Some(held) = ledger.get_mut(key) {
        *held -= units;
        if *held == 0 {
            ledger.remove(key);
        }
    }
}
