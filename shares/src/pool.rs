//! A resource that is dealt out in units.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::source::Source;
use crate::state::State;
use crate::waiting::{Waiter, Waiting};

/// A resource with a number of units, shared fairly among sources. Clones are the same pool.
#[derive(Debug, Clone)]
pub struct Pool {
    state: Arc<Mutex<State>>,
}

/// How much of a pool is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// Units that exist.
    pub capacity: usize,
    /// Units that are held. More than the capacity if that was lowered meanwhile.
    pub held: usize,
    /// Requests that wait.
    pub waiting: usize,
}

/// The answer to a request.
#[derive(Debug)]
pub enum Turn {
    /// The units are there.
    Now(Grant),
    /// They will come.
    Later(Waiting),
}

/// Units that a source holds. They go back when it is dropped.
#[derive(Debug)]
#[must_use = "dropping it gives the units back"]
pub struct Grant {
    pool: Pool,
    source: Source,
    units: usize,
}

impl Pool {
    /// A pool of `capacity` units.
    pub fn new(capacity: usize) -> Self {
        Self {
            state: Arc::new(Mutex::new(State::new(capacity))),
        }
    }

    /// Changes the number of units. What is held stays held.
    pub fn set_capacity(&self, capacity: usize) {
        self.change(|state| state.capacity = capacity);
    }

    /// Takes as many of `units` as the source may have now, at least one, without waiting. The grant tells how many.
    pub fn try_take(&self, source: &Source, units: usize) -> Option<Grant> {
        let grant = self.take_some(source, units);
        (grant.units() > 0).then_some(grant)
    }

    /// As [`Pool::try_take`], and maybe none. For what is useful and not needed.
    pub fn take_some(&self, source: &Source, units: usize) -> Grant {
        let units = self.lock().take(source, units);
        Grant::new(self.clone(), source.clone(), units)
    }

    /// As [`Pool::try_take`], and only while no request waits and at most half of all units would be held. For what is
    /// a luxury.
    pub fn try_take_spare(&self, source: &Source, units: usize) -> Option<Grant> {
        let mut state = self.lock();
        let is_spare = state.waiting == 0 && (state.held + units) <= state.capacity / 2;
        let units = if is_spare {
            state.take(source, units)
        } else {
            0
        };
        (units > 0).then(|| Grant::new(self.clone(), source.clone(), units))
    }

    /// Takes as many of `units` as the source may have now; if that is none, it waits in the queue of the source for
    /// one or more. A request for less than one is for one.
    pub fn take(&self, source: &Source, units: usize) -> Turn {
        let wanted = units.max(1);
        let mut state = self.lock();
        match state.take(source, wanted) {
            0 => {
                let waiter = state.wait(source, wanted);
                Turn::Later(Waiting::new(self.clone(), source.clone(), waiter))
            }
            units => Turn::Now(Grant::new(self.clone(), source.clone(), units)),
        }
    }

    /// How much is in use.
    pub fn load(&self) -> Load {
        let state = self.lock();
        Load {
            capacity: state.capacity,
            held: state.held,
            waiting: state.waiting,
        }
    }

    /// What a source holds: the greater of its network's and its account's units.
    pub fn held_by(&self, source: &Source) -> usize {
        self.lock().held_by(source)
    }

    /// How many entries are kept for sources. Those that hold and want nothing have none.
    pub fn remembered(&self) -> usize {
        self.lock().remembered()
    }

    pub(crate) fn ahead(&self, source: &Source, waiter: &Waiter) -> usize {
        self.lock().ahead(source, waiter)
    }

    /// A request leaves the queue, or gives back what it was given at the last moment.
    pub(crate) fn give_up(&self, source: &Source, waiter: &Arc<Waiter>) {
        self.change(|state| match waiter.granted() {
            Some(units) => state.give_back(source, units),
            None => state.leave(source, waiter),
        });
    }

    /// Changes the state, and serves those who can be served because of it.
    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.lock();
        change(&mut state);
        self.serve(state);
    }

    /// Serves those whose turn it is.
    fn serve(&self, mut state: MutexGuard<'_, State>) {
        let served = state.serve();
        drop(state);
        for waiter in served {
            waiter.wake();
        }
    }

    /// The counts are whole at every unlock, so a panic elsewhere does not spoil them.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turn {
    /// Waits for the units if they are not there.
    pub async fn granted(self) -> Grant {
        match self {
            Self::Now(grant) => grant,
            Self::Later(waiting) => waiting.await,
        }
    }
}

impl Grant {
    pub(crate) fn new(pool: Pool, source: Source, units: usize) -> Self {
        Self {
            pool,
            source,
            units,
        }
    }

    /// How many units it holds.
    pub fn units(&self) -> usize {
        self.units
    }

    /// Whom they are counted for.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// Gives all but `units` back.
    pub fn shrink(&mut self, units: usize) {
        let surplus = self.units.saturating_sub(units);
        self.give_back(surplus);
    }

    /// Moves up to `units` to a grant of their own.
    pub fn split(&mut self, units: usize) -> Self {
        let units = units.min(self.units);
        self.units -= units;
        Self::new(self.pool.clone(), self.source.clone(), units)
    }

    fn give_back(&mut self, units: usize) {
        if units > 0 {
            self.units -= units;
            self.pool
                .change(|state| state.give_back(&self.source, units));
        }
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        self.give_back(self.units);
    }
}
