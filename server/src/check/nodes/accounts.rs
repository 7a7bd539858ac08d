//! Whether nodes have the accounts of users.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gridhaul_shares::Source;
use gridhaul_transfer::{Admission, DataNode as _, NodeAccount, NodeSession};

use super::patience::{HANGS_AFTER, Patience};
use super::reach::Node;
use super::{ABOUT, of};
use crate::check::identities::account_names;
use crate::check::report::{Report, Verdict, counted};
use crate::config::Config;
use crate::locks::lock;

/// Each one that is tried may be a process on each node.
const MOST_ACCOUNTS: usize = 20;

/// Accounts whose sessions are kept, to look for a place for files.
const MOST_KEPT: usize = 4;

/// For the accounts of a node.
const LIMIT: Duration = Duration::from_secs(20);

/// Whose files nodes open for this server.
#[derive(Debug, Clone)]
pub(super) struct People {
    /// The local accounts of users with certificates that are tried.
    accounts: Vec<String>,
    /// How many accounts the mapping has.
    all: usize,
    /// There are users whose files belong to the account that a node runs as.
    others: bool,
    root: PathBuf,
}

/// A session with the rights of an account; `None` is the account that the node runs as.
#[derive(Debug, Clone)]
pub(super) struct Session {
    pub(super) account: Option<String>,
    pub(super) node: Arc<dyn NodeSession>,
}

/// A node, and some sessions of accounts there.
#[derive(Debug, Clone)]
pub(super) struct Attached {
    pub(super) node: Arc<Node>,
    pub(super) people: Arc<People>,
    pub(super) sessions: Vec<Session>,
}

/// What a node answers.
struct Answers {
    sessions: Vec<Session>,
    refused: Vec<String>,
    /// Why it does not open its root with its own account.
    own: Option<String>,
}

impl People {
    pub(super) fn of(config: &Config) -> Arc<Self> {
        let gsi = config.security.gsi.as_ref();
        let names = gsi.map(account_names).unwrap_or_default();
        Arc::new(Self {
            all: names.len(),
            accounts: names.into_iter().take(MOST_ACCOUNTS).collect(),
            others: config.anonymous.is_some() || config.passwords.is_some(),
            root: config.root.clone(),
        })
    }

    /// A session of this account, whose client is at `client`.
    pub(super) fn attach(
        &self,
        node: &Node,
        account: Option<&str>,
        client: IpAddr,
    ) -> Result<Arc<dyn NodeSession>, String> {
        self.attach_at(node, account, client, &self.root)
    }

    /// As [`Self::attach`], with another root.
    pub(super) fn attach_at(
        &self,
        node: &Node,
        account: Option<&str>,
        client: IpAddr,
        root: &Path,
    ) -> Result<Arc<dyn NodeSession>, String> {
        let source = Source::at(client);
        let request = NodeAccount {
            source: match account {
                Some(account) => source.with_account(account),
                None => source,
            },
            name: account.unwrap_or("check").to_owned(),
            account: account.map(str::to_owned),
            root: root.to_owned(),
            read_only: false,
            admission: Admission::Anyone,
        };
        node.remote
            .attach(&request)
            .map_err(|error| error.to_string())
    }
}

impl Attached {
    /// Another session of an account, whose client is at `client`.
    pub(super) fn again(
        &self,
        account: Option<&str>,
        client: IpAddr,
    ) -> Result<Arc<dyn NodeSession>, String> {
        self.people.attach(&self.node, account, client)
    }
}

/// Tries the accounts of users on all nodes. Returns the nodes with some of the sessions, in the order of the nodes.
pub(super) fn check(
    report: &mut Report,
    people: &Arc<People>,
    nodes: &[Arc<Node>],
    patience: &Patience,
) -> Vec<Attached> {
    let tried = Arc::clone(people);
    let progress: Vec<Arc<Progress>> = nodes.iter().map(|_| Arc::default()).collect();
    let items = nodes.iter().cloned().zip(progress.iter().cloned());
    let answers = patience.each(LIMIT, items.collect(), move |(node, progress)| {
        try_all(&tried, &node, &progress)
    });
    let Ok(answers) = answers else {
        return Vec::new();
    };
    let now = Instant::now();
    let mut all_have = true;
    let mut attached = Vec::new();
    for ((node, answers), progress) in nodes.iter().zip(answers).zip(progress) {
        let Some(answers) = answers else {
            all_have = false;
            let (verdict, text) = progress.explain(people.accounts.len(), now);
            report.add(verdict, ABOUT, of(&node.name, &text));
            continue;
        };
        if let Some(reason) = answers.own.filter(|_| people.others) {
            let text = format!("users with passwords and anonymous users cannot use it: {reason}");
            report.error(ABOUT, of(&node.name, &text));
        }
        all_have &= answers.refused.is_empty();
        tell_refused(report, people, &node.name, &answers.refused);
        attached.push(Attached {
            node: Arc::clone(node),
            people: Arc::clone(people),
            sessions: answers.sessions,
        });
    }
    if all_have && !people.accounts.is_empty() {
        let tried = counted(people.accounts.len(), "account");
        let text = match people.all > people.accounts.len() {
            true => format!(
                "the first {tried} of {} can be used on all nodes",
                people.all
            ),
            false => format!("{tried} of users can be used on all nodes"),
        };
        report.ok(ABOUT, text);
    }
    attached
}

/// How far a node has come.
#[derive(Debug, Default)]
struct Progress(Mutex<Option<Trial>>);

/// The account that is tried; `None` is the account that the node runs as.
#[derive(Debug)]
struct Trial {
    account: Option<String>,
    began: Instant,
    /// Accounts of users that were tried before.
    before: usize,
}

impl Progress {
    fn begins(&self, account: Option<&str>, before: usize) {
        *lock(&self.0) = Some(Trial {
            account: account.map(str::to_owned),
            began: Instant::now(),
            before,
        });
    }

    /// Why the node was not tried completely with so many accounts of users.
    fn explain(&self, accounts: usize, now: Instant) -> (Verdict, String) {
        let trial = lock(&self.0);
        let before = match &*trial {
            Some(trial) if now.duration_since(trial.began) >= HANGS_AFTER => {
                let text = format!(
                    "it has not opened the files of {} within {} s: does its file system hang?",
                    trial.account.as_deref().unwrap_or("its own account"),
                    HANGS_AFTER.as_secs()
                );
                return (Verdict::Error, text);
            }
            Some(trial) => trial.before,
            None => 0,
        };
        let text = format!(
            "the time was over after {before} of {}, which says nothing about the others. It was not tried further: check again when \
             it is less busy",
            counted(accounts, "account")
        );
        (Verdict::Warning, text)
    }
}

fn try_all(people: &People, node: &Node, progress: &Progress) -> Answers {
    let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let mut answers = Answers {
        sessions: Vec::new(),
        refused: Vec::new(),
        own: None,
    };
    progress.begins(None, 0);
    match people.attach(node, None, here) {
        Ok(session) => answers.sessions.push(Session {
            account: None,
            node: session,
        }),
        Err(reason) => answers.own = Some(reason),
    }
    for (before, account) in people.accounts.iter().enumerate() {
        progress.begins(Some(account), before);
        match people.attach(node, Some(account), here) {
            Ok(session) if answers.sessions.len() < MOST_KEPT => answers.sessions.push(Session {
                account: Some(account.clone()),
                node: session,
            }),
            Ok(_) => {}
            // The text names the account.
            Err(reason) => answers.refused.push(reason),
        }
    }
    answers
}

/// Maps keep entries of people who have left. A node that has no account is set up wrong.
fn tell_refused(report: &mut Report, people: &People, node: &str, refused: &[String]) {
    let Some(first) = refused.first() else {
        return;
    };
    let tried = people.accounts.len();
    let verdict = match refused.len() == tried {
        true => Verdict::Error,
        false => Verdict::Warning,
    };
    let text = format!(
        "{} of {} cannot be used there: {first}{} Nodes need the accounts of users under the same names",
        refused.len(),
        counted(tried, "account"),
        if first.ends_with('.') { "" } else { "." }
    );
    report.add(verdict, ABOUT, of(node, &text));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_blamed_only_if_it_had_time() {
        let progress = Progress::default();
        let untried = progress.explain(3, Instant::now());
        assert_eq!(untried.0, Verdict::Warning);
        assert!(untried.1.contains("after 0 of 3 accounts"), "{untried:?}");
        progress.begins(Some("alice"), 2);
        let soon = progress.explain(3, Instant::now());
        assert_eq!(soon.0, Verdict::Warning);
        assert!(soon.1.contains("after 2 of 3 accounts"), "{soon:?}");
        let (verdict, text) = progress.explain(3, Instant::now() + HANGS_AFTER);
        assert_eq!(verdict, Verdict::Error);
        assert!(text.contains("the files of alice within 5 s"), "{text}");
    }
}
