//! The attachments of one session to members. A session attaches to a member when it needs it for the first time.

use std::sync::{Arc, Mutex};
use std::thread;

use gridhaul_transfer::{AttachError, NodeAccount, NodeSession};

use super::member::Record;
use crate::sync::lock;

/// A session on a member.
#[derive(Debug, Clone)]
pub(super) struct Attached {
    pub(super) record: Arc<Record>,
    pub(super) session: Arc<dyn NodeSession>,
    /// How often the member had gone down before.
    losses: u64,
}

impl Attached {
    /// Attaches to a member. Blocks.
    pub(super) fn new(record: &Arc<Record>, account: &NodeAccount) -> Result<Self, AttachError> {
        let losses = record.state.losses();
        let session = record.node.attach(account)?;
        let record = Arc::clone(record);
        Ok(Self {
            record,
            session,
            losses,
        })
    }

    /// Whether the member has been there since. Its sessions end when it is lost.
    pub(super) fn is_alive(&self) -> bool {
        !self.record.state.is_down()
            && self.record.state.losses() == self.losses
            && !self.session.is_lost()
    }
}

/// All attachments of a session.
#[derive(Debug)]
pub(super) struct Attachments {
    account: NodeAccount,
    all: Mutex<Vec<Attached>>,
}

/// Why a member is not used.
#[derive(Debug)]
pub(super) enum NotUsed<E> {
    /// The session cannot attach to it.
    Attach(AttachError),
    /// It is attached, and the member refuses what it is to do.
    Refused(E),
}

/// The members that did what they were asked for, the best first, and those that did not.
pub(super) struct Used<T, E> {
    pub(super) done: Vec<(Attached, T)>,
    pub(super) troubles: Vec<(String, NotUsed<E>)>,
}

impl Attachments {
    pub(super) fn new(account: NodeAccount) -> Self {
        let all = Mutex::default();
        Self { account, all }
    }

    /// The attachment to a member, if there is one.
    pub(super) fn known(&self, record: &Arc<Record>) -> Option<Attached> {
        let all = lock(&self.all);
        let mut known = all.iter();
        let known = known.find(|one| Arc::ptr_eq(&one.record, record) && one.is_alive());
        known.cloned()
    }

    /// Attaches to a member, unless the session is attached to it. Blocks.
    pub(super) fn to(&self, record: &Arc<Record>) -> Result<Attached, AttachError> {
        if let Some(known) = self.known(record) {
            return Ok(known);
        }
        let attached = Attached::new(record, &self.account)?;
        Ok(self.keep(attached))
    }

    /// Keeps an attachment. Returns it, or the one that another thread has made meanwhile. Those to members that are lost or
    /// drain are dropped, so that a draining member loses its sessions; what runs there has references of its own.
    pub(super) fn keep(&self, attached: Attached) -> Attached {
        let mut all = lock(&self.all);
        all.retain(|one| one.is_alive() && one.record.is_usable());
        let same = |one: &&Attached| Arc::ptr_eq(&one.record, &attached.record);
        if let Some(known) = all.iter().find(same) {
            return known.clone();
        }
        all.push(attached.clone());
        attached
    }

    /// Closes the data ports on all members that the session is attached to.
    pub(super) fn release(&self) {
        let all = lock(&self.all).clone();
        all.iter().for_each(|attached| attached.session.release());
    }

    /// Lets `wanted` of the members do something, those in front if they can. Attaches to them before, and asks several at the
    /// same time. Stops at an error for which `is_final` holds. Blocks.
    pub(super) fn use_members<T: Send, E: Send>(
        &self,
        members: &[Arc<Record>],
        wanted: usize,
        action: &(dyn Fn(&Attached) -> Result<T, E> + Sync),
        is_final: fn(&E) -> bool,
    ) -> Used<T, E> {
        let mut used = Used {
            done: Vec::new(),
            troubles: Vec::new(),
        };
        let mut rest = members;
        while used.done.len() < wanted && !rest.is_empty() {
            let missing = (wanted - used.done.len()).min(rest.len());
            let (next, later) = rest.split_at(missing);
            rest = later;
            for (record, asked) in next.iter().zip(self.ask_all(next, action)) {
                match asked {
                    Ok(done) => used.done.push(done),
                    Err(trouble) => {
                        if matches!(&trouble, NotUsed::Refused(error) if is_final(error)) {
                            rest = &[];
                        }
                        used.troubles.push((record.name.clone(), trouble));
                    }
                }
            }
        }
        used
    }

    fn ask_all<T: Send, E: Send>(
        &self,
        members: &[Arc<Record>],
        action: &(dyn Fn(&Attached) -> Result<T, E> + Sync),
    ) -> Vec<Result<(Attached, T), NotUsed<E>>> {
        let ask = |record: &Arc<Record>| {
            let attached = self.to(record).map_err(NotUsed::Attach)?;
            let done = action(&attached).map_err(NotUsed::Refused)?;
            Ok((attached, done))
        };
        let [others @ .., last] = members else {
            return Vec::new();
        };
        thread::scope(|scope| {
            let asked: Vec<_> = others
                .iter()
                .map(|record| {
                    let thread = thread::Builder::new().name("cluster".to_owned());
                    thread
                        .spawn_scoped(scope, || ask(record))
                        .map_err(|_| record)
                })
                .collect();
            let last = ask(last);
            let mut answers: Vec<_> = asked
                .into_iter()
                .map(|thread| match thread {
                    Ok(thread) => thread.join().unwrap_or_else(|_| {
                        let reason = "the attachment panicked".to_owned();
                        Err(NotUsed::Attach(AttachError::Account(reason)))
                    }),
                    // There is no further thread: one after the other then.
                    Err(record) => ask(record),
                })
                .collect();
            answers.push(last);
            answers
        })
    }
}
