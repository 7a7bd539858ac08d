//! The state of a pool behind its lock. Every change serves the requests that it makes servable.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::request::Request;
use crate::source::Source;
use crate::state::State;

/// A handle on the state of a pool. Pools, grants and waiting requests hold clones of it.
#[derive(Debug, Clone)]
pub(crate) struct Shared(Arc<Mutex<State>>);

impl Shared {
    pub(crate) fn new(state: State) -> Self {
        Self(Arc::new(Mutex::new(state)))
    }

    /// The counts are consistent at every unlock, so a panic elsewhere does not corrupt them.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, serves the requests that can be served because of it, and wakes them.
    pub(crate) fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.lock();
        change(&mut state);
        let served = state.serve();
        drop(state);
        for request in served {
            request.wake();
        }
    }

    /// Withdraws a request, or returns its units if it was served in the meantime.
    pub(crate) fn withdraw(&self, source: &Source, request: &Arc<Request>) {
        self.change(|state| match request.granted() {
            Some(units) => state.give_back(source, units),
            None => state.dequeue(source, request),
        });
    }
}
