//! Permits in the order of asking, for the handshakes of one transfer.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, Thread};
use std::time::Duration;

use gridhaul_stack::{Cancel, ChannelError};

use crate::sync::lock;

/// A bounded number of permits, given out in the order of asking.
///
/// A thread that returns permits hands them to the next waiters, and wakes only these: with a thousand
/// in the queue, each step of it costs as much as with two.
#[derive(Debug)]
pub(crate) struct Permits {
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
    /// The permits are this waiter's; set under the lock.
    is_served: AtomicBool,
    thread: Thread,
}

/// How often a waiting transfer looks whether it was cancelled.
const CANCEL_CHECK: Duration = Duration::from_millis(50);

impl Permits {
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

    /// Waits for `count` permits together; one that wants more than there are gets all of them.
    /// `queued` is told how many wait before, if any waiting is needed.
    pub(crate) fn take(
        self: &Arc<Self>,
        count: usize,
        cancel: &Cancel,
        queued: &dyn Fn(usize),
    ) -> Result<Permit, ChannelError> {
        let count = count.min(self.total);
        let mut state = self.lock();
        if state.take(count) {
            return Ok(self.permit(count));
        }
        let waiter = Arc::new(Waiter {
            count,
            is_served: AtomicBool::new(false),
            thread: thread::current(),
        });
        let ahead = state.waiting.len();
        state.waiting.push_back(waiter.clone());
        drop(state);
        queued(ahead);
        while !waiter.is_served.load(Ordering::Acquire) {
            if cancel.is_cancelled() {
                self.leave(&waiter);
                return Err(ChannelError::Cancelled);
            }
            thread::park_timeout(CANCEL_CHECK);
        }
        Ok(self.permit(count))
    }

    /// Up to `count` free permits, if there is no waiter; never waits.
    #[cfg(test)]
    pub(crate) fn take_free(self: &Arc<Self>, count: usize) -> Permit {
        let mut state = self.lock();
        let count = count.min(state.free);
        let count = if state.take(count) { count } else { 0 };
        self.permit(count)
    }

    /// Gives up a place in the queue, or the permits that came at the last moment.
    fn leave(&self, waiter: &Arc<Waiter>) {
        let mut state = self.lock();
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
            permits: self.clone(),
        }
    }

    /// How many wait.
    #[cfg(test)]
    fn awaited(&self) -> usize {
        self.lock().waiting.len()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl State {
    /// Takes free permits, unless there is an earlier waiter.
    fn take(&mut self, count: usize) -> bool {
        let is_free = self.waiting.is_empty() && count <= self.free;
        if is_free {
            self.free -= count;
        }
        is_free
    }

    /// Hands free permits to those who have waited longest.
    fn serve(&mut self) {
        while let Some(waiter) = self.waiting.pop_front_if(|next| next.count <= self.free) {
            self.free -= waiter.count;
            waiter.is_served.store(true, Ordering::Release);
            waiter.thread.unpark();
        }
    }
}

/// The right to run so many workers; goes back when it is dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    count: usize,
    permits: Arc<Permits>,
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
        let mut state = self.permits.lock();
        state.free += self.count;
        state.serve();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    #[test]
    fn permits_are_given_in_the_order_of_asking() {
        let permits = Permits::new(1);
        let held = permits.take(1, &Cancel::new(), &|_| {}).expect("free");
        assert_eq!(permits.take_free(1).count(), 0);
        let (order, seen) = mpsc::channel();
        let mut waiters = Vec::new();
        for name in 0..4 {
            let (queued, wait) = mpsc::channel();
            let (permits, order) = (permits.clone(), order.clone());
            waiters.push(thread::spawn(move || {
                let permit = permits.take(1, &Cancel::new(), &|ahead| {
                    queued.send(ahead).expect("the test waits");
                });
                order.send(name).expect("the test waits");
                drop(permit);
            }));
            assert_eq!(wait.recv().expect("it queues"), name);
        }
        drop(held);
        for waiter in waiters {
            waiter.join().expect("no panic");
        }
        assert_eq!(seen.try_iter().collect::<Vec<_>>(), [0, 1, 2, 3]);
        assert_eq!(permits.take_free(1).count(), 1);
    }

    #[test]
    fn a_cancelled_waiter_does_not_hold_up_the_next() {
        let permits = Permits::new(2);
        let held = permits.take(1, &Cancel::new(), &|_| {}).expect("free");
        let cancel = Cancel::new();
        let result = permits.take(2, &cancel, &|_| cancel.cancel());
        assert!(matches!(result, Err(ChannelError::Cancelled)));
        drop(held);
        assert_eq!(permits.take_free(9).count(), 2);
    }

    #[test]
    fn who_leaves_lets_those_behind_through() {
        let permits = Permits::new(2);
        let held = permits.take(1, &Cancel::new(), &|_| {}).expect("free");
        let cancel = Cancel::new();
        let wants_both = thread::spawn({
            let (permits, cancel) = (permits.clone(), cancel.clone());
            move || permits.take(2, &cancel, &|_| {}).is_err()
        });
        while permits.awaited() < 1 {
            thread::yield_now();
        }
        let wants_one = thread::spawn({
            let permits = permits.clone();
            move || permits.take(1, &Cancel::new(), &|_| {}).is_ok()
        });
        while permits.awaited() < 2 {
            thread::yield_now();
        }
        cancel.cancel();
        assert!(wants_both.join().expect("no panic"));
        assert!(wants_one.join().expect("no panic"));
        drop(held);
        assert_eq!(permits.take_free(9).count(), 2);
    }

    #[test]
    fn who_wants_more_than_there_are_gets_all() {
        let permits = Permits::new(3);
        let all = permits.take(64, &Cancel::new(), &|_| {}).expect("free");
        assert_eq!(all.count(), 3);
        assert_eq!(permits.take_free(1).count(), 0);
    }
}
