//! The limit of running transfers, and their queue.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use gridhaul_shares::{Allocation, Pool, Source};

/// Bounds the running transfers. Each client has a fair share of them, and others wait.
#[derive(Debug)]
pub(crate) struct TransferLimit {
    /// This number may run even while processors are short, if the limit allows it.
    always: usize,
    bounds: Mutex<Bounds>,
    pool: Pool,
}

#[derive(Debug)]
struct Bounds {
    /// The limit.
    most: usize,
    /// The bound while processors are short; the limit or more while they are not.
    at_once: usize,
}

/// With this number of transfers, each processor always has some that do not wait for the network.
const ALWAYS_PER_PROCESSOR: usize = 32;

/// From this lateness of the runtime on, fewer transfers may run.
const LATE: Duration = Duration::from_millis(50);

/// Up to this lateness, many more of them may.
const IN_TIME: Duration = Duration::from_millis(10);

impl TransferLimit {
    pub(crate) fn new(most: usize) -> Arc<Self> {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        Self::with_always(most, ALWAYS_PER_PROCESSOR * processors)
    }

    fn with_always(most: usize, always: usize) -> Arc<Self> {
        let bounds = Bounds {
            most,
            at_once: usize::MAX,
        };
        Arc::new(Self {
            always,
            bounds: Mutex::new(bounds),
            pool: Pool::new(most),
        })
    }

    /// Sets the limit; running transfers continue.
    pub(crate) fn set(&self, most: usize) {
        self.change(|bounds| bounds.most = most);
    }

    /// Whether more transfers run or wait than may always run.
    pub(crate) fn may_be_too_many(&self) -> bool {
        let load = self.pool.load();
        load.held > self.always || load.waiting > 0
    }

    /// Lowers the bound while the runtime is late, and raises it when it is in time again: quickly, since some transfers may
    /// wait for others in the queue, such as the two ends of a copy.
    pub(crate) fn note_lateness(&self, lateness: Duration) {
        self.change(|bounds| {
            if lateness >= LATE {
                // A single client runs two thirds or three quarters of the bound, so the bound first falls to the number of
                // running transfers.
                let running = self.pool.load().held;
                let room = running.saturating_add(running.div_ceil(2));
                let bound = room.min(bounds.at_once);
                bounds.at_once = (bound - bound.div_ceil(4)).max(self.always);
            } else {
                let more = if lateness <= IN_TIME {
                    bounds.at_once / 4 + 1
                } else {
                    1
                };
                bounds.at_once = bounds.at_once.saturating_add(more);
            }
        });
    }

    /// The numbers of running and of waiting transfers.
    pub(crate) fn count(&self) -> (usize, usize) {
        let load = self.pool.load();
        (load.held, load.waiting)
    }

    /// Takes a place for a transfer of this client.
    pub(crate) fn enter(&self, source: &Source) -> Allocation {
        self.pool.take(source, 1)
    }

    fn change(&self, change: impl FnOnce(&mut Bounds)) {
        // Both numbers are complete at every unlock, so a panic elsewhere leaves no partial state.
        let mut bounds = self.bounds.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut bounds);
        self.pool.set_capacity(bounds.most.min(bounds.at_once));
    }
}

#[cfg(test)]
mod tests {
    use gridhaul_shares::{Grant, Waiting};

    use super::*;

    /// Clients of different networks and accounts, which hold one transfer each.
    fn source(number: u32) -> Source {
        let address = std::net::Ipv4Addr::from(0x0a00_0000 + number);
        Source::at(address.into()).with_account(number.to_string())
    }

    fn now(allocation: Allocation) -> Grant {
        match allocation {
            Allocation::Granted(permit) => permit,
            Allocation::Queued(_) => panic!("has to wait"),
        }
    }

    fn later(allocation: Allocation) -> Waiting {
        match allocation {
            Allocation::Granted(_) => panic!("need not wait"),
            Allocation::Queued(waiting) => waiting,
        }
    }

    fn enter_all(limit: &TransferLimit, clients: std::ops::Range<u32>) -> Vec<Grant> {
        let turns = clients.map(|number| limit.enter(&source(number)));
        turns.map(now).collect()
    }

    #[test]
    fn transfers_of_one_client_leave_room_for_others() {
        let limit = TransferLimit::new(500);
        let mut unread = Vec::new();
        let mut waiting = Vec::new();
        for _ in 0..500 {
            match limit.enter(&source(1)) {
                Allocation::Granted(permit) => unread.push(permit),
                Allocation::Queued(place) => waiting.push(place),
            }
        }
        assert_eq!(limit.count(), (375, 125));
        let _other = now(limit.enter(&source(2)));
        drop((unread, waiting));
    }

    #[test]
    fn a_higher_limit_lets_those_in_who_wait() {
        let limit = TransferLimit::new(1);
        let _first = now(limit.enter(&source(1)));
        let second = later(limit.enter(&source(2)));
        limit.set(2);
        assert_eq!(limit.count(), (2, 0));
        drop(second);
    }

    #[test]
    fn fewer_transfers_run_while_the_runtime_is_late() {
        let limit = TransferLimit::with_always(100, 2);
        let mut running = enter_all(&limit, 0..8);
        limit.note_lateness(LATE);
        limit.note_lateness(LATE);
        let next = later(limit.enter(&source(8)));
        running.truncate(6);
        assert_eq!(limit.count(), (6, 1), "three quarters of eight run");
        running.truncate(5);
        assert_eq!(limit.count(), (6, 0));
        for _ in 0..100 {
            limit.note_lateness(LATE);
        }
        drop((running, next));
        let _always = enter_all(&limit, 0..2);
        drop(later(limit.enter(&source(2))));
    }

    #[test]
    fn a_runtime_in_time_soon_lets_everybody_in() {
        let limit = TransferLimit::with_always(100, 2);
        let _running = enter_all(&limit, 0..3);
        for _ in 0..3 {
            limit.note_lateness(LATE);
        }
        let waiting: Vec<_> = (3..153).map(|n| later(limit.enter(&source(n)))).collect();
        assert_eq!(limit.count(), (3, 150));
        // Neither late nor in time.
        limit.note_lateness((LATE + IN_TIME) / 2);
        limit.note_lateness((LATE + IN_TIME) / 2);
        assert_eq!(limit.count(), (4, 149));
        for _ in 0..20 {
            limit.note_lateness(IN_TIME);
        }
        assert_eq!(limit.count(), (100, 53), "what max-transfers allows");
        drop(waiting);
    }
}
