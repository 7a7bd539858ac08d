//! Whether nodes open the roots of `[[authorize]]` rules: a node serves only what is beneath its own root, and opens it with the rights of
//! the account.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::accounts::People;
use super::patience::Patience;
use super::reach::Node;
use super::{ABOUT, of};
use crate::check::identities::mapped_accounts;
use crate::check::report::{Report, Verdict, counted};
use crate::config::{Config, Gsi, Outcome};

/// Each one may be a process on each node.
const MOST_ROOTS: usize = 20;

/// The accounts of the map that are tried for a root, until one can use it.
const MOST_ACCOUNTS: usize = 20;

/// For the roots of a node.
const LIMIT: Duration = Duration::from_secs(20);

/// The root of a rule.
#[derive(Debug)]
struct RuleRoot {
    /// The number of the table, from 1.
    table: usize,
    root: PathBuf,
    /// Accounts of its users.
    accounts: Vec<String>,
    /// The users have other accounts, too, which are not tried.
    has_others: bool,
}

/// The roots that are tried, and how many the rules have. Which accounts of a pool there are, and which are leased, only a login shows.
fn of_rules(gsi: &Gsi) -> (Vec<RuleRoot>, usize) {
    let mapped = mapped_accounts(gsi);
    let roots = gsi.rules.iter().enumerate().filter_map(|(index, rule)| {
        let Outcome::Grant {
            account,
            root: Some(root),
            ..
        } = rule.outcome()
        else {
            return None;
        };
        let (accounts, all) = match account {
            Some(account) => (vec![account.clone()], 1),
            None => {
                let first = mapped.iter().take(MOST_ACCOUNTS).cloned();
                (first.collect(), mapped.len())
            }
        };
        Some(RuleRoot {
            table: index + 1,
            root: root.clone(),
            has_others: all > accounts.len(),
            accounts,
        })
    });
    let is_pool = |one: &RuleRoot| one.accounts.iter().all(|account| account.starts_with('.'));
    let mut roots: Vec<RuleRoot> = roots.filter(|one| !is_pool(one)).collect();
    let all = roots.len();
    roots.truncate(MOST_ROOTS);
    (roots, all)
}

/// Tries the roots on all nodes.
pub(super) fn check(
    report: &mut Report,
    config: &Config,
    (people, nodes): (&Arc<People>, &[Arc<Node>]),
    patience: &Patience,
) {
    let Some(gsi) = &config.security.gsi else {
        return;
    };
    let (roots, all) = of_rules(gsi);
    if roots.is_empty() {
        return;
    }
    let roots = Arc::new(roots);
    let (people, tried) = (Arc::clone(people), Arc::clone(&roots));
    let answers = patience.each(LIMIT, nodes.to_vec(), move |node: Arc<Node>| {
        let of_node = tried.iter().map(|root| refusal(&people, &node, root));
        of_node.collect::<Vec<_>>()
    });
    let mut all_have = true;
    for (node, answers) in nodes.iter().zip(answers) {
        let Some(answers) = answers else {
            all_have = false;
            let text =
                "it has not opened the roots of all rules in time: does its file system hang?";
            report.error(ABOUT, of(&node.name, text));
            continue;
        };
        for (root, reason) in roots.iter().zip(answers) {
            if let Some(reason) = reason {
                all_have = false;
                tell(report, &node.name, root, &reason);
            }
        }
    }
    if all_have {
        let tried = counted(roots.len(), "root");
        let text = match all > roots.len() {
            true => {
                format!("the first {tried} of {all} in [[authorize]] can be used on all nodes")
            }
            false => format!("{tried} of [[authorize]] can be used on all nodes"),
        };
        report.ok(ABOUT, text);
    }
}

/// Why no account of a rule can use its root on a node. `None` if one can, or if the reason is not the root.
fn refusal(people: &People, node: &Node, rule: &RuleRoot) -> Option<String> {
    let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let mut first = None;
    for account in &rule.accounts {
        let reason = people
            .attach_at(node, Some(account), here, &rule.root)
            .err()?;
        // An account that the node does not have is told as such.
        let elsewhere = people.attach(node, Some(account), here).err();
        if elsewhere.as_ref() != Some(&reason) {
            first.get_or_insert(reason);
        }
    }
    first
}

/// Of many accounts, those that were not tried may be the ones that the root is for.
fn tell(report: &mut Report, node: &str, rule: &RuleRoot, reason: &str) {
    let verdict = match rule.has_others {
        true => Verdict::Warning,
        false => Verdict::Error,
    };
    let who = match rule.accounts.as_slice() {
        [account] => account.clone(),
        accounts => format!("each of {}", counted(accounts.len(), "account")),
    };
    let text = format!(
        "it refuses the root {} of [[authorize]] table {} to {who}: {reason}{} Nodes need the same directories, beneath their own root",
        rule.root.display(),
        rule.table,
        if reason.ends_with('.') { "" } else { "." }
    );
    report.add(verdict, ABOUT, of(node, &text));
}
