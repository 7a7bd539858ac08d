//! The movers of one direction, dealt out in fair shares.
//!
//! Sending and receiving have movers of their own: a copy from one gridhaul session to another needs one of each, and
//! could otherwise wait for itself. A receiver asks for its mover when it has a connection, not while it waits for
//! one, so a transfer that holds a mover has a connected peer. A transfer waits once, for as many as there are
//! then.

use gridhaul_shares::{Allocation, Grant, Pool, Source};
use gridhaul_stack::{Cancel, ChannelError};

use crate::node::MoverLoad;

/// A bounded number of movers.
#[derive(Debug)]
pub(crate) struct Movers(Pool);

/// The right to run so many movers; goes back when it is dropped.
#[derive(Debug)]
pub(crate) struct MoverPermit(Grant);

impl Movers {
    pub(crate) fn new(total: usize) -> Self {
        Self(Pool::new(total.max(1)))
    }

    /// Up to `count` movers, as many as the client may have now; waits while that is none. `queued` is told how many
    /// wait before, if any waiting is needed.
    pub(crate) fn take(
        &self,
        source: &Source,
        count: usize,
        cancel: &Cancel,
        queued: &dyn Fn(usize),
    ) -> Result<MoverPermit, ChannelError> {
        match self.0.take(source, count) {
            Allocation::Granted(grant) => Ok(MoverPermit(grant)),
            Allocation::Queued(waiting) => {
                queued(waiting.ahead());
                let waited = waiting.wait(None, || cancel.is_cancelled());
                waited.map(MoverPermit).map_err(|_| ChannelError::Cancelled)
            }
        }
    }

    /// Up to `count` movers that the client may have now; never waits.
    pub(crate) fn take_free(&self, source: &Source, count: usize) -> MoverPermit {
        MoverPermit(self.0.take_some(source, count))
    }

    /// How many are given out, and who waits.
    pub(crate) fn load(&self) -> MoverLoad {
        let load = self.0.load();
        MoverLoad {
            busy: load.held,
            limit: load.capacity,
            awaited: load.waiting,
        }
    }
}

impl MoverPermit {
    /// How many movers may run.
    pub(crate) fn count(&self) -> usize {
        self.0.units()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn movers_of_one_client_leave_room_for_others() {
        let source = |host| Source::at([192, 0, 2, host].into()).with_account(host.to_string());
        let movers = Movers::new(16);
        let held: Vec<_> = (0..12).map(|_| movers.take_free(&source(1), 1)).collect();
        assert!(held.iter().all(|permit| permit.count() == 1));
        assert_eq!(movers.take_free(&source(1), 1).count(), 0);
        let cancel = Cancel::new();
        let result = movers.take(&source(1), 1, &cancel, &|_| cancel.cancel());
        assert!(matches!(result, Err(ChannelError::Cancelled)));
        let other = movers.take(&source(2), 1, &Cancel::new(), &|_| {});
        assert_eq!(other.expect("room is left").count(), 1);
    }
}
