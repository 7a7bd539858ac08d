//! The table of sessions and transfers.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::session::{SessionEntry, SessionPart};
use super::transfer::{NewTransfer, TransferEntry, TransferPart};
use crate::status::{SessionStatus, TransferStatus};

/// The interval of the samples that rates are computed from.
const INTERVAL: Duration = Duration::from_secs(1);

/// All sessions and transfers. The limits of connections bound both: a session has one transfer at a time.
#[derive(Debug, Default)]
pub(crate) struct Live {
    sessions: Mutex<BTreeMap<u64, Arc<SessionPart>>>,
    transfers: Mutex<BTreeMap<u64, Arc<TransferPart>>>,
    numbers: AtomicU64,
}

impl Live {
    /// Adds a session.
    pub(crate) fn session(self: &Arc<Self>, id: u64, peer: SocketAddr) -> SessionEntry {
        let entry = SessionEntry::new(self, id, peer);
        lock(&self.sessions).insert(id, Arc::clone(entry.part()));
        entry
    }

    /// Adds a transfer of a session.
    pub(crate) fn transfer(
        self: &Arc<Self>,
        session: &Arc<SessionPart>,
        order: NewTransfer,
    ) -> TransferEntry {
        let id = self.numbers.fetch_add(1, Ordering::Relaxed) + 1;
        let (entry, part) = TransferEntry::new(self, id, session, order);
        lock(&self.transfers).insert(id, part);
        entry
    }

    pub(super) fn remove_session(&self, id: u64) {
        lock(&self.sessions).remove(&id);
    }

    pub(super) fn remove_transfer(&self, id: u64) {
        lock(&self.transfers).remove(&id);
    }

    /// The sessions, in the order of their numbers.
    pub(crate) fn sessions(&self) -> Vec<SessionStatus> {
        let parts = all(&self.sessions);
        parts.iter().map(|part| part.status()).collect()
    }

    /// The transfers, oldest first.
    pub(crate) fn transfers(&self) -> Vec<TransferStatus> {
        let parts = all(&self.transfers);
        parts.iter().map(|part| part.status()).collect()
    }

    /// Asks a session to end. Returns whether there is one of this number.
    pub(crate) fn end_session(&self, id: u64) -> bool {
        let found = lock(&self.sessions).get(&id).cloned();
        found.inspect(|part| part.end()).is_some()
    }

    /// Ends a transfer. Returns whether there is one of this number.
    pub(crate) fn end_transfer(&self, id: u64) -> bool {
        let found = lock(&self.transfers).get(&id).cloned();
        found.inspect(|part| part.end()).is_some()
    }

    /// Takes samples for the rates. Never ends.
    pub(crate) async fn watch(self: Arc<Self>) {
        let mut ticks = tokio::time::interval(INTERVAL);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let now = Instant::now();
            for part in all(&self.transfers) {
                part.sample(now);
            }
        }
    }
}

/// The entries, so that the lock is held only for the copy.
fn all<T>(table: &Mutex<BTreeMap<u64, Arc<T>>>) -> Vec<Arc<T>> {
    lock(table).values().cloned().collect()
}

/// Entries are added and removed as a whole, so the table after a panic is usable.
fn lock<T>(table: &Mutex<T>) -> MutexGuard<'_, T> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use gridhaul_protocol::ranges::RangeSet;
    use gridhaul_transfer::{CancelReason, Progress, RunningTransfer, Survey};

    use super::*;
    use crate::status::{Activity, TransferDirection, TransferState};
    use crate::transfer_verb::TransferVerb;

    #[derive(Debug, Default)]
    struct Fake {
        bytes: AtomicU64,
        cancelled: Mutex<Vec<CancelReason>>,
    }

    impl RunningTransfer for Fake {
        fn cancel(&self, reason: CancelReason) {
            lock(&self.cancelled).push(reason);
        }

        fn progress(&self) -> Progress {
            let stripes = vec![self.bytes.load(Ordering::Relaxed)];
            Progress { stripes }
        }

        fn survey(&self) -> Survey {
            Survey {
                total_bytes: Some(1000),
                ..Survey::default()
            }
        }

        fn is_settling(&self) -> bool {
            false
        }

        fn take_received(&self) -> RangeSet {
            RangeSet::new()
        }
    }

    fn peer() -> SocketAddr {
        "[::ffff:192.0.2.1]:40000".parse().expect("an address")
    }

    fn order() -> NewTransfer {
        NewTransfer {
            verb: TransferVerb::Retr,
            direction: TransferDirection::Send,
            path: "/f".to_owned(),
            stack: "tcp".to_owned(),
            task_id: None,
        }
    }

    #[test]
    fn entries_leave_the_table_with_their_owners() {
        let live = Arc::new(Live::default());
        let session = live.session(7, peer());
        let transfer = live.transfer(session.part(), order());
        let sessions = live.sessions();
        assert_eq!(sessions.len(), 1);
        assert_eq!(sessions[0].peer, "192.0.2.1:40000");
        assert_eq!(sessions[0].activity, Activity::Idle);
        assert_eq!(live.transfers()[0].session, 7);
        drop(transfer);
        drop(session);
        assert!(live.sessions().is_empty() && live.transfers().is_empty());
        assert!(!live.end_session(7) && !live.end_transfer(1));
    }

    #[tokio::test]
    async fn a_transfer_tells_its_progress_and_is_ended() {
        let live = Arc::new(Live::default());
        let session = live.session(7, peer());
        let entry = live.transfer(session.part(), order());
        assert_eq!(live.transfers()[0].state, TransferState::Waiting);
        let fake = Arc::new(Fake::default());
        let handle: Arc<dyn RunningTransfer> = fake.clone();
        entry.take(&handle);
        entry.start();
        let part = Arc::clone(&all(&live.transfers)[0]);
        let long_ago = Instant::now().checked_sub(Duration::from_secs(2));
        part.sample(long_ago.expect("the machine runs longer"));
        fake.bytes.store(500, Ordering::Relaxed);
        let told = &live.transfers()[0];
        assert_eq!((told.bytes, told.total_bytes), (500, Some(1000)));
        assert_eq!(told.state, TransferState::Running);
        assert!((200.0..=250.0).contains(&told.bytes_per_second), "{told:?}");
        let left = told.remaining_seconds.expect("known");
        assert!((2.0..=2.5).contains(&left), "{left}");
        assert!(live.end_transfer(told.id));
        assert_eq!(*lock(&fake.cancelled), [CancelReason::Administrator]);
        entry.ended().await;
    }

    #[tokio::test]
    async fn a_transfer_that_was_ended_while_it_waited_does_not_begin() {
        let live = Arc::new(Live::default());
        let session = live.session(7, peer());
        let entry = live.transfer(session.part(), order());
        assert!(live.end_transfer(1));
        let fake = Arc::new(Fake::default());
        let handle: Arc<dyn RunningTransfer> = fake.clone();
        entry.take(&handle);
        assert_eq!(*lock(&fake.cancelled), [CancelReason::Administrator]);
        assert!(live.end_session(7));
        session.ended().await;
    }
}
