//! Keeps the cluster in step with the names of its nodes.
//!
//! Each entry of `nodes` is looked up again when its answer no longer counts, and after a reload. An entry that cannot be looked up
//! keeps the nodes that it had.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use gridhaul_nodes::cluster::Member;
use tokio::sync::Notify;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};

use super::nodes::{Place, locked, member};
use crate::config::{MOST_NODES, NodeSource};
use crate::data_nodes::{Found, Names, Target, look_up};
use crate::shared::Shared;

/// The time after a failed look-up.
const RETRY: Duration = Duration::from_secs(5);

/// What is known of the nodes.
#[derive(Default)]
struct Membership {
    entries: Vec<Entry>,
    /// By name.
    members: HashMap<String, (Place, Member)>,
}

/// An entry of `nodes`.
struct Entry {
    source: NodeSource,
    targets: Vec<Target>,
    due: Instant,
    /// The last failure, and the records that are not used: each is logged once.
    failure: Option<String>,
    refused: Vec<String>,
}

/// Connects to the data nodes of the configuration from now on. Must be called in the runtime.
pub(super) fn start(shared: &Arc<Shared>) {
    if shared.data_nodes.is_some() {
        tokio::spawn(keep(Arc::downgrade(shared)));
    }
}

/// Runs until the server ends.
async fn keep(shared: Weak<Shared>) {
    let mut membership = Membership::default();
    loop {
        let Some((names, reloaded)) = membership.follow(&shared) else {
            return;
        };
        let mut asked = membership.ask(&names);
        while let Some(answer) = asked.join_next().await {
            membership.take(answer);
            while let Some(answer) = asked.try_join_next() {
                membership.take(answer);
            }
            membership.apply(&shared);
        }
        tokio::select! {
            () = sleep_until(membership.next_due()) => {}
            () = reloaded.notified() => {}
        }
    }
}

/// The answer to the question about an entry, by its place.
type Answer = (usize, Result<Found, String>);

impl Membership {
    /// Takes over the entries of the configuration. Those that stay keep what is known. `None` when the server ends.
    fn follow(&mut self, shared: &Weak<Shared>) -> Option<(Names, Arc<Notify>)> {
        let strong = shared.upgrade()?;
        let nodes = strong.data_nodes.as_ref()?;
        let mut before = std::mem::take(&mut self.entries);
        for source in &strong.settings().config.nodes {
            let known = before.iter().position(|entry| entry.source == *source);
            self.entries.push(match known {
                Some(place) => before.swap_remove(place),
                None => Entry::new(source),
            });
        }
        if !before.is_empty() {
            self.apply(shared);
        }
        Some((nodes.names.clone(), Arc::clone(&nodes.reloaded)))
    }

    /// Asks about the entries that are due.
    fn ask(&mut self, names: &Names) -> JoinSet<Answer> {
        let now = Instant::now();
        let mut asked = JoinSet::new();
        for (place, entry) in self.entries.iter_mut().enumerate() {
            if entry.due <= now {
                // Until there is an answer.
                entry.due = now + RETRY;
                let (names, source) = (names.clone(), entry.source.clone());
                asked.spawn(async move { (place, look_up(&names, &source).await) });
            }
        }
        asked
    }

    fn take(&mut self, answer: Result<Answer, JoinError>) {
        match answer {
            Ok((place, found)) => self.entries[place].take(found),
            Err(error) => warn!(%error, "the look-up of data nodes failed"),
        }
    }

    /// Changes the members of the cluster to the targets. A node that two entries name counts once.
    fn apply(&mut self, shared: &Weak<Shared>) {
        let Some(shared) = shared.upgrade() else {
            return;
        };
        let Some(nodes) = &shared.data_nodes else {
            return;
        };
        let mut wanted: Vec<&Target> = Vec::new();
        for target in self.entries.iter().flat_map(|entry| &entry.targets) {
            let is_there = wanted.iter().any(|other| other.name == target.name);
            if !is_there && wanted.len() < MOST_NODES {
                wanted.push(target);
            }
        }
        let mut before = std::mem::take(&mut self.members);
        let (mut members, mut come) = (Vec::new(), Vec::new());
        for target in wanted {
            let kept = before.remove(&target.name);
            let kept = kept.filter(|(place, _)| locked(place).host == target.host);
            let (place, member) = kept.unwrap_or_else(|| {
                come.push(target.name.clone());
                let place: Place = Arc::new(Mutex::new(target.clone()));
                let member = member(&shared, &target.name, &place, &nodes.cluster);
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
                come = come.join(" "),
                gone = gone.join(" "),
                "the data nodes have changed"
            );
        }
    }

    fn next_due(&self) -> Instant {
        let due = self.entries.iter().map(|entry| entry.due);
        // The configuration has an entry at least.
        due.min().unwrap_or_else(Instant::now)
    }
}

impl Entry {
    fn new(source: &NodeSource) -> Self {
        Self {
            source: source.clone(),
            targets: Vec::new(),
            due: Instant::now(),
            failure: None,
            refused: Vec::new(),
        }
    }

    fn take(&mut self, found: Result<Found, String>) {
        let now = Instant::now();
        match found {
            Ok(found) => {
                for reason in found
                    .refused
                    .iter()
                    .filter(|one| !self.refused.contains(one))
                {
                    warn!(entry = %self.source, %reason, "a record of DNS is not used for a data node");
                }
                self.refused = found.refused;
                self.targets = found.targets;
                self.due = now + found.again;
                if self.failure.take().is_some() {
                    info!(entry = %self.source, "the names of data nodes can be looked up again");
                }
            }
            Err(error) => {
                self.due = now + RETRY;
                if self.failure.as_ref() != Some(&error) {
                    warn!(
                        entry = %self.source, %error, nodes = self.targets.len(),
                        "the names of data nodes cannot be looked up; those that are known stay"
                    );
                }
                self.failure = Some(error);
            }
        }
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
