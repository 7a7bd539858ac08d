//! What the sessions of a cluster share: its members, and the choice among them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::SystemTime;

use gridhaul_transfer::AttachError;

use super::attachments::Attached;
use super::choice::{Purpose, Standing, rank};
use super::member::Record;
use super::reasons::{list, unavailable};
use crate::instances::Instances;
use crate::sync::lock;

/// How many members are tried for one session or one storage call.
pub(super) const ATTEMPTS: usize = 3;

/// The settings of a cluster.
#[derive(Debug, Clone)]
pub struct ClusterConfig {
    /// Several members may write to one file. False for storage that requires writes in the order of the file, or whose clients
    /// do not see each other's writes at once: all stripes of a transfer are then on one member.
    pub spread_stripes: bool,
}

impl Default for ClusterConfig {
    fn default() -> Self {
        Self {
            spread_stripes: true,
        }
    }
}

/// What the sessions of a cluster share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) config: ClusterConfig,
    pub(super) known: Mutex<Members>,
    turns: [AtomicUsize; 2],
    pub(super) instances: Instances,
}

/// The members of a cluster.
#[derive(Debug, Default)]
pub(super) struct Members {
    pub(super) present: Vec<Arc<Record>>,
    /// Members that were removed, as long as sessions have data ports there.
    pub(super) removed: Vec<Weak<Record>>,
    /// The names of members that an administrator has drained, and since when. They stay drained when their addresses change.
    pub(super) drained: BTreeMap<String, SystemTime>,
}

impl Shared {
    pub(super) fn new(config: ClusterConfig) -> Arc<Self> {
        Arc::new(Self {
            config,
            known: Mutex::default(),
            turns: [const { AtomicUsize::new(0) }; 2],
            instances: Instances::default(),
        })
    }

    pub(super) fn members(&self) -> Vec<Arc<Record>> {
        lock(&self.known).present.clone()
    }

    /// The usable members, the best first.
    pub(super) fn ranked(&self, purpose: Purpose) -> Vec<(Standing, Arc<Record>)> {
        let turn = &self.turns[match purpose {
            Purpose::Session => 0,
            Purpose::Transfer => 1,
        }];
        let turn = turn.fetch_add(1, Ordering::Relaxed);
        rank(&self.members(), purpose, turn)
    }

    /// Why no member can be used.
    pub(super) fn unavailable(&self) -> String {
        unavailable(&self.members())
    }

    /// Attaches a session to the best member, or to another one if it fails; to `avoided` only if no other one is left. Blocks.
    pub(super) fn attach_to_best(
        &self,
        avoided: Option<&Arc<Record>>,
        attach: impl Fn(&Arc<Record>) -> Result<Attached, AttachError>,
    ) -> Result<Attached, AttachError> {
        let mut ranked = self.ranked(Purpose::Session);
        ranked.sort_by_key(|(_, record)| avoided.is_some_and(|one| Arc::ptr_eq(one, record)));
        let mut troubles = Vec::new();
        for (_, record) in ranked.into_iter().take(ATTEMPTS) {
            match attach(&record) {
                Ok(attached) => return Ok(attached),
                Err(error) => {
                    tracing::warn!(node = record.name, %error, "a session cannot attach");
                    troubles.push((record.name.clone(), error));
                }
            }
        }
        Err(match troubles.len() {
            0 => AttachError::Account(self.unavailable()),
            // All members see the same files, so one error of the storage is as good as another.
            _ if troubles
                .iter()
                .all(|(_, error)| matches!(error, AttachError::Root(_))) =>
            {
                troubles.remove(0).1
            }
            _ => AttachError::Account(list(troubles.into_iter())),
        })
    }
}
