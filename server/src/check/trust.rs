//! The trust directory.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use gridhaul_security::files::TrustDirectory;
use gridhaul_security::trust::{RevocationList, TrustProblem, TrustStore};

use super::Depth;
use super::certificate::{lifetime, time};
use super::report::{Report, Verdict, counted};
use crate::privileges;

const ABOUT: &str = "trust";
const REVOCATION: &str = "revocation";

/// Revocation lists are valid for days, and are fetched several times a day.
const SOON: Duration = Duration::from_secs(24 * 3600);

/// Checks the authorities that the server trusts; returns them, if there is a directory.
pub(super) fn check(
    report: &mut Report,
    path: &Path,
    user: &str,
    now: SystemTime,
    depth: Depth,
) -> Option<Arc<TrustStore>> {
    let shown = path.display();
    let directory = match TrustDirectory::open(path) {
        Ok(directory) => directory,
        Err(error) => {
            report.error(ABOUT, error);
            return None;
        }
    };
    let store = directory.current();
    let authorities = match store.authorities().count() {
        1 => "1 authority".to_owned(),
        count => format!("{count} authorities"),
    };
    let lists = counted(store.revocation_lists().count(), "revocation list");
    let text = format!("{shown} has {authorities} and {lists}");
    if store.authorities().next().is_none() {
        report.error(
            ABOUT,
            format!("{text}: no user can log in with a certificate"),
        );
    } else {
        report.ok(ABOUT, text);
    }
    if depth.names_unused {
        let (grave, others): (Vec<_>, Vec<_>) = directory
            .problems()
            .into_iter()
            .partition(|problem| problem.is_grave);
        let told = |problem: TrustProblem| format!("{shown}/{}: {}", problem.file, problem.reason);
        report.problems(Verdict::Error, REVOCATION, grave.into_iter().map(told));
        report.problems(Verdict::Warning, ABOUT, others.into_iter().map(told));
    }
    check_readable(report, path, user);
    check_authorities(report, &store, now);
    check_lists(report, &store, now);
    Some(store)
}

/// A file that the server cannot read again does not change for it: a new list counts only after a restart, and the old one
/// expires.
fn check_readable(report: &mut Report, path: &Path, user: &str) {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    check_directory(report, ABOUT, path, user);
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let files = entries
        .map(|entry| entry.path())
        .filter(|file| file.is_file());
    let mut unreadable: Vec<_> = files
        .filter(|file| !privileges::may_read(user, file))
        .map(|file| {
            format!(
                "{} cannot be read by {user}, as which the server runs, so that changes need a \
                 restart: chmod o+r it",
                file.display()
            )
        })
        .collect();
    unreadable.sort();
    report.problems(Verdict::Warning, ABOUT, unreadable);
}

/// The monitor opens no directories.
pub(super) fn check_directory(report: &mut Report, about: &'static str, path: &Path, user: &str) {
    if rustix::process::geteuid().is_root() && !privileges::may_reach(user, path) {
        let path = path.display();
        report.warning(
            about,
            format!(
                "{path} cannot be read again by {user}, as which the server runs, so that changes need a restart: \
                 chmod o+rx it and the directories above it"
            ),
        );
    }
}

/// Other authorities still work, so these problems are warnings.
fn check_authorities(report: &mut Report, store: &TrustStore, now: SystemTime) {
    let mut weak = Vec::new();
    for authority in store.authorities() {
        let name = authority.subject();
        if !store.has_signing_policy(name) {
            weak.push(format!(
                "{name} has no signing policy, so that no certificate of this authority is accepted: install \
                 its .signing_policy file beside it"
            ));
        }
        let (verdict, text) = lifetime(authority.validity(), now);
        if verdict != Verdict::Ok {
            weak.push(format!("{name} {text}"));
        }
    }
    weak.sort();
    report.problems(Verdict::Warning, ABOUT, weak);
}

/// The certificates of an authority whose list has expired are refused.
fn check_lists(report: &mut Report, store: &TrustStore, now: SystemTime) {
    let mut dead = Vec::new();
    let mut dying = Vec::new();
    for list in store.revocation_lists() {
        let issuer = list.issuer();
        match standing(list, now) {
            (Verdict::Ok | Verdict::Unknown, _) => {}
            (Verdict::Warning, text) => dying.push(format!("the list of {issuer} {text}")),
            (Verdict::Error, text) => dead.push(format!("the list of {issuer} {text}")),
        }
    }
    dead.sort();
    dying.sort();
    report.problems(Verdict::Error, REVOCATION, dead);
    report.problems(Verdict::Warning, REVOCATION, dying);
}

fn standing(list: &RevocationList, now: SystemTime) -> (Verdict, String) {
    if list.this_update() > now {
        let text = format!(
            "was made on {}, and the clock says {}: set the clock",
            time(list.this_update()),
            time(now)
        );
        return (Verdict::Error, text);
    }
    match list.next_update() {
        Some(end) if end < now => (
            Verdict::Error,
            format!(
                "has expired on {}, so that no certificate of this authority is accepted: fetch a new one \
                 (fetch-crl)",
                time(end)
            ),
        ),
        Some(end) if end < now + SOON => (
            Verdict::Warning,
            format!("expires on {}: fetch a new one (fetch-crl)", time(end)),
        ),
        _ => (Verdict::Ok, String::new()),
    }
}
