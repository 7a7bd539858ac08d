//! A fair semaphore, for the handshakes of one transfer.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, Thread};
use std::time::Duration;

use gridhaul_stack::{Cancel, ChannelError};

use crate::sync::lock;

/// A semaphore that serves requests in FIFO order.
///
/// A thread that returns permits hands them to the next waiters and wakes only these, so the cost does not
/// grow with the length of the queue.
#[derive(Debug)]
pub(crate) struct Semaphore {
    total: usize,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    free: usize,
    waiting: VecDeque<Arc<Waiter>>,
}

/// A waiter in the queue.
#[derive(Debug)]
struct Waiter {
    count: usize,
    /// The waiter has its permits; set under the lock.
    is_served: AtomicBool,
    thread: Thread,
}

/// How often a waiting thread checks for cancellation.
const CANCEL_CHECK: Duration = Duration::from_millis(50);

impl Semaphore {
    pub(crate) fn new(total: usize) -> Arc<Self> {
        let total = total.max(1);
        let state = State {
            free: total,
            waiting: VecDeque::new(),
        };
        Arc::new(Self {
            total,
            state: Mutex::new(state),
        })
    }

    /// Waits for `count` permits together, or for all of them if there are fewer.
    pub(crate) fn take(
        self: &Arc<Self>,
        count: usize,
        cancel: &Cancel,
    ) -> Result<Permit, ChannelError> {
        let count = count.min(self.total);
        let mut state = lock(&self.state);
        if state.take(count) {
            return Ok(self.permit(count));
        }
        let waiter = Arc::new(Waiter {
            count,
            is_served: AtomicBool::new(false),
            thread: thread::current(),
        });
        state.waiting.push_back(waiter.clone());
        drop(state);
        while !waiter.is_served.load(Ordering::Acquire) {
            if cancel.is_cancelled() {
                self.leave(&waiter);
                return Err(ChannelError::Cancelled);
            }
            thread::park_timeout(CANCEL_CHECK);
        }
        Ok(self.permit(count))
    }

    /// Takes up to `count` free permits, or none if there is a waiter; never waits.
    #[cfg(test)]
    pub(crate) fn take_free(self: &Arc<Self>, count: usize) -> Permit {
        let mut state = lock(&self.state);
        let count = count.min(state.free);
        let count = if state.take(count) { count } else { 0 };
        self.permit(count)
    }

    /// Leaves the queue, and returns the permits if they were granted meanwhile.
    fn leave(&self, waiter: &Arc<Waiter>) {
        let mut state = lock(&self.state);
        if waiter.is_served.load(Ordering::Acquire) {
            state.free += waiter.count;
        } else {
            state.waiting.retain(|other| !Arc::ptr_eq(other, waiter));
        }
        state.serve();
    }

    fn permit(self: &Arc<Self>, count: usize) -> Permit {
        Permit {
            count,
            semaphore: self.clone(),
        }
    }

    /// The length of the queue.
    #[cfg(test)]
    fn waiting(&self) -> usize {
        lock(&self.state).waiting.len()
    }
}

impl State {
    /// Takes free permits, unless another thread is waiting.
    fn take(&mut self, count: usize) -> bool {
        let is_free = self.waiting.is_empty() && count <= self.free;
        if is_free {
            self.free -= count;
        }
        is_free
    }

    /// Hands free permits to the first waiters.
    fn serve(&mut self) {
        while let Some(waiter) = self.waiting.pop_front_if(|next| next.count <= self.free) {
            self.free -= waiter.count;
            waiter.is_served.store(true, Ordering::Release);
            waiter.thread.unpark();
        }
    }
}

/// A number of permits; returned when it is dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    count: usize,
    semaphore: Arc<Semaphore>,
}

impl Permit {
    /// How many there are.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.count
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut state = lock(&self.semaphore.state);
        state.free += self.count;
        state.serve();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn wait_until_queued(semaphore: &Semaphore, count: usize) {
        while semaphore.waiting() < count {
            thread::yield_now();
        }
    }

    #[test]
    fn requests_are_served_in_order() {
        let semaphore = Semaphore::new(1);
        let held = semaphore.take(1, &Cancel::new()).expect("free");
        assert_eq!(semaphore.take_free(1).count(), 0);
        let (order, seen) = mpsc::channel();
        let mut waiters = Vec::new();
        for name in 0..4 {
            assert_eq!(semaphore.waiting(), name);
            let (semaphore_of_waiter, order) = (semaphore.clone(), order.clone());
            waiters.push(thread::spawn(move || {
                let permit = semaphore_of_waiter.take(1, &Cancel::new());
                order.send(name).expect("the test waits");
                drop(permit);
            }));
            wait_until_queued(&semaphore, name + 1);
        }
        drop(held);
        for waiter in waiters {
            waiter.join().expect("no panic");
        }
        assert_eq!(seen.try_iter().collect::<Vec<_>>(), [0, 1, 2, 3]);
        assert_eq!(semaphore.take_free(1).count(), 1);
    }

    #[test]
    fn a_cancelled_waiter_does_not_block_the_next() {
        let semaphore = Semaphore::new(2);
        let held = semaphore.take(1, &Cancel::new()).expect("free");
        let cancel = Cancel::new();
        let waiter = thread::spawn({
            let (semaphore, cancel) = (semaphore.clone(), cancel.clone());
            move || semaphore.take(2, &cancel).map(drop)
        });
        wait_until_queued(&semaphore, 1);
        cancel.cancel();
        let result = waiter.join().expect("no panic");
        assert!(matches!(result, Err(ChannelError::Cancelled)));
        drop(held);
        assert_eq!(semaphore.take_free(9).count(), 2);
    }

    #[test]
    fn a_request_behind_a_cancelled_one_is_served() {
        let semaphore = Semaphore::new(2);
        let held = semaphore.take(1, &Cancel::new()).expect("free");
        let cancel = Cancel::new();
        let wants_both = thread::spawn({
            let (semaphore, cancel) = (semaphore.clone(), cancel.clone());
            move || semaphore.take(2, &cancel).is_err()
        });
        wait_until_queued(&semaphore, 1);
        let wants_one = thread::spawn({
            let semaphore = semaphore.clone();
            move || semaphore.take(1, &Cancel::new()).is_ok()
        });
        wait_until_queued(&semaphore, 2);
        cancel.cancel();
        assert!(wants_both.join().expect("no panic"));
        assert!(wants_one.join().expect("no panic"));
        drop(held);
        assert_eq!(semaphore.take_free(9).count(), 2);
    }

    #[test]
    fn a_request_for_more_than_the_total_gets_all() {
        let semaphore = Semaphore::new(3);
        let all = semaphore.take(64, &Cancel::new()).expect("free");
        assert_eq!(all.count(), 3);
        assert_eq!(semaphore.take_free(1).count(), 0);
    }
}
