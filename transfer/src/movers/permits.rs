//! The permits that bound the number of movers.
//!
//! Sending and receiving have permits of their own: a copy from one gridhaul session to another needs
//! one of each, and could otherwise wait for itself. A receiver asks for its permit when it has a
//! connection, not while it waits for one, so whoever holds a permit has a peer that moves. A transfer
//! waits for permits once: it asks for all that it cannot do without at the same time.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gridhaul_stack::{Cancel, ChannelError};

/// A bounded number of permits, given out in the order of asking.
#[derive(Debug)]
pub(crate) struct Permits {
    total: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    free: usize,
    waiting: VecDeque<u64>,
    next_ticket: u64,
}

/// How often a waiting transfer looks whether it was cancelled.
const CANCEL_CHECK: Duration = Duration::from_millis(50);

impl Permits {
    pub(crate) fn new(total: usize) -> Arc<Self> {
        let total = total.max(1);
        let state = State {
            free: total,
            waiting: VecDeque::new(),
            next_ticket: 0,
        };
        Arc::new(Self {
            total,
            state: Mutex::new(state),
            changed: Condvar::new(),
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
        if state.free < count || !state.waiting.is_empty() {
            let ahead = state.waiting.len();
            let ticket = state.next_ticket;
            state.next_ticket += 1;
            state.waiting.push_back(ticket);
            drop(state);
            queued(ahead);
            state = self.lock();
            while state.free < count || state.waiting.front() != Some(&ticket) {
                if cancel.is_cancelled() {
                    state.waiting.retain(|&waiting| waiting != ticket);
                    self.changed.notify_all();
                    return Err(ChannelError::Cancelled);
                }
                (state, _) = self
                    .changed
                    .wait_timeout(state, CANCEL_CHECK)
                    .unwrap_or_else(PoisonError::into_inner);
            }
            state.waiting.pop_front();
            self.changed.notify_all();
        }
        state.free -= count;
        Ok(Permit {
            count,
            permits: self.clone(),
        })
    }

    /// Up to `count` permits that are free and that nobody waits for; never waits.
    pub(crate) fn take_free(self: &Arc<Self>, count: usize) -> Permit {
        let mut state = self.lock();
        let count = if state.waiting.is_empty() {
            count.min(state.free)
        } else {
            0
        };
        state.free -= count;
        Permit {
            count,
            permits: self.clone(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The right to run so many movers; goes back when it is dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    count: usize,
    permits: Arc<Permits>,
}

impl Permit {
    /// How many movers may run.
    pub(crate) fn count(&self) -> usize {
        self.count
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut state = self.permits.lock();
        state.free += self.count;
        let wanted = !state.waiting.is_empty();
        drop(state);
        if wanted {
            self.permits.changed.notify_all();
        }
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
    fn who_wants_more_than_there_are_gets_all() {
        let permits = Permits::new(3);
        let all = permits.take(64, &Cancel::new(), &|_| {}).expect("free");
        assert_eq!(all.count(), 3);
        assert_eq!(permits.take_free(1).count(), 0);
    }
}
