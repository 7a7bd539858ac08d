//! Roots of users beside `root`: those of rules and of users with passwords, and the roots that `atomic-uploads` names.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::Validated;
use crate::config::{AtomicRoot, Config, Outcome};
use crate::passwords::Passwords;
use crate::privileges;

/// `passwords` is `None` if there are no such users, or their file cannot be used.
pub(super) fn check(validated: &mut Validated, config: &Config, passwords: Option<&Passwords>) {
    let of_rules = check_rules(validated, config);
    let of_users: BTreeSet<PathBuf> = passwords
        .iter()
        .flat_map(|passwords| passwords.grants())
        .filter_map(|grant| grant.root.clone())
        .collect();
    check_users(validated, config, &of_users);
    if !validated.is_wrong("passwords") {
        let mut all = of_users;
        all.extend(of_rules);
        all.insert(config.root.clone());
        check_atomic(validated, config, &all);
    }
}

/// Returns the roots.
fn check_rules(validated: &mut Validated, config: &Config) -> Vec<PathBuf> {
    let gsi = config.security.gsi.iter();
    let mut roots = Vec::new();
    for (index, rule) in gsi.flat_map(|gsi| &gsi.rules).enumerate() {
        let Outcome::Grant {
            root: Some(root), ..
        } = rule.outcome()
        else {
            continue;
        };
        roots.push(root.clone());
        if is_of_account(root) {
            continue;
        }
        // It is opened with the rights of the account, which may have other rights than this process.
        let problem = match fs::metadata(root) {
            Ok(found) if found.is_dir() => continue,
            Ok(_) => "it is no directory".to_owned(),
            Err(error) => match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => error.to_string(),
                _ => continue,
            },
        };
        let text = format!(
            "[[authorize]] table {}: root: {}: {problem}, so none of its users could log in; make the directory, or name \
             another one",
            index + 1,
            root.display()
        );
        validated.error_of_table("authorize", index, text);
    }
    roots
}

/// Another directory for each account.
fn is_of_account(root: &Path) -> bool {
    let of_account = |part: &OsStr| part == "$HOME" || part == "$USER";
    root.iter().any(of_account)
}

/// Opened when the user logs in, with the rights of the account that serves.
fn check_users(validated: &mut Validated, config: &Config, roots: &BTreeSet<PathBuf>) {
    for root in roots {
        let is_open = match privileges::is_root() {
            true => privileges::may_reach(&config.user, root),
            false => fs::read_dir(root).is_ok(),
        };
        if !is_open {
            let text = format!(
                "passwords: {} is the root of a user who cannot log in: the directory is missing, or the account of the \
                 server may not enter it; chmod o+rx it and the directories above it, or name another account with --user",
                root.display()
            );
            validated.warning("passwords", text);
        }
    }
}

/// Uploads are looked up by the root of their session, as the configuration writes it.
fn check_atomic(validated: &mut Validated, config: &Config, roots: &BTreeSet<PathBuf>) {
    /// Each user with a password may have one.
    const SHOWN: usize = 5;

    let shown: Vec<_> = roots
        .iter()
        .take(SHOWN)
        .map(|root| root.display().to_string())
        .collect();
    for named in &config.atomic_uploads {
        if let AtomicRoot::Root(path) = named
            && !roots.contains(path)
        {
            let text = format!(
                "atomic-uploads: {} is the root of no session, so it would have no effect: name one as the configuration \
                 writes it, such as {}, or * for all of them",
                path.display(),
                shown.join(", ")
            );
            validated.error("atomic-uploads", text);
        }
    }
}
