//! A resource that is allocated in units.

use crate::grant::Grant;
use crate::shared::Shared;
use crate::source::Source;
use crate::state::State;
use crate::waiting::Waiting;

/// A resource with a number of units, shared fairly among sources. Clones are the same pool.
#[derive(Debug, Clone)]
pub struct Pool {
    shared: Shared,
}

/// How much of a pool is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// The number of units of the pool.
    pub capacity: usize,
    /// Units that are held: more than the capacity if that was lowered in the meantime.
    pub held: usize,
    /// The number of queued requests.
    pub waiting: usize,
}

/// The answer to a request for units.
#[derive(Debug)]
pub enum Allocation {
    /// Some units were free.
    Granted(Grant),
    /// None was free, so the request is queued.
    Queued(Waiting),
}

impl Pool {
    /// A pool of `capacity` units.
    pub fn new(capacity: usize) -> Self {
        Self {
            shared: Shared::new(State::new(capacity)),
        }
    }

    /// Changes the number of units. Grants keep theirs.
    pub fn set_capacity(&self, capacity: usize) {
        self.shared.change(|state| state.capacity = capacity);
    }

    /// Takes as many of `units` as the source may have now, at least one, without waiting. See [`Grant::units`].
    pub fn try_take(&self, source: &Source, units: usize) -> Option<Grant> {
        let grant = self.take_some(source, units);
        (grant.units() > 0).then_some(grant)
    }

    /// As [`Pool::try_take`], but the grant may be empty. For optional use.
    pub fn take_some(&self, source: &Source, units: usize) -> Grant {
        let units = self.shared.lock().take(source, units);
        self.grant(source, units)
    }

    /// As [`Pool::try_take`], but only while no request waits and at most half of all units would be held. For use
    /// that is merely an optimization.
    pub fn try_take_spare(&self, source: &Source, units: usize) -> Option<Grant> {
        let mut state = self.shared.lock();
        let is_spare = state.waiting == 0 && (state.held + units) <= state.capacity / 2;
        let units = if is_spare {
            state.take(source, units)
        } else {
            0
        };
        (units > 0).then(|| self.grant(source, units))
    }

    /// Takes as many of `units` as the source may have now. If that is none, the request is queued until it gets one
    /// or more. A request for 0 units counts as one for 1.
    pub fn take(&self, source: &Source, units: usize) -> Allocation {
        let wanted = units.max(1);
        let mut state = self.shared.lock();
        match state.take(source, wanted) {
            0 => {
                let request = state.enqueue(source, wanted);
                Allocation::Queued(Waiting::new(self.shared.clone(), source.clone(), request))
            }
            units => Allocation::Granted(self.grant(source, units)),
        }
    }

    /// How much is in use.
    pub fn load(&self) -> Load {
        let state = self.shared.lock();
        Load {
            capacity: state.capacity,
            held: state.held,
            waiting: state.waiting,
        }
    }

    /// The units that a source holds: the greater of its network's and its account's.
    pub fn held_by(&self, source: &Source) -> usize {
        self.shared.lock().held_by(source)
    }

    /// The number of entries that the pool keeps for sources. A source that neither holds nor requests units has none.
    pub fn entries(&self) -> usize {
        self.shared.lock().entries()
    }

    fn grant(&self, source: &Source, units: usize) -> Grant {
        Grant::new(self.shared.clone(), source.clone(), units)
    }
}

impl Allocation {
    /// Waits for the units if the request is queued.
    pub async fn granted(self) -> Grant {
        match self {
            Self::Granted(grant) => grant,
            Self::Queued(waiting) => waiting.await,
        }
    }
}
