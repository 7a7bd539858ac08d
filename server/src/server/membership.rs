//! Keeps the cluster in step with the names of its nodes.
//!
//! Each entry of `nodes` is looked up again when its answer no longer counts. An entry that cannot be looked up keeps the nodes that
//! it had, and one whose look-up takes long delays no other one.

mod entries;

use std::collections::{HashMap, HashSet};
use std::future::pending;
use std::sync::{Arc, Mutex, Weak};

use gridhaul_nodes::cluster::Member;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};

use super::nodes::{Place, locked, member};
use crate::config::MOST_NODES;
use crate::data_nodes::{Names, Target, look_up};
use crate::shared::Shared;
use entries::Entries;

/// What is known of the nodes.
#[derive(Default)]
struct Membership {
    entries: Entries,
    /// By name.
    members: HashMap<String, (Place, Member)>,
}

/// Connects to the data nodes of the configuration from now on. Must be called in the runtime.
pub(super) fn start(shared: &Arc<Shared>) {
    if let Some(nodes) = &shared.data_nodes {
        let (names, reloaded) = (nodes.names.clone(), Arc::clone(&nodes.reloaded));
        tokio::spawn(keep(Arc::downgrade(shared), names, reloaded));
    }
}

/// Runs until the server ends.
async fn keep(shared: Weak<Shared>, names: Names, reloaded: Arc<Notify>) {
    let mut membership = Membership::default();
    membership.follow(&shared);
    loop {
        membership.entries.ask(|source| {
            let names = names.clone();
            async move { look_up(&names, &source).await }
        });
        let due = membership.entries.next_due();
        tokio::select! {
            () = membership.entries.answered() => {}
            () = reloaded.notified() => membership.follow(&shared),
            () = at(due) => membership.entries.forget_replaced(),
        }
        let Some(shared) = shared.upgrade() else {
            return;
        };
        membership.apply(&shared);
    }
}

async fn at(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => pending().await,
    }
}

impl Membership {
    /// Takes over the entries of the configuration.
    fn follow(&mut self, shared: &Weak<Shared>) {
        if let Some(shared) = shared.upgrade() {
            self.entries.follow(&shared.settings().config.nodes);
        }
    }

    /// Changes the members of the cluster to the targets. A node that two entries name counts once.
    fn apply(&mut self, shared: &Arc<Shared>) {
        let Some(nodes) = &shared.data_nodes else {
            return;
        };
        let mut seen = HashSet::new();
        let wanted = self.entries.targets();
        let wanted = wanted.filter(|target| seen.insert(target.name.as_str()));
        let mut before = std::mem::take(&mut self.members);
        let (mut members, mut come) = (Vec::new(), Vec::new());
        for target in wanted.take(MOST_NODES) {
            let kept = before.remove(&target.name);
            let kept = kept.filter(|(place, _)| locked(place).host == target.host);
            let (place, member) = kept.unwrap_or_else(|| {
                come.push(target.name.clone());
                let place: Place = Arc::new(Mutex::new(target.clone()));
                let member = member(shared, &target.name, &place, &nodes.cluster);
                (place, member)
            });
            locked(&place).follow(target);
            members.push(member.clone());
            self.members.insert(target.name.clone(), (place, member));
        }
        let gone: Vec<String> = before.into_keys().collect();
        if let Err(error) = nodes.cluster.set_members(members) {
            // The names are distinct, as they were compared above.
            warn!(%error, "the data nodes stay as they were");
        }
        if !come.is_empty() || !gone.is_empty() {
            info!(
                come = some(&come),
                gone = some(&gone),
                "the data nodes have changed"
            );
        }
    }
}

/// The first names, and how many there are besides: DNS may change them every few seconds.
fn some(names: &[String]) -> String {
    const MOST: usize = 16;
    let first = names[..names.len().min(MOST)].join(" ");
    match names.len().checked_sub(MOST) {
        None | Some(0) => first,
        Some(others) => format!("{first} and {others} more"),
    }
}

impl Target {
    /// Takes over new addresses. If there are none, those of before may still be right.
    fn follow(&mut self, newer: &Self) {
        if newer.addresses.is_ok() || self.addresses.is_err() {
            self.addresses.clone_from(&newer.addresses);
        }
    }
}
