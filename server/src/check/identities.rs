//! The authorization of identities: the grid-mapfile, the accounts in it and in rules, the vomsdir.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use gridhaul_accounts::{AccountRequest, open_own};
use gridhaul_security::files::{GridmapFile, VomsDirectory};

use super::Depth;
use super::authorization::check_pools;
use super::files::{check_exposed, check_read_again};
use super::report::{Report, Verdict, counted};
use super::trust::check_directory;
use crate::config::{Config, Gsi, Outcome, Rule};
use crate::validate::Validated;

pub(super) fn check(report: &mut Report, validated: &Validated, gsi: &Gsi, depth: Depth) {
    let config = &validated.config;
    // The place that names each account.
    let mut accounts = BTreeMap::new();
    if let Some(path) = &gsi.gridmap
        && !validated.is_wrong("gridmap")
    {
        check_gridmap(report, config, (path, depth), &mut accounts);
    }
    let of_map: BTreeSet<String> = accounts.keys().cloned().collect();
    for (account, _) in accounts_of_rules(gsi) {
        let by = accounts.entry(account.to_owned());
        by.or_insert_with(|| "an [[authorize]] rule".to_owned());
    }
    check_pools(report, config, &mut accounts);
    accounts.retain(|account, _| of_map.contains(account));
    check_rules(report, validated, gsi, depth.accounts);
    check_accounts(report, config, &accounts, depth.accounts);
    match gsi.allow_independent_proxies {
        false => report.ok("proxies", "independent ones (RFC 3820) are refused"),
        true => report.warning(
            "proxies",
            "allow-independent-proxies: users give themselves further identities, which rules and the \
             grid-mapfile see; only rules with deny = true see the users too",
        ),
    }
    let asked = gsi.rules.iter().any(Rule::asks_for_attributes);
    match &gsi.vomsdir {
        Some(_) if validated.is_wrong("vomsdir") => {}
        Some(path) => {
            check_vomsdir(report, path, asked, depth);
            check_directory(report, "vomsdir", path, &config.user);
        }
        None => report.ok(
            "vomsdir",
            "there is none, so VOMS attributes count for nothing",
        ),
    }
}

fn check_gridmap(
    report: &mut Report,
    config: &Config,
    (path, depth): (&Path, Depth),
    accounts: &mut BTreeMap<String, String>,
) {
    const ABOUT: &str = "gridmap";
    let shown = path.display();
    let file = match GridmapFile::open(path) {
        Ok(file) => file,
        Err(error) => return report.error(ABOUT, error),
    };
    let gridmap = file.current();
    for entry in gridmap.entries() {
        for account in &entry.accounts {
            let by = accounts.entry(account.clone());
            by.or_insert_with(|| format!("line {} of {shown}", entry.line));
        }
    }
    match gridmap.entries().len() {
        0 => report.warning(ABOUT, format!("{shown} maps no users")),
        subjects => report.ok(
            ABOUT,
            format!("{shown} maps {}", counted(subjects, "subject")),
        ),
    }
    if depth.names_unused {
        let problems = file.problems();
        let problems = problems.iter().map(|problem| format!("{shown}, {problem}"));
        report.problems(Verdict::Error, ABOUT, problems);
    }
    check_exposed(report, ABOUT, path, "map themselves");
    check_read_again(report, ABOUT, path, &config.user);
}

/// The accounts that the grid-mapfile and rules name, without pools.
pub(super) fn account_names(gsi: &Gsi) -> BTreeSet<String> {
    let of_rules = accounts_of_rules(gsi).map(|(account, _)| account.to_owned());
    let of_rules = of_rules.filter(|account| !account.starts_with('.'));
    mapped_accounts(gsi).into_iter().chain(of_rules).collect()
}

/// The accounts that the grid-mapfile names, without pools.
pub(super) fn mapped_accounts(gsi: &Gsi) -> BTreeSet<String> {
    let gridmap = gsi.gridmap.as_ref();
    // A file that cannot be read is an error of its own.
    let gridmap = gridmap.and_then(|path| GridmapFile::open(path).ok());
    let gridmap = gridmap.map(|file| file.current());
    let entries = gridmap.iter().flat_map(|gridmap| gridmap.entries());
    let all = entries.flat_map(|entry| entry.accounts.iter().cloned());
    all.filter(|account| !account.starts_with('.')).collect()
}

/// The accounts that rules name, with the number of the table, from 0.
fn accounts_of_rules(gsi: &Gsi) -> impl Iterator<Item = (&str, usize)> {
    let rules = gsi.rules.iter().enumerate();
    rules.filter_map(|(index, rule)| match rule.outcome() {
        Outcome::Grant {
            account: Some(account),
            ..
        } => Some((account.as_str(), index)),
        _ => None,
    })
}

/// All users of a rule have one account. A check that is not run as root cannot tell which ones the server may use.
fn check_rules(report: &mut Report, validated: &Validated, gsi: &Gsi, most: usize) {
    let verdict = match rustix::process::geteuid().is_root() {
        true => Verdict::Error,
        false => Verdict::Warning,
    };
    let accounts = accounts_of_rules(gsi).filter(|(account, _)| !account.starts_with('.'));
    for (account, index) in accounts.take(most) {
        if let Some(refusal) = refusal(&validated.config, account) {
            let text = format!(
                "[[authorize]] table {}: {refusal}. Until then none of its users can log in",
                index + 1
            );
            let problem = validated.problem_of_table("authorize", index, text);
            report.settings(verdict, &[problem]);
        }
    }
}

fn check_accounts(
    report: &mut Report,
    config: &Config,
    accounts: &BTreeMap<String, String>,
    most: usize,
) {
    const ABOUT: &str = "accounts";
    if accounts.is_empty() {
        return;
    }
    let looked_at = accounts.len().min(most);
    let refused: Vec<String> = accounts
        .iter()
        .take(most)
        .filter_map(|(account, by)| {
            let refusal = refusal(config, account)?;
            Some(format!("{by}: {refusal}"))
        })
        .collect();
    let usable = looked_at - refused.len();
    let text = format!("{usable} of {} can be used", counted(looked_at, "account"));
    // Maps keep entries of people who have left. A map without any usable account is a mistake.
    if usable == 0 && looked_at > 0 && looked_at == accounts.len() {
        report.error(ABOUT, text);
    } else {
        report.ok(ABOUT, text);
    }
    report.problems(Verdict::Warning, ABOUT, refused);
    if looked_at < accounts.len() {
        let more = accounts.len() - looked_at;
        report.warning(ABOUT, format!("{more} more were not looked at"));
    }
}

/// The reason why an account cannot be used, if there is one.
fn refusal(config: &Config, account: &str) -> Option<String> {
    if rustix::process::geteuid().is_root() {
        let refusal = config.accounts.monitor.policy.check_name(account).err()?;
        return Some(refusal.to_string());
    }
    let request = AccountRequest {
        account: account.to_owned(),
        root: config.root.clone(),
        read_only: true,
        file_mode: config.perms,
    };
    let error = open_own(&request).err()?;
    Some(error.to_string())
}

fn check_vomsdir(report: &mut Report, path: &Path, asked: bool, depth: Depth) {
    const ABOUT: &str = "vomsdir";
    let shown = path.display();
    let directory = match VomsDirectory::open(path) {
        Ok(directory) => directory,
        Err(error) => return report.error(ABOUT, error),
    };
    let servers = directory.current();
    let organizations: Vec<_> = servers.organizations().collect();
    if organizations.is_empty() {
        let verdict = if asked { Verdict::Error } else { Verdict::Ok };
        report.add(
            verdict,
            ABOUT,
            format!("{shown} names no server: VOMS attributes count for nothing"),
        );
    } else {
        report.ok(
            ABOUT,
            format!("{shown} names servers of {}", organizations.join(", ")),
        );
    }
    if depth.names_unused {
        report.problems(Verdict::Error, ABOUT, directory.problems());
    }
}
