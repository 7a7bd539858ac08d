//! A queued request for units.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

/// A request in the queue of a pool. The queue and the waiting task or thread share it.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) wanted: usize,
    /// Position in the order of arrival over all requests of the pool.
    pub(crate) arrival: u64,
    /// The granted units; 0 while the request waits. Set under the lock of the pool.
    granted: AtomicUsize,
    waker: Mutex<Option<Waker>>,
}

impl Request {
    pub(crate) fn new(wanted: usize, arrival: u64) -> Self {
        Self {
            wanted,
            arrival,
            granted: AtomicUsize::new(0),
            waker: Mutex::default(),
        }
    }

    pub(crate) fn grant(&self, units: usize) {
        self.granted.store(units, Ordering::Release);
    }

    pub(crate) fn granted(&self) -> Option<usize> {
        let units = self.granted.load(Ordering::Acquire);
        (units > 0).then_some(units)
    }

    pub(crate) fn set_waker(&self, waker: Waker) {
        *self.lock() = Some(waker);
    }

    /// Wakes the waiting task or thread. Must not be called under the pool's lock.
    pub(crate) fn wake(&self) {
        let waker = self.lock().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Waker>> {
        self.waker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
