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
    queues: HashMap<Source, VecDeque<Arc<Waiter>>>,
    arrivals: u64,
}

/// What a source holds, by network and by account.
#[derive(Debug, Clone, Copy)]
struct Holds {
    network: usize,
    /// `None` without an account.
    account: Option<usize>,
}

impl Holds {
    fn greater(self) -> usize {
        self.network.max(self.account.unwrap_or(0))
    }

    /// Whether the thresholds let it take so many. Says nothing about whether they are free if its account, or a
    /// network without an account, holds nothing.
    fn allow(self, units: usize, free: usize) -> bool {
        match self.account {
            Some(0) => true,
            Some(held) => {
                policy::allows(held, units, free) && policy::allows(self.network, units, free)
            }
            None => policy::allows(self.network, units, free),
        }
    }

    fn most(self, free: usize) -> usize {
        let of_network = policy::most(self.network, free);
        match self.account {
            Some(0) => of_network.max(free.min(1)),
            Some(held) => policy::most(held, free).min(of_network),
            None => of_network,
        }
    }
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

    /// What a request for so many is for: at most the share of a source that is alone, so that it can be served.
    pub(crate) fn cut(&self, units: usize) -> usize {
        units.min(policy::sole_share(self.capacity).max(1))
    }

    /// Takes `units` now if the policy allows it. Only for when no request waits: else [`State::wait`] and
    /// [`State::serve`] decide.
    pub(crate) fn take(&mut self, source: &Source, units: usize) -> bool {
        let free = self.free();
        let may = self.waiting == 0 && units <= free && self.holds(source).allow(units, free);
        if may {
            self.add(source, units);
        }
        may
    }

    /// Takes up to `units`, and returns how many.
    pub(crate) fn take_some(&mut self, source: &Source, units: usize) -> usize {
        // What waits and is next, waits for room.
        if self.waiting > 0 && (self.queues.contains_key(source) || self.next().is_some()) {
            return 0;
        }
        let units = self.holds(source).most(self.free()).min(units);
        self.add(source, units);
        units
    }

    /// Puts a request into the queue of its source.
    pub(crate) fn wait(&mut self, source: &Source, units: usize) -> Arc<Waiter> {
        let waiter = Arc::new(Waiter::new(units.max(1), self.arrivals));
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
        if let Some(account) = &source.account {
            subtract(&mut self.accounts, account, units);
        }
    }

    /// Gives free units to those whose turn it is, and returns them.
    ///
    /// The source that holds least is next (max-min fairness); among equals the one whose request is oldest. A
    /// source at its threshold is passed over. One that holds nothing is not, even if its request is larger than
    /// what is free: those behind it wait until it fits, or small requests would starve it.
    pub(crate) fn serve(&mut self) -> Vec<Arc<Waiter>> {
        let mut served = Vec::new();
        while self.waiting > 0
            && let Some((source, units)) = self.next()
            && units <= self.free()
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
        let level = self.holds(source).greater() + units;
        let others = self.queues.iter().filter(|(other, _)| *other != source);
        let others = others.map(|(other, queue)| {
            let mut level_of_other = self.holds(other).greater();
            let is_first = |next: &&Arc<Waiter>| {
                let rank = (level_of_other, next.arrival);
                level_of_other += next.wanted;
                rank < (level, waiter.arrival)
            };
            queue.iter().take_while(is_first).count()
        });
        count + others.sum::<usize>()
    }

    /// The source whose turn it is, and what it wants.
    fn next(&self) -> Option<(Source, usize)> {
        let free = self.free();
        if free == 0 {
            return None;
        }
        let fronts = self.queues.iter().filter_map(|(source, queue)| {
            let front = queue.front()?;
            let holds = self.holds(source);
            let rank = (holds.greater(), front.arrival);
            // The capacity may have become less since.
            let units = self.cut(front.wanted);
            holds.allow(units, free).then_some((rank, source, units))
        });
        let (_, source, units) = fronts.min_by_key(|(rank, ..)| *rank)?;
        Some((source.clone(), units))
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
        if let Some(account) = &source.account {
            match self.accounts.get_mut(account) {
                Some(held) => *held += units,
                None => drop(self.accounts.insert(account.clone(), units)),
            }
        }
    }

    fn holds(&self, source: &Source) -> Holds {
        let account = source.account.as_ref();
        Holds {
            network: self.networks.get(&source.network).copied().unwrap_or(0),
            account: account.map(|account| self.accounts.get(account).copied().unwrap_or(0)),
        }
    }

    /// How many sources are remembered.
    pub(crate) fn remembered(&self) -> usize {
        self.networks.len() + self.accounts.len() + self.queues.len()
    }

    /// What a source holds: the greater of its network's and its account's units.
    pub(crate) fn held_by(&self, source: &Source) -> usize {
        self.holds(source).greater()
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
