//! The members of a cluster: their state, and what the cluster has on each of them.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use gridhaul_transfer::{DataNode, NodeLoad};

use super::meter::Meter;
use crate::sync::lock;

/// A node of a cluster.
#[derive(Debug, Clone)]
pub struct Member {
    /// Its name for administrators, unique in the cluster.
    pub name: String,
    /// The node.
    pub node: Arc<dyn DataNode>,
    /// Whether it can be used.
    pub state: StateHandle,
}

/// Whether a member can be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemberState {
    /// It gets sessions and transfers.
    Up,
    /// It finishes its transfers and gets no new ones.
    Draining,
    /// It cannot be reached.
    Down {
        /// Since when.
        since: SystemTime,
        /// Why, for administrators and clients.
        reason: String,
    },
}

/// The state of a member, shared by the cluster and the connection to the member.
#[derive(Debug, Clone)]
pub struct StateHandle(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<MemberState>,
    losses: AtomicU64,
}

impl StateHandle {
    /// A member that has not answered yet.
    pub fn unknown() -> Self {
        Self::new(MemberState::Down {
            since: SystemTime::now(),
            reason: "it has not answered yet".to_owned(),
        })
    }

    /// A member in this state.
    pub fn new(state: MemberState) -> Self {
        Self(Arc::new(Shared {
            state: Mutex::new(state),
            losses: AtomicU64::new(0),
        }))
    }

    /// The state.
    pub fn get(&self) -> MemberState {
        lock(&self.0.state).clone()
    }

    /// Changes the state. Sessions that were attached before [`MemberState::Down`] attach anew when the member is up again.
    pub fn set(&self, state: MemberState) {
        let mut present = lock(&self.0.state);
        let is_lost = matches!(state, MemberState::Down { .. });
        if is_lost && !matches!(*present, MemberState::Down { .. }) {
            self.0.losses.fetch_add(1, Ordering::AcqRel);
        }
        *present = state;
    }

    fn is_up(&self) -> bool {
        matches!(*lock(&self.0.state), MemberState::Up)
    }

    pub(super) fn is_down(&self) -> bool {
        matches!(*lock(&self.0.state), MemberState::Down { .. })
    }

    /// How often the member has gone down.
    pub(super) fn losses(&self) -> u64 {
        self.0.losses.load(Ordering::Acquire)
    }
}

/// What is known of a member, for administrators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberReport {
    /// Its name.
    pub name: String,
    /// Its state.
    pub state: MemberState,
    /// Its load, as it reports it.
    pub load: NodeLoad,
    /// Sessions of this cluster whose storage calls it carries out.
    pub sessions: usize,
    /// Transfers of this cluster, and data ports that wait for one.
    pub transfers: usize,
    /// Bytes per second that transfers of this cluster have recently moved there.
    pub bytes_per_second: u64,
}

/// A member with what the cluster has there.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) name: String,
    pub(super) node: Arc<dyn DataNode>,
    pub(super) state: StateHandle,
    pub(super) meter: Arc<Meter>,
    removed: AtomicBool,
    sessions: AtomicUsize,
    transfers: AtomicUsize,
}

impl Record {
    pub(super) fn new(member: Member) -> Arc<Self> {
        Arc::new(Self {
            name: member.name,
            node: member.node,
            state: member.state,
            meter: Arc::default(),
            removed: AtomicBool::new(false),
            sessions: AtomicUsize::new(0),
            transfers: AtomicUsize::new(0),
        })
    }

    /// Whether this is the record of the same member.
    pub(super) fn is_of(&self, member: &Member) -> bool {
        self.name == member.name
            && Arc::ptr_eq(&self.node, &member.node)
            && Arc::ptr_eq(&self.state.0, &member.state.0)
    }

    /// The administrator has taken the member out of the cluster: it finishes what it has.
    pub(super) fn remove(&self) {
        self.removed.store(true, Ordering::Release);
    }

    /// Whether it gets sessions and transfers.
    pub(super) fn is_usable(&self) -> bool {
        !self.removed.load(Ordering::Acquire) && self.state.is_up()
    }

    pub(super) fn sessions(&self) -> usize {
        self.sessions.load(Ordering::Relaxed)
    }

    pub(super) fn transfers(&self) -> usize {
        self.transfers.load(Ordering::Relaxed)
    }

    /// Counts a session whose storage calls the member carries out, until the result is dropped.
    pub(super) fn count_session(self: &Arc<Self>) -> Counted {
        Counted::new(self, |record| &record.sessions)
    }

    /// Counts a transfer, or a data port that waits for one, until the result is dropped.
    pub(super) fn count_transfer(self: &Arc<Self>) -> Counted {
        Counted::new(self, |record| &record.transfers)
    }

    pub(super) fn report(&self) -> MemberReport {
        MemberReport {
            name: self.name.clone(),
            state: self.state.get(),
            load: self.node.load(),
            sessions: self.sessions(),
            transfers: self.transfers(),
            bytes_per_second: self.meter.rate(),
        }
    }
}

/// Something that is counted at a member while this exists.
#[derive(Debug)]
pub(super) struct Counted {
    record: Arc<Record>,
    counter: fn(&Record) -> &AtomicUsize,
}

impl Counted {
    fn new(record: &Arc<Record>, counter: fn(&Record) -> &AtomicUsize) -> Self {
        counter(record).fetch_add(1, Ordering::Relaxed);
        let record = Arc::clone(record);
        Self { record, counter }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        (self.counter)(&self.record).fetch_sub(1, Ordering::Relaxed);
    }
}
