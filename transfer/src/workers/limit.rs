//! The limit of workers for one direction, with fair shares.
//!
//! Sending and receiving have separate limits: a copy between two sessions of the same server needs a worker for each,
//! and could otherwise wait for itself. A receiver takes its permit when a connection is open, not while it waits
//! for one, so a transfer with a permit has a connected peer. A transfer queues once; it gets as many workers as are
//! free then.

use gridhaul_shares::{Allocation, Grant, Pool, Source};
use gridhaul_stack::{Cancel, ChannelError};

use crate::node::WorkerLoad;

/// A bounded number of workers.
#[derive(Debug)]
pub(crate) struct WorkerLimit(Pool);

/// The permission to run a number of workers; returned when it is dropped.
#[derive(Debug)]
pub(crate) struct WorkerPermit(Grant);

impl WorkerLimit {
    pub(crate) fn new(total: usize) -> Self {
        Self(Pool::new(total.max(1)))
    }

    /// Takes up to `count` workers, as many as the client may have now; waits while it may have none. If it has to wait,
    /// it calls `queued` first, with the number of transfers ahead.
    pub(crate) fn take(
        &self,
        source: &Source,
        count: usize,
        cancel: &Cancel,
        queued: &dyn Fn(usize),
    ) -> Result<WorkerPermit, ChannelError> {
        match self.0.take(source, count) {
            Allocation::Granted(grant) => Ok(WorkerPermit(grant)),
            Allocation::Queued(waiting) => {
                queued(waiting.ahead());
                let waited = waiting.wait(None, || cancel.is_cancelled());
                waited
                    .map(WorkerPermit)
                    .map_err(|_| ChannelError::Cancelled)
            }
        }
    }

    /// Takes up to `count` workers that the client may have now, possibly none; never waits.
    pub(crate) fn take_free(&self, source: &Source, count: usize) -> WorkerPermit {
        WorkerPermit(self.0.take_some(source, count))
    }

    /// Permits in use, and transfers that wait for some.
    pub(crate) fn load(&self) -> WorkerLoad {
        let load = self.0.load();
        WorkerLoad {
            busy: load.held,
            limit: load.capacity,
            awaited: load.waiting,
        }
    }
}

impl WorkerPermit {
    /// How many workers may run.
    pub(crate) fn count(&self) -> usize {
        self.0.units()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_of_one_client_leave_room_for_others() {
        let source = |host| Source::at([192, 0, 2, host].into()).with_account(host.to_string());
        let workers = WorkerLimit::new(16);
        let held: Vec<_> = (0..12).map(|_| workers.take_free(&source(1), 1)).collect();
        assert!(held.iter().all(|permit| permit.count() == 1));
        assert_eq!(workers.take_free(&source(1), 1).count(), 0);
        let cancel = Cancel::new();
        let result = workers.take(&source(1), 1, &cancel, &|_| cancel.cancel());
        assert!(matches!(result, Err(ChannelError::Cancelled)));
        let other = workers.take(&source(2), 1, &Cancel::new(), &|_| {});
        assert_eq!(other.expect("room is left").count(), 1);
    }
}
