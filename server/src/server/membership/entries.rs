//! The entries of `nodes`: when each is looked up, and the nodes that it stands for.

use std::collections::HashMap;
use std::future::{Future, pending};
use std::time::Duration;

use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::Instant;
use tracing::{info, warn};

use crate::config::NodeSource;
use crate::data_nodes::{Found, Refused, Target};

/// The time after a failed look-up.
const RETRY: Duration = Duration::from_secs(5);

/// How long nodes of removed entries stay at most while new entries have no answer: DNS must not keep a node that an administrator
/// has removed.
const REPLACED_WITHIN: Duration = Duration::from_secs(30);

/// DNS decides what is refused, and may answer otherwise each time.
const LOG_REFUSED_EVERY: Duration = Duration::from_secs(60);

/// What a look-up found, or why it failed.
type Answer = Result<Found, String>;

/// The entries of the configuration, and the questions about them that have no answer yet.
#[derive(Default)]
pub(super) struct Entries {
    present: Vec<Entry>,
    /// Entries that a reload removed, and until when their nodes stay at most.
    replaced: Vec<(Entry, Instant)>,
    questions: JoinSet<Answer>,
    /// What the questions are about. An entry that is removed and comes back is not asked twice at once.
    asked: HashMap<Id, NodeSource>,
}

struct Entry {
    source: NodeSource,
    targets: Vec<Target>,
    due: Instant,
    /// It has had an answer, or a failure.
    is_known: bool,
    /// The last failure; each is logged once.
    failure: Option<String>,
    /// The records that the log says are not used, and when it did last.
    refused: Refused,
    refused_logged: Option<Instant>,
}

impl Entries {
    /// Takes over the entries of the configuration. Those that stay keep what is known.
    pub(super) fn follow(&mut self, sources: &[NodeSource]) {
        let until = Instant::now() + REPLACED_WITHIN;
        let present = std::mem::take(&mut self.present);
        let mut before = std::mem::take(&mut self.replaced);
        before.extend(present.into_iter().map(|entry| (entry, until)));
        for source in sources {
            let known = before.iter().position(|(entry, _)| entry.source == *source);
            self.present.push(match known {
                Some(place) => before.remove(place).0,
                None => Entry::new(source),
            });
        }
        self.replaced = before;
        self.forget_replaced();
    }

    /// Asks about the entries that are due and that no question is about.
    pub(super) fn ask<F>(&mut self, look_up: impl Fn(NodeSource) -> F)
    where
        F: Future<Output = Answer> + Send + 'static,
    {
        let now = Instant::now();
        for entry in &self.present {
            let is_asked = self.asked.values().any(|source| *source == entry.source);
            if entry.due <= now && !is_asked {
                let question = self.questions.spawn(look_up(entry.source.clone()));
                self.asked.insert(question.id(), entry.source.clone());
            }
        }
    }

    /// Waits for an answer, and takes it with all others that are there. Waits for ever if no question is open.
    pub(super) async fn answered(&mut self) {
        let Some(first) = self.questions.join_next_with_id().await else {
            return pending().await;
        };
        self.take(first);
        while let Some(answer) = self.questions.try_join_next_with_id() {
            self.take(answer);
        }
        self.forget_replaced();
    }

    fn take(&mut self, answer: Result<(Id, Answer), JoinError>) {
        let (question, found) = match answer {
            Ok(answer) => answer,
            Err(error) => (error.id(), Err(error.to_string())),
        };
        let Some(source) = self.asked.remove(&question) else {
            return;
        };
        // The entry may be gone.
        let mut entries = self.present.iter_mut();
        if let Some(entry) = entries.find(|entry| entry.source == source) {
            entry.take(found);
        }
    }

    /// Nodes of entries that are gone stay until those that come instead are known: transfers would be refused meanwhile.
    pub(super) fn forget_replaced(&mut self) {
        let (now, mut present) = (Instant::now(), self.present.iter());
        let are_known = present.all(|entry| entry.is_known);
        self.replaced
            .retain(|(_, until)| !are_known && now < *until);
    }

    /// The nodes, those of the configuration first. Two entries may name one.
    pub(super) fn targets(&self) -> impl Iterator<Item = &Target> {
        let replaced = self.replaced.iter().map(|(entry, _)| entry);
        let entries = self.present.iter().chain(replaced);
        entries.flat_map(|entry| &entry.targets)
    }

    /// When there is something to do, if no answer comes; never, if `None`.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let is_asked = |entry: &&Entry| self.asked.values().any(|source| *source == entry.source);
        let idle = self.present.iter().filter(|entry| !is_asked(entry));
        let replaced = self.replaced.iter().map(|(_, until)| *until);
        idle.map(|entry| entry.due).chain(replaced).min()
    }
}

impl Entry {
    fn new(source: &NodeSource) -> Self {
        Self {
            source: source.clone(),
            targets: Vec::new(),
            due: Instant::now(),
            is_known: false,
            failure: None,
            refused: Refused::default(),
            refused_logged: None,
        }
    }

    fn take(&mut self, found: Answer) {
        let now = Instant::now();
        self.is_known = true;
        match found {
            Ok(found) => {
                if self.is_news(&found.refused, now) {
                    self.log_refused(found.refused, now);
                }
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

    /// Whether the log is to say which records are not used.
    fn is_news(&self, refused: &Refused, now: Instant) -> bool {
        let is_soon = self
            .refused_logged
            .is_some_and(|logged| now < logged + LOG_REFUSED_EVERY);
        *refused != self.refused && !is_soon
    }

    fn log_refused(&mut self, refused: Refused, now: Instant) {
        for reason in &refused.reasons {
            warn!(entry = %self.source, %reason, "a record of DNS is not used for a data node");
        }
        if refused.others > 0 {
            warn!(
                entry = %self.source, count = refused.others,
                "further records of DNS are not used for data nodes"
            );
        }
        self.refused = refused;
        self.refused_logged = Some(now);
    }
}

#[cfg(test)]
mod tests;
