//! Whether nodes open the roots of `[[authorize]]` rules: a node serves only what is beneath its own root, and opens it with the rights of
//! the account.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
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

/// Accounts that are tried on a node at the same time: one that hangs keeps the others waiting only if there are as many.
const WIDTH: usize = 4;

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
    let queues = nodes.iter().map(|node| attempts(people, node, &roots));
    let (queues, places): (Vec<_>, Vec<_>) = queues.unzip();
    let answers = patience.queues(LIMIT, (queues, WIDTH), |attempt: Attempt| attempt.make());
    let Ok(answers) = answers else { return };
    let mut all_have = true;
    for ((node, answers), places) in nodes.iter().zip(answers).zip(places) {
        let found = judge(roots.len(), places.into_iter().zip(answers));
        all_have &= found.iter().all(|found| *found == Judged::Usable);
        tell_all(report, &node.name, &roots, &found);
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

/// A root and an account that are tried on a node.
#[derive(Debug)]
struct Attempt {
    people: Arc<People>,
    node: Arc<Node>,
    roots: Arc<Vec<RuleRoot>>,
    /// The position of the root.
    place: usize,
    account: String,
    known: Arc<Known>,
}

/// What earlier attempts on a node have found out.
#[derive(Debug)]
struct Known {
    /// For each root, whether an account can use it.
    usable: Vec<AtomicBool>,
    /// For each account, why it cannot be used on the node at all. `None` if it can.
    unusable: HashMap<String, OnceLock<Option<String>>>,
}

/// What a node says of a root for one account.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Answer {
    /// This account can use it, or another one that was tried before.
    Usable,
    Refused(String),
    /// The account cannot be used there at all.
    NoAccount(String),
}

/// The attempts on a node: the first account of each root, then the second ones, so that a root that hangs does not keep the
/// others from being tried. With the positions of their roots.
fn attempts(
    people: &Arc<People>,
    node: &Arc<Node>,
    roots: &Arc<Vec<RuleRoot>>,
) -> (Vec<Attempt>, Vec<usize>) {
    let accounts = roots.iter().flat_map(|root| root.accounts.iter());
    let known = Arc::new(Known {
        usable: roots.iter().map(|_| AtomicBool::new(false)).collect(),
        unusable: accounts
            .map(|account| (account.clone(), OnceLock::new()))
            .collect(),
    });
    let most = roots.iter().map(|root| root.accounts.len()).max();
    let pairs = (0..most.unwrap_or(0)).flat_map(|turn| {
        let roots = roots.iter().enumerate();
        roots.filter_map(move |(place, root)| Some((place, root.accounts.get(turn)?)))
    });
    let attempts = pairs.map(|(place, account)| {
        let attempt = Attempt {
            people: Arc::clone(people),
            node: Arc::clone(node),
            roots: Arc::clone(roots),
            place,
            account: account.clone(),
            known: Arc::clone(&known),
        };
        (attempt, place)
    });
    attempts.unzip()
}

impl Attempt {
    fn make(&self) -> Answer {
        let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let (people, node, account) = (&self.people, &self.node, Some(self.account.as_str()));
        let usable = &self.known.usable[self.place];
        if usable.load(Ordering::Acquire) {
            return Answer::Usable;
        }
        let root = &self.roots[self.place].root;
        let Err(reason) = people.attach_at(node, account, here, root) else {
            usable.store(true, Ordering::Release);
            return Answer::Usable;
        };
        let look = || people.attach(node, account, here).err();
        let unusable = self.known.unusable.get(&self.account);
        let unusable = match unusable {
            Some(known) => known.get_or_init(look).clone(),
            None => look(),
        };
        match unusable {
            Some(same) if same == reason => Answer::NoAccount(reason),
            _ => Answer::Refused(reason),
        }
    }
}

/// What the answers for all accounts of a root say together.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Judged {
    Usable,
    /// Some accounts may still be asked for.
    Late,
    /// Why it cannot be used by the first account for which the reason is the root.
    Refused(String),
    /// Why the first account cannot be used. Nor can the others, so the root was not tried.
    NoAccount(String),
}

/// For each of `count` roots. `answers` come with the position of their root; `None` did not come in time.
fn judge(count: usize, answers: impl Iterator<Item = (usize, Option<Answer>)>) -> Vec<Judged> {
    let mut of_roots = vec![Vec::new(); count];
    for (place, answer) in answers {
        of_roots[place].push(answer);
    }
    let of_roots = of_roots.iter();
    of_roots.map(|answers| judge_one(answers)).collect()
}

fn judge_one(answers: &[Option<Answer>]) -> Judged {
    if answers.contains(&Some(Answer::Usable)) {
        return Judged::Usable;
    }
    if answers.contains(&None) {
        return Judged::Late;
    }
    let reasons = answers.iter().flatten();
    let refused = reasons.clone().find_map(|answer| match answer {
        Answer::Refused(reason) => Some(Judged::Refused(reason.clone())),
        _ => None,
    });
    let no_account = reasons.clone().find_map(|answer| match answer {
        Answer::NoAccount(reason) => Some(Judged::NoAccount(reason.clone())),
        _ => None,
    });
    // Each root has an account, so there is an answer.
    refused.or(no_account).unwrap_or(Judged::Late)
}

fn tell_all(report: &mut Report, node: &str, roots: &[RuleRoot], found: &[Judged]) {
    let mut late = Vec::new();
    for (root, found) in roots.iter().zip(found) {
        match found {
            Judged::Usable => {}
            Judged::Late => late.push(root),
            Judged::Refused(reason) => tell_refused(report, node, root, reason),
            Judged::NoAccount(reason) => tell_untried(report, node, root, reason),
        }
    }
    if let [first, others @ ..] = late.as_slice() {
        let others = match others.len() {
            0 => String::new(),
            count => format!(" and {}", counted(count, "other root")),
        };
        let text = format!(
            "it has not opened {}{others} in time: does its file system hang?",
            first.name()
        );
        report.error(ABOUT, of(node, &text));
    }
}

impl RuleRoot {
    fn name(&self) -> String {
        format!(
            "the root {} of [[authorize]] table {}",
            self.root.display(),
            self.table
        )
    }

    /// Whom it was tried for.
    fn who(&self) -> String {
        match self.accounts.as_slice() {
            [account] => account.clone(),
            accounts => format!("each of {}", counted(accounts.len(), "account")),
        }
    }
}

/// Of many accounts, those that were not tried may be the ones that the root is for.
fn tell_refused(report: &mut Report, node: &str, root: &RuleRoot, reason: &str) {
    let verdict = match root.has_others {
        true => Verdict::Warning,
        false => Verdict::Error,
    };
    let text = format!(
        "it refuses {} to {}: {} Nodes need the same directories, beneath their own root",
        root.name(),
        root.who(),
        sentence(reason)
    );
    report.add(verdict, ABOUT, of(node, &text));
}

/// That accounts cannot be used has a line of its own, which may be about others: only some are tried.
fn tell_untried(report: &mut Report, node: &str, root: &RuleRoot, reason: &str) {
    let text = format!(
        "{} was not tried, because {} cannot be used there: {}",
        root.name(),
        root.who(),
        sentence(reason)
    );
    report.warning(ABOUT, of(node, &text));
}

fn sentence(reason: &str) -> String {
    match reason.ends_with('.') {
        true => reason.to_owned(),
        false => format!("{reason}."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> Option<Answer> {
        Some(Answer::Refused(text.to_owned()))
    }

    fn no_account(text: &str) -> Option<Answer> {
        Some(Answer::NoAccount(text.to_owned()))
    }

    #[test]
    fn a_root_is_usable_if_one_account_can_use_it_and_untried_if_none_can_be_used() {
        let usable = Some(Answer::Usable);
        let late = None;
        let because = |text: &str| text.to_owned();
        for (answers, expected) in [
            (vec![usable.clone()], Judged::Usable),
            (vec![refused("a"), usable.clone()], Judged::Usable),
            (
                vec![late.clone(), usable.clone(), late.clone()],
                Judged::Usable,
            ),
            (vec![refused("a"), late.clone(), refused("b")], Judged::Late),
            (
                vec![no_account("a"), refused("b"), refused("c")],
                Judged::Refused(because("b")),
            ),
            (
                vec![refused("a"), no_account("b")],
                Judged::Refused(because("a")),
            ),
            (
                vec![no_account("a"), no_account("b")],
                Judged::NoAccount(because("a")),
            ),
        ] {
            // The same for another root before and after it.
            let own = answers.iter().cloned().map(|answer| (1, answer));
            let others = [(0, refused("x")), (2, Some(Answer::Usable))];
            let found = judge(3, own.chain(others));
            assert_eq!(found[1], expected, "{answers:?}");
            assert_eq!(found[0], Judged::Refused(because("x")));
            assert_eq!(found[2], Judged::Usable);
        }
    }

    #[test]
    fn roots_that_hang_are_one_line_of_their_node() {
        let root = |table| RuleRoot {
            table,
            root: format!("/srv/{table}").into(),
            accounts: vec!["alice".to_owned()],
            has_others: false,
        };
        let roots = [root(1), root(2), root(3), root(4)];
        let found = [
            Judged::Late,
            Judged::NoAccount("there is no account alice".to_owned()),
            Judged::Late,
            Judged::Refused("no such directory.".to_owned()),
        ];
        let mut report = Report::default();
        tell_all(&mut report, "dtn1:7512", &roots, &found);
        let mut text = Vec::new();
        report.write(&mut text).expect("written");
        let text = String::from_utf8(text).expect("UTF-8");
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "warning  nodes: dtn1:7512: the root /srv/2 of [[authorize]] table 2 was not tried, because alice cannot be used \
                 there: there is no account alice.",
                "error    nodes: dtn1:7512: it refuses the root /srv/4 of [[authorize]] table 4 to alice: no such directory. Nodes \
                 need the same directories, beneath their own root",
                "error    nodes: dtn1:7512: it has not opened the root /srv/1 of [[authorize]] table 1 and 1 other root in time: \
                 does its file system hang?",
                "2 errors, 1 warning",
            ]
        );
    }
}
