//! The members of a cluster: their state, and what the cluster has on each of them.

use std::mem::discriminant;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use gridhaul_transfer::{DataNode, NodeLoad};

use super::meter::Meter;
use crate::instances::Claim;
use crate::sync::lock;
use crate::told::{MachineLoad, NodeFacts, Traffic};

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
    /// It is the same node as another member, which is used in its place.
    Same {
        /// The name of that member.
        name: String,
    },
    /// It cannot be reached.
    Down {
        /// Since when.
        since: SystemTime,
        /// Why, for administrators and clients.
        reason: String,
    },
}

/// The state of a member, and what it tells of itself, shared by the cluster and the connection to the member.
#[derive(Debug, Clone)]
pub struct StateHandle(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    known: Mutex<Known>,
    losses: AtomicU64,
    claim: Mutex<Claimed>,
}

/// The name of a running node that a connection to a member uses.
#[derive(Debug)]
enum Claimed {
    /// There is no connection.
    No,
    Yes(Claim),
    /// The member has been removed. Its connection stays for the sessions that it has, but another name of the node may be used.
    Withdrawn,
}

#[derive(Debug)]
struct Known {
    state: MemberState,
    /// When it last became up, draining, the same or down.
    since: SystemTime,
    last_error: Option<MemberError>,
    facts: Option<Arc<NodeFacts>>,
    machine: Arc<MachineLoad>,
}

/// Why a member was down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberError {
    /// When it was noticed first.
    pub time: SystemTime,
    /// The reason.
    pub reason: String,
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
            known: Mutex::new(Known {
                state,
                since: SystemTime::now(),
                last_error: None,
                facts: None,
                machine: Arc::default(),
            }),
            losses: AtomicU64::new(0),
            claim: Mutex::new(Claimed::No),
        }))
    }

    /// Uses a node under the name of this member, unless the member has been removed.
    pub(crate) fn claim(&self, claim: Claim) {
        let mut held = lock(&self.0.claim);
        if !matches!(*held, Claimed::Withdrawn) {
            *held = Claimed::Yes(claim);
        }
    }

    /// The connection is lost.
    pub(crate) fn unclaim(&self) {
        let mut held = lock(&self.0.claim);
        if !matches!(*held, Claimed::Withdrawn) {
            *held = Claimed::No;
        }
    }

    /// The name under which the node is used, if that is another one.
    pub(crate) fn other_name(&self) -> Option<String> {
        match &*lock(&self.0.claim) {
            Claimed::Yes(claim) => claim.other(),
            Claimed::No | Claimed::Withdrawn => None,
        }
    }

    fn withdraw(&self) {
        *lock(&self.0.claim) = Claimed::Withdrawn;
    }

    /// The state.
    pub fn get(&self) -> MemberState {
        lock(&self.0.known).state.clone()
    }

    /// Changes the state. Sessions that were attached before [`MemberState::Down`] attach anew when the member is up again.
    pub fn set(&self, mut state: MemberState) {
        let mut known = lock(&self.0.known);
        let is_other = discriminant(&known.state) != discriminant(&state);
        if is_other {
            known.since = SystemTime::now();
        }
        if let MemberState::Down { since, reason } = &mut state {
            if is_other {
                self.0.losses.fetch_add(1, Ordering::AcqRel);
            }
            known.last_error = Some(MemberError {
                time: *since,
                reason: reason.clone(),
            });
            // It has been down since then, although the reason is another one now.
            *since = known.since;
        }
        known.state = state;
    }

    /// Records what the member has told of itself.
    pub(crate) fn tell_facts(&self, facts: NodeFacts) {
        lock(&self.0.known).facts = Some(Arc::new(facts));
    }

    /// Records what the member has told of its machine.
    pub(crate) fn tell_machine(&self, machine: MachineLoad) {
        lock(&self.0.known).machine = Arc::new(machine);
    }

    /// What the member has told of its machine last.
    pub(super) fn machine(&self) -> Arc<MachineLoad> {
        Arc::clone(&lock(&self.0.known).machine)
    }

    fn is_up(&self) -> bool {
        matches!(lock(&self.0.known).state, MemberState::Up)
    }

    pub(super) fn is_down(&self) -> bool {
        matches!(lock(&self.0.known).state, MemberState::Down { .. })
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
    /// Since when it is in this state.
    pub since: SystemTime,
    /// Since when an administrator has drained it here ([`super::Cluster::drain`]).
    pub drained: Option<SystemTime>,
    /// Why it was down the last time.
    pub last_error: Option<MemberError>,
    /// How often it has gone down.
    pub losses: u64,
    /// What it has told of itself the last time that it was connected to.
    pub facts: Option<Arc<NodeFacts>>,
    /// Its load, as it reports it.
    pub load: NodeLoad,
    /// The load of its machine, as it reports it.
    pub machine: Arc<MachineLoad>,
    /// Sessions of this cluster whose storage calls it carries out.
    pub sessions: usize,
    /// Transfers of this cluster, and data ports that wait for one.
    pub transfers: usize,
    /// Bytes per second that transfers of this cluster have recently moved there.
    pub bytes_per_second: Traffic,
    /// Bytes that transfers of this cluster have moved there, of those that have ended.
    pub ended_bytes: Traffic,
    /// The same with those that run.
    pub bytes: Traffic,
}

/// A member with what the cluster has there.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) name: String,
    pub(super) node: Arc<dyn DataNode>,
    pub(super) state: StateHandle,
    pub(super) meter: Arc<Meter>,
    removed: AtomicBool,
    /// Since when an administrator has drained it.
    drained: Mutex<Option<SystemTime>>,
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
            drained: Mutex::default(),
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

    /// The administrator has taken the member out of the cluster: it finishes what it has. Under another name its node can be
    /// used at once.
    pub(super) fn remove(&self) {
        self.removed.store(true, Ordering::Release);
        self.state.withdraw();
    }

    /// It finishes what it has and gets nothing new, since this time; `None` ends that.
    pub(super) fn set_drained(&self, since: Option<SystemTime>) {
        *lock(&self.drained) = since;
    }

    pub(super) fn drained(&self) -> Option<SystemTime> {
        *lock(&self.drained)
    }

    /// Whether it gets sessions and transfers.
    pub(super) fn is_usable(&self) -> bool {
        !self.removed.load(Ordering::Acquire) && self.drained().is_none() && self.state.is_up()
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
        let load = self.node.load();
        let (rate, ended, total) = (self.meter.rate(), self.meter.ended(), self.meter.total());
        let known = lock(&self.state.0.known);
        MemberReport {
            name: self.name.clone(),
            state: known.state.clone(),
            since: known.since,
            drained: self.drained(),
            last_error: known.last_error.clone(),
            losses: self.state.losses(),
            facts: known.facts.clone(),
            load,
            machine: Arc::clone(&known.machine),
            sessions: self.sessions(),
            transfers: self.transfers(),
            bytes_per_second: rate,
            ended_bytes: ended,
            bytes: total,
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
