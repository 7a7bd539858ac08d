//! The table of sessions and transfers.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gridhaul_stack::Detail;

use super::session::SessionPart;
use super::transfer::{NewTransfer, TransferPart};
use crate::locks::lock;
use crate::status::{SessionStatus, TransferDirection, TransferStatus};

/// The interval of the samples that rates are computed from.
const INTERVAL: Duration = Duration::from_secs(1);

/// All sessions and transfers. The limits of connections bound both: a session has one transfer at a time.
#[derive(Debug, Default)]
pub(crate) struct Live {
    sessions: Mutex<BTreeMap<u64, Arc<SessionPart>>>,
    transfers: Mutex<BTreeMap<u64, Arc<TransferPart>>>,
    /// The bytes of transfers that have left the table. Changed only while `transfers` is locked.
    moved: Mutex<Moved>,
    numbers: AtomicU64,
}

/// Bytes of transfers since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Moved {
    /// Of files and listings.
    pub(crate) sent: u64,
    pub(crate) received: u64,
}

/// Keeps a session in the table.
#[derive(Debug)]
pub(crate) struct SessionEntry {
    part: Arc<SessionPart>,
    table: Arc<Live>,
}

/// Keeps a transfer in the table.
#[derive(Debug)]
pub(crate) struct TransferEntry {
    part: Arc<TransferPart>,
    table: Arc<Live>,
}

impl Drop for SessionEntry {
    fn drop(&mut self) {
        lock(&self.table.sessions).remove(&self.part.id);
    }
}

impl Drop for TransferEntry {
    fn drop(&mut self) {
        let mut transfers = lock(&self.table.transfers);
        if let Some(part) = transfers.remove(&self.part.id) {
            lock(&self.table.moved).add(&part);
        }
    }
}

impl Deref for SessionEntry {
    type Target = Arc<SessionPart>;

    fn deref(&self) -> &Arc<SessionPart> {
        &self.part
    }
}

impl Deref for TransferEntry {
    type Target = TransferPart;

    fn deref(&self) -> &TransferPart {
        &self.part
    }
}

impl SessionEntry {
    /// Adds a transfer of the session.
    pub(crate) fn transfer(&self, order: NewTransfer) -> TransferEntry {
        let table = &self.table;
        let id = table.numbers.fetch_add(1, Ordering::Relaxed) + 1;
        let part = Arc::new(TransferPart::new(id, &self.part, order));
        lock(&table.transfers).insert(id, Arc::clone(&part));
        TransferEntry {
            part,
            table: Arc::clone(table),
        }
    }
}

impl Live {
    /// Adds a session.
    pub(crate) fn session(self: &Arc<Self>, id: u64, peer: SocketAddr) -> SessionEntry {
        let part = Arc::new(SessionPart::new(id, peer));
        lock(&self.sessions).insert(id, Arc::clone(&part));
        SessionEntry {
            part,
            table: Arc::clone(self),
        }
    }

    /// The bytes that transfers have moved, in progress or not.
    pub(crate) fn moved(&self) -> Moved {
        // Under the lock, a transfer that ends now is counted once.
        let transfers = lock(&self.transfers);
        let mut moved = *lock(&self.moved);
        transfers.values().for_each(|part| moved.add(part));
        moved
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

    /// The events that drivers have counted for running transfers since the last call.
    pub(crate) fn new_events(&self) -> Vec<Detail> {
        let parts = all(&self.transfers);
        parts.iter().flat_map(|part| part.new_events()).collect()
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

impl Moved {
    fn add(&mut self, part: &TransferPart) {
        match part.direction() {
            TransferDirection::Send | TransferDirection::List => self.sent += part.bytes(),
            TransferDirection::Receive => self.received += part.bytes(),
        }
    }
}

/// The entries, so that the lock is held only for the copy.
fn all<T>(table: &Mutex<BTreeMap<u64, Arc<T>>>) -> Vec<Arc<T>> {
    lock(table).values().cloned().collect()
}

#[cfg(test)]
mod tests {
    use gridhaul_protocol::ranges::RangeSet;
    use gridhaul_stack::Details;
    use gridhaul_transfer::{CancelReason, Progress, RunningTransfer, Survey};

    use super::*;
    use crate::locks::lock;
    use crate::status::{Activity, TransferState};
    use crate::transfer_verb::TransferVerb;

    #[derive(Debug, Default)]
    struct Fake {
        bytes: AtomicU64,
        stalls: AtomicU64,
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
            let mut details = Details::default();
            let stalls = self.stalls.load(Ordering::Relaxed);
            details.add(&[Detail::count("stalls", stalls)], &[]);
            Survey {
                total_bytes: Some(1000),
                details,
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
        let transfer = session.transfer(order());
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

    #[test]
    fn bytes_are_counted_while_a_transfer_runs_and_stay_when_it_has_left() {
        let live = Arc::new(Live::default());
        let session = live.session(7, peer());
        let begin = |direction, bytes| {
            let order = NewTransfer {
                direction,
                ..order()
            };
            let entry = session.transfer(order);
            let fake = Arc::new(Fake::default());
            fake.bytes.store(bytes, Ordering::Relaxed);
            let handle: Arc<dyn RunningTransfer> = fake.clone();
            entry.take(&handle);
            (entry, fake)
        };
        let moved = |sent, received| Moved { sent, received };
        let (sending, fake) = begin(TransferDirection::Send, 500);
        let (receiving, _) = begin(TransferDirection::Receive, 30);
        let (listing, _) = begin(TransferDirection::List, 2);
        assert_eq!(live.moved(), moved(502, 30));
        fake.bytes.store(700, Ordering::Relaxed);
        assert_eq!(live.moved(), moved(702, 30));
        drop((sending, receiving, listing));
        assert_eq!(live.moved(), moved(702, 30));
    }

    #[test]
    fn events_of_channels_are_counted_while_a_transfer_runs_and_once() {
        let live = Arc::new(Live::default());
        let session = live.session(7, peer());
        let entry = session.transfer(order());
        let fake = Arc::new(Fake::default());
        let handle: Arc<dyn RunningTransfer> = fake.clone();
        entry.take(&handle);
        assert!(live.new_events().is_empty());
        fake.stalls.store(2, Ordering::Relaxed);
        assert_eq!(live.transfers()[0].stalls, 2);
        let stalls = |count| [Detail::count("stalls", count)];
        assert_eq!(live.new_events(), stalls(2));
        assert!(live.new_events().is_empty());
        fake.stalls.store(3, Ordering::Relaxed);
        assert_eq!(entry.stop_counting(), stalls(2));
        // The finished transfer tells the rest.
        assert!(live.new_events().is_empty());
    }

    #[tokio::test]
    async fn a_transfer_tells_its_progress_and_is_ended() {
        let live = Arc::new(Live::default());
        let session = live.session(7, peer());
        let entry = session.transfer(order());
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
        let entry = session.transfer(order());
        assert!(live.end_transfer(1));
        let fake = Arc::new(Fake::default());
        let handle: Arc<dyn RunningTransfer> = fake.clone();
        entry.take(&handle);
        assert_eq!(*lock(&fake.cancelled), [CancelReason::Administrator]);
        assert!(live.end_session(7));
        session.ended().await;
    }
}
