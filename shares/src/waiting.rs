//! A request that waits for its turn, as a future or on a thread.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use crate::pool::{Grant, Pool};
use crate::source::Source;

/// A request in the queue of a pool.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) wanted: usize,
    /// Its place among all requests.
    pub(crate) arrival: u64,
    /// The units that are its own; 0 is none yet. Set under the lock of the pool.
    granted: AtomicUsize,
    waker: Mutex<Option<Waker>>,
}

impl Waiter {
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

    /// Wakes the task or thread, which then sees that it is served. Not to be called under the pool's lock.
    pub(crate) fn wake(&self) {
        let waker = self.lock().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Waker>> {
        self.waker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request that waits for its turn. Dropping it gives up the place, or the units that came meanwhile.
#[derive(Debug)]
#[must_use = "dropping it gives up the place in the queue"]
pub struct Waiting {
    pool: Pool,
    source: Source,
    waiter: Arc<Waiter>,
    /// The units went to a grant, or the place was given up.
    is_over: bool,
}

/// Why a thread did not wait until it got units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GaveUp {
    /// The callback said so.
    Cancelled,
    /// It took until the deadline.
    Late,
}

/// How often a waiting thread looks whether it is cancelled.
const LOOK: Duration = Duration::from_millis(50);

impl Waiting {
    pub(crate) fn new(pool: Pool, source: Source, waiter: Arc<Waiter>) -> Self {
        Self {
            pool,
            source,
            waiter,
            is_over: false,
        }
    }

    /// How many requests will be served before this one, as things are now.
    pub fn ahead(&self) -> usize {
        self.pool.ahead(&self.source, &self.waiter)
    }

    /// Blocks the thread until the units come, `is_cancelled` says so (it is asked every 50 ms), or the deadline
    /// is reached.
    ///
    /// # Errors
    ///
    /// When the wait was given up.
    pub fn wait(
        mut self,
        deadline: Option<Instant>,
        is_cancelled: impl Fn() -> bool,
    ) -> Result<Grant, GaveUp> {
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let mut context = Context::from_waker(&waker);
        loop {
            if let Poll::Ready(grant) = Pin::new(&mut self).poll(&mut context) {
                return Ok(grant);
            }
            if is_cancelled() {
                return Err(GaveUp::Cancelled);
            }
            let now = Instant::now();
            let left = deadline.map(|deadline| deadline.saturating_duration_since(now));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(GaveUp::Late);
            }
            thread::park_timeout(left.map_or(LOOK, |left| left.min(LOOK)));
        }
    }

    fn granted(&mut self) -> Option<Grant> {
        let units = self.waiter.granted()?;
        self.is_over = true;
        Some(Grant::new(self.pool.clone(), self.source.clone(), units))
    }
}

impl Future for Waiting {
    type Output = Grant;

    /// # Panics
    ///
    /// When it is polled after it was ready.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Grant> {
        assert!(!self.is_over, "polled after the end");
        if let Some(grant) = self.granted() {
            return Poll::Ready(grant);
        }
        *self.waiter.lock() = Some(context.waker().clone());
        // It may have been served before the waker was there.
        self.granted().map_or(Poll::Pending, Poll::Ready)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if !self.is_over {
            self.pool.give_up(&self.source, &self.waiter);
        }
    }
}

/// Wakes a thread that is parked.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
