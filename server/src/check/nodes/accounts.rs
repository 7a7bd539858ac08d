//! Whether nodes have the accounts of users.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use gridhaul_shares::Source;
use gridhaul_transfer::{Admission, DataNode as _, NodeAccount, NodeSession};

use super::patience::Patience;
use super::reach::Node;
use super::{ABOUT, of};
use crate::check::identities::account_names;
use crate::check::report::{Report, Verdict, counted};
use crate::config::Config;

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
    let answers = patience.each(LIMIT, nodes.to_vec(), move |node| try_all(&tried, &node));
    let Ok(answers) = answers else {
        return Vec::new();
    };
    let mut all_have = true;
    let mut attached = Vec::new();
    for (node, answers) in nodes.iter().zip(answers) {
        let Some(answers) = answers else {
            all_have = false;
            let text =
                "it has not opened the files of all accounts in time: does its file system hang?";
            report.error(ABOUT, of(&node.name, text));
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

fn try_all(people: &People, node: &Node) -> Answers {
    let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let mut answers = Answers {
        sessions: Vec::new(),
        refused: Vec::new(),
        own: None,
    };
    match people.attach(node, None, here) {
        Ok(session) => answers.sessions.push(Session {
            account: None,
            node: session,
        }),
        Err(reason) => answers.own = Some(reason),
    }
    for account in &people.accounts {
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
