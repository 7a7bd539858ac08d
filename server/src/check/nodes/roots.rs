//! Whether nodes open the roots of `[[authorize]]` rules: a node serves only what is beneath its own root, and opens it with the rights of
//! the account.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::accounts::People;
use super::patience::{HANGS_AFTER, Patience, TOTAL};
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
    let (queues, trials): (Vec<_>, Vec<_>) = queues.unzip();
    let answers = patience.queues(LIMIT, (queues, WIDTH), |attempt: Attempt| attempt.make());
    let Ok(answers) = answers else { return };
    let now = Instant::now();
    let mut all_have = true;
    for ((node, answers), trials) in nodes.iter().zip(answers).zip(trials) {
        let outcomes = trials.into_iter().zip(answers);
        let outcomes = outcomes.map(|(trial, answer)| (trial.place, trial.outcome(answer, now)));
        let found = judge(roots.len(), outcomes);
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
    trial: Trial,
    account: String,
    known: Arc<Known>,
}

/// What is known of an attempt that has not ended.
#[derive(Debug, Clone)]
struct Trial {
    /// The position of the root.
    place: usize,
    /// When it began.
    began: Arc<OnceLock<Instant>>,
}

/// How an attempt has ended when the time is over.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Tried {
    Answered(Answer),
    /// The node has had time enough.
    Hangs,
    /// It has not begun, or only now.
    Untried,
}

impl Trial {
    fn outcome(&self, answer: Option<Answer>, now: Instant) -> Tried {
        let hangs = |began: &Instant| now.duration_since(*began) >= HANGS_AFTER;
        match answer {
            Some(answer) => Tried::Answered(answer),
            None if self.began.get().is_some_and(hangs) => Tried::Hangs,
            None => Tried::Untried,
        }
    }
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
/// others from being tried.
fn attempts(
    people: &Arc<People>,
    node: &Arc<Node>,
    roots: &Arc<Vec<RuleRoot>>,
) -> (Vec<Attempt>, Vec<Trial>) {
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
        let trial = Trial {
            place,
            began: Arc::default(),
        };
        let attempt = Attempt {
            people: Arc::clone(people),
            node: Arc::clone(node),
            roots: Arc::clone(roots),
            trial: trial.clone(),
            account: account.clone(),
            known: Arc::clone(&known),
        };
        (attempt, trial)
    });
    attempts.unzip()
}

impl Attempt {
    fn make(&self) -> Answer {
        let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let (people, node, account) = (&self.people, &self.node, Some(self.account.as_str()));
        self.trial.began.get_or_init(Instant::now);
        let usable = &self.known.usable[self.trial.place];
        if usable.load(Ordering::Acquire) {
            return Answer::Usable;
        }
        let root = &self.roots[self.trial.place].root;
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
    /// The node does not answer for an account.
    Hangs,
    /// Not all accounts were tried in time, and it cannot be used by those that were.
    Untried,
    /// Why it cannot be used by the first account for which the reason is the root.
    Refused(String),
    /// Why the first account cannot be used. Nor can the others, so the root was not tried.
    NoAccount(String),
}

/// For each of `count` roots. The outcomes come with the position of their root.
fn judge(count: usize, outcomes: impl Iterator<Item = (usize, Tried)>) -> Vec<Judged> {
    let mut of_roots = vec![Vec::new(); count];
    for (place, outcome) in outcomes {
        of_roots[place].push(outcome);
    }
    let of_roots = of_roots.iter();
    of_roots.map(|outcomes| judge_one(outcomes)).collect()
}

fn judge_one(outcomes: &[Tried]) -> Judged {
    if outcomes.contains(&Tried::Answered(Answer::Usable)) {
        return Judged::Usable;
    }
    if outcomes.contains(&Tried::Hangs) {
        return Judged::Hangs;
    }
    if outcomes.contains(&Tried::Untried) {
        return Judged::Untried;
    }
    let refused = outcomes.iter().find_map(|outcome| match outcome {
        Tried::Answered(Answer::Refused(reason)) => Some(Judged::Refused(reason.clone())),
        _ => None,
    });
    let no_account = outcomes.iter().find_map(|outcome| match outcome {
        Tried::Answered(Answer::NoAccount(reason)) => Some(Judged::NoAccount(reason.clone())),
        _ => None,
    });
    // Each root has an account, so there is an answer.
    refused.or(no_account).unwrap_or(Judged::Untried)
}

fn tell_all(report: &mut Report, node: &str, roots: &[RuleRoot], found: &[Judged]) {
    let (mut hanging, mut untried) = (Vec::new(), Vec::new());
    for (root, found) in roots.iter().zip(found) {
        match found {
            Judged::Usable => {}
            Judged::Hangs => hanging.push(root),
            Judged::Untried => untried.push(root),
            Judged::Refused(reason) => tell_refused(report, node, root, reason),
            Judged::NoAccount(reason) => tell_no_account(report, node, root, reason),
        }
    }
    if let [first, others @ ..] = hanging.as_slice() {
        let others = match others.len() {
            0 => String::new(),
            count => format!(" and {}", counted(count, "other root")),
        };
        let text = format!(
            "it has not opened {}{others} within {} s: does its file system hang?",
            first.name(),
            HANGS_AFTER.as_secs()
        );
        report.error(ABOUT, of(node, &text));
    }
    if let Some(first) = untried.first() {
        let text = format!(
            "the time was over before all accounts were tried for {} of [[authorize]], which says nothing about their file \
             systems. The first is {}. A node has {} s for its roots, and all nodes have {} s for everything: check again when they \
             are less busy, or log in as a user of each rule and list a directory",
            counted(untried.len(), "root"),
            first.name(),
            LIMIT.as_secs(),
            TOTAL.as_secs()
        );
        report.warning(ABOUT, of(node, &text));
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
fn tell_no_account(report: &mut Report, node: &str, root: &RuleRoot, reason: &str) {
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

    fn refused(text: &str) -> Tried {
        Tried::Answered(Answer::Refused(text.to_owned()))
    }

    fn no_account(text: &str) -> Tried {
        Tried::Answered(Answer::NoAccount(text.to_owned()))
    }

    #[test]
    fn a_root_is_usable_if_one_account_can_use_it_and_untried_if_none_can_be_used() {
        let usable = Tried::Answered(Answer::Usable);
        let because = |text: &str| text.to_owned();
        for (outcomes, expected) in [
            (vec![usable.clone()], Judged::Usable),
            (vec![refused("a"), usable.clone()], Judged::Usable),
            (
                vec![Tried::Untried, usable.clone(), Tried::Hangs],
                Judged::Usable,
            ),
            (
                vec![refused("a"), Tried::Untried, refused("b")],
                Judged::Untried,
            ),
            (
                vec![Tried::Untried, Tried::Hangs, refused("b")],
                Judged::Hangs,
            ),
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
            let own = outcomes.iter().cloned().map(|outcome| (1, outcome));
            let others = [(0, refused("x")), (2, usable.clone())];
            let found = judge(3, own.chain(others));
            assert_eq!(found[1], expected, "{outcomes:?}");
            assert_eq!(found[0], Judged::Refused(because("x")));
            assert_eq!(found[2], Judged::Usable);
        }
    }

    /// Only a node that has had time enough is said to hang.
    #[test]
    fn an_attempt_that_has_just_begun_does_not_hang() {
        let trial = Trial {
            place: 0,
            began: Arc::default(),
        };
        let began = Instant::now();
        let late = began + LIMIT;
        assert_eq!(trial.outcome(None, late), Tried::Untried);
        trial.began.set(began).expect("once");
        let soon = began + HANGS_AFTER / 2;
        assert_eq!(trial.outcome(None, soon), Tried::Untried);
        assert_eq!(trial.outcome(None, late), Tried::Hangs);
        let answer = Some(Answer::Usable);
        let expected = Tried::Answered(Answer::Usable);
        assert_eq!(trial.outcome(answer, late), expected);
    }

    /// The lines about roots of a node of which this was found.
    fn lines(found: &[Judged]) -> Vec<String> {
        let roots: Vec<_> = (1..=found.len())
            .map(|table| RuleRoot {
                table,
                root: format!("/srv/{table}").into(),
                accounts: vec!["alice".to_owned()],
                has_others: false,
            })
            .collect();
        let mut report = Report::default();
        tell_all(&mut report, "dtn1:7512", &roots, found);
        let mut text = Vec::new();
        report.write(&mut text).expect("written");
        let text = String::from_utf8(text).expect("UTF-8");
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn roots_that_hang_are_one_line_of_their_node() {
        let found = [
            Judged::Hangs,
            Judged::NoAccount("there is no account alice".to_owned()),
            Judged::Hangs,
            Judged::Refused("no such directory.".to_owned()),
        ];
        assert_eq!(
            lines(&found),
            [
                "warning  nodes: dtn1:7512: the root /srv/2 of [[authorize]] table 2 was not tried, because alice cannot be used \
                 there: there is no account alice.",
                "error    nodes: dtn1:7512: it refuses the root /srv/4 of [[authorize]] table 4 to alice: no such directory. Nodes \
                 need the same directories, beneath their own root",
                "error    nodes: dtn1:7512: it has not opened the root /srv/1 of [[authorize]] table 1 and 1 other root within \
                 5 s: does its file system hang?",
                "2 errors, 1 warning",
            ]
        );
    }

    #[test]
    fn a_node_is_not_blamed_for_roots_without_time() {
        let found = [Judged::Usable, Judged::Untried, Judged::Untried];
        let lines = lines(&found);
        assert_eq!(
            lines[0],
            "warning  nodes: dtn1:7512: the time was over before all accounts were tried for 2 roots of [[authorize]], which says \
             nothing about their file systems. The first is the root /srv/2 of [[authorize]] table 2. A node has 20 s for its roots, \
             and all nodes have 60 s for everything: check again when they are less busy, or log in as a user of each rule and list \
             a directory"
        );
        assert_eq!(lines[1], "0 errors, 1 warning");
    }
}
