//! The cluster as a data node.

use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::SystemTime;

use gridhaul_protocol::stack::StackSpec;
use gridhaul_stack::StackError;
use gridhaul_transfer::{AttachError, DataNode, NodeAccount, NodeLoad, NodeSession, WorkerLoad};

use super::attachments::{Attached, Attachments};
use super::member::{Member, MemberReport, Record};
use super::ports::Ports;
use super::reasons::names;
use super::session::ClusterSession;
use super::shared::{ClusterConfig, Members, Shared};
use super::storage::ClusterStorage;
use crate::instances::Instances;
use crate::sync::lock;

/// Two members have the same name.
#[derive(Debug, thiserror::Error)]
#[error("two data nodes have the name {0:?}; give each node a name of its own")]
pub struct DuplicateMember(String);

/// No member has this name.
#[derive(Debug, thiserror::Error)]
#[error("there is no data node {name:?}; there are: {known}")]
pub struct NoMember {
    name: String,
    known: String,
}

/// A data node that consists of several nodes.
#[derive(Debug)]
pub struct Cluster {
    shared: Arc<Shared>,
}

impl Cluster {
    /// A cluster without members.
    pub fn new(config: ClusterConfig) -> Self {
        let shared = Shared::new(config);
        Self { shared }
    }

    /// Replaces the members. One with the same name, node and state handle stays; one that is missing finishes its transfers and gets no
    /// new ones.
    ///
    /// # Errors
    ///
    /// When two have the same name; nothing changes.
    pub fn set_members(&self, members: Vec<Member>) -> Result<(), DuplicateMember> {
        for (place, member) in members.iter().enumerate() {
            if members[..place].iter().any(|one| one.name == member.name) {
                return Err(DuplicateMember(member.name.clone()));
            }
        }
        let mut known = lock(&self.shared.known);
        let Members {
            present,
            removed,
            drained,
        } = &mut *known;
        let mut before = std::mem::take(present);
        for member in members {
            let same = before.iter().position(|record| record.is_of(&member));
            present.push(match same {
                Some(place) => before.swap_remove(place),
                None => {
                    let record = Record::new(member);
                    record.set_drained(drained.get(&record.name).copied());
                    record
                }
            });
        }
        before.iter().for_each(|record| record.remove());
        removed.retain(|record| record.strong_count() > 0);
        removed.extend(before.iter().map(Arc::downgrade));
        Ok(())
    }

    /// The members and their load, in the order in which they were set.
    pub fn members(&self) -> Vec<MemberReport> {
        let members = self.shared.members();
        members.iter().map(|member| member.report()).collect()
    }

    /// Whether the cluster has transfers, or data ports that wait for one, on a member of this name, also if it was removed since.
    pub fn has_transfers(&self, name: &str) -> bool {
        let members = lock(&self.shared.known).all();
        let mut members = members.iter().filter(|member| member.name == name);
        members.any(|member| member.transfers() > 0)
    }

    /// An administrator drains a member: it finishes its sessions and transfers of this cluster and gets no new ones, until
    /// [`Self::resume`]. Sessions move to other members with their next call; those that have data ports there keep these.
    /// Returns what is left there.
    ///
    /// # Errors
    ///
    /// When there is no such member.
    pub fn drain(&self, name: &str) -> Result<MemberReport, NoMember> {
        let mut known = lock(&self.shared.known);
        let member = known.find(name)?;
        let since = member.drained().unwrap_or_else(SystemTime::now);
        known.drained.insert(name.to_owned(), since);
        drop(known);
        member.set_drained(Some(since));
        Ok(member.report())
    }

    /// Ends [`Self::drain`].
    ///
    /// # Errors
    ///
    /// When there is no such member.
    pub fn resume(&self, name: &str) -> Result<MemberReport, NoMember> {
        let mut known = lock(&self.shared.known);
        let member = known.find(name)?;
        known.drained.remove(name);
        drop(known);
        member.set_drained(None);
        Ok(member.report())
    }

    /// The nodes that the members have turned out to be, for connections to them.
    pub fn instances(&self) -> Instances {
        self.shared.instances.clone()
    }
}

impl DataNode for Cluster {
    fn attach(&self, account: &NodeAccount) -> Result<Arc<dyn NodeSession>, AttachError> {
        let attached = self
            .shared
            .attach_to_best(None, |record| Attached::new(record, account))?;
        let home = attached.session.home();
        let attachments = Arc::new(Attachments::new(account.clone()));
        let storage = ClusterStorage::new(&self.shared, &attachments, attached);
        let storage = Arc::new(storage);
        let ports = Ports::new(&self.shared, attachments, Arc::clone(&storage));
        Ok(Arc::new(ClusterSession::new(storage, ports, home)))
    }

    /// Without a usable member every stack is accepted: the data port then fails with the reason.
    fn check_stack(&self, stack: &StackSpec) -> Result<(), StackError> {
        let members = self.shared.members();
        let usable: Vec<_> = members.iter().filter(|member| member.is_usable()).collect();
        let refusals: Vec<_> = usable
            .iter()
            .filter_map(|member| {
                Some((member.name.as_str(), member.node.check_stack(stack).err()?))
            })
            .collect();
        let is_general = refusals.len() == usable.len();
        match refusals.into_iter().next() {
            None => Ok(()),
            Some((_, error)) if is_general => Err(error),
            Some((name, error)) => {
                tracing::warn!(node = name, %error, "a data node lacks a driver that others have");
                Err(naming(error, name))
            }
        }
    }

    fn listens_at(&self, address: SocketAddr) -> bool {
        let members = lock(&self.shared.known).all();
        let mut members = members.iter();
        members.any(|member| member.node.listens_at(address))
    }

    /// The sum of all members that can be reached.
    fn load(&self) -> NodeLoad {
        let members = self.shared.members();
        let reached = members.iter().filter(|member| !member.state.is_down());
        reached.fold(NO_LOAD, |sum, member| add(sum, member.node.load()))
    }
}

impl Members {
    /// Also those that were removed and have something left.
    fn all(&self) -> Vec<Arc<Record>> {
        let removed = self.removed.iter().filter_map(Weak::upgrade);
        self.present.iter().cloned().chain(removed).collect()
    }

    fn find(&self, name: &str) -> Result<Arc<Record>, NoMember> {
        let found = self.present.iter().find(|member| member.name == name);
        found.cloned().ok_or_else(|| NoMember {
            name: name.to_owned(),
            known: names(self.present.iter().map(|member| member.name.as_str())),
        })
    }
}

const NO_LOAD: NodeLoad = NodeLoad {
    senders: NO_WORKERS,
    receivers: NO_WORKERS,
    buffer_bytes: 0,
    buffer_bytes_limit: 0,
    buffers_awaited: 0,
};

const NO_WORKERS: WorkerLoad = WorkerLoad {
    busy: 0,
    limit: 0,
    awaited: 0,
};

/// The values are from other machines, so that a sum may not fit.
fn add(one: NodeLoad, other: NodeLoad) -> NodeLoad {
    let workers = |one: WorkerLoad, other: WorkerLoad| WorkerLoad {
        busy: one.busy.saturating_add(other.busy),
        limit: one.limit.saturating_add(other.limit),
        awaited: one.awaited.saturating_add(other.awaited),
    };
    NodeLoad {
        senders: workers(one.senders, other.senders),
        receivers: workers(one.receivers, other.receivers),
        buffer_bytes: one.buffer_bytes.saturating_add(other.buffer_bytes),
        buffer_bytes_limit: one
            .buffer_bytes_limit
            .saturating_add(other.buffer_bytes_limit),
        buffers_awaited: one.buffers_awaited.saturating_add(other.buffers_awaited),
    }
}

/// Names the member that refuses a stack, where the text has room for it. Clients search for that of `NotAllowed` as it is.
fn naming(error: StackError, name: &str) -> StackError {
    let place = format!(" (on the data node {name})");
    match error {
        StackError::UnknownDriver { name, known } => StackError::UnknownDriver {
            name,
            known: known + &place,
        },
        StackError::UnknownOption {
            driver,
            option,
            known,
        } => StackError::UnknownOption {
            driver,
            option,
            known: known + &place,
        },
        StackError::OptionNotAllowed {
            driver,
            option,
            value,
            allowed,
        } => StackError::OptionNotAllowed {
            driver,
            option,
            value,
            allowed: allowed + &place,
        },
        StackError::BadValue {
            driver,
            option,
            value,
            reason,
            example,
        } => StackError::BadValue {
            driver,
            option,
            value,
            reason: reason + &place,
            example,
        },
        StackError::NoTransport { known } => StackError::NoTransport {
            known: known + &place,
        },
        error => error,
    }
}
