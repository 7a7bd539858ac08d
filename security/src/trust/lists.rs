//! Decides which revocation lists are used, and which authorities are refused because theirs is unusable.
//!
//! Damage to the file of a revocation list must not make revoked certificates acceptable. So the last usable content of the
//! file stays in use, and without one no certificate of the authority is accepted.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::SystemTime;

use super::Directory;
use super::file::{FileDefect, TrustFile, stem};
use super::problem::TrustProblem;
use super::revocation::RevocationList;
use super::signing_policy::Authority;
use crate::name::{CanonicalName, Name};

/// Authorities whose revocation lists are unusable, each with the defective file.
#[derive(Debug, Default)]
pub(super) struct Unusable {
    by_name: HashMap<CanonicalName, String>,
    /// Authorities with only a signing policy in the directory.
    by_policy: HashMap<Authority, String>,
    /// Files with lists of authorities that have only a signing policy in the directory. The issuer of the list must be the
    /// authority, which the text of the policy does not prove.
    expected: HashMap<Authority, String>,
    /// A defective file whose authority is unknown. It may belong to any authority without a list.
    of_unknown: Option<String>,
}

impl Unusable {
    /// The defective file because of which no certificate of this authority may be accepted.
    pub(super) fn file_of(&self, authority: &Name, has_list: bool) -> Option<&str> {
        let named = || self.by_policy.get(&Authority::named(authority.one_line()));
        let without_list = || {
            let expected = || self.expected.get(&Authority::named(authority.one_line()));
            self.of_unknown.as_ref().or_else(expected)
        };
        let by_name = self.by_name.get(authority.canonical());
        let found = by_name.or_else(named);
        let found = found.or_else(|| without_list().filter(|_| !has_list));
        found.map(String::as_str)
    }
}

/// The authorities of the files with the same stem.
#[derive(Debug, Default)]
pub(super) struct Stems<'a> {
    pub(super) names: HashMap<&'a str, Vec<Name>>,
    pub(super) policies: HashMap<&'a str, HashSet<Authority>>,
}

impl Stems<'_> {
    /// Whether the files with the stem of this file belong to an authority; `None` if their authority is unknown.
    fn are_about(&self, file: &str, authority: &Name) -> Option<bool> {
        let names = self.names.get(stem(file)).map_or(&[][..], Vec::as_slice);
        let policies = self.policies.get(stem(file)).into_iter().flatten();
        let policies: Vec<_> = policies.filter(|about| **about != Authority::Any).collect();
        if names.is_empty() && policies.is_empty() {
            return None;
        }
        // Several encodings of a name have the same text, so certificates take precedence over policies.
        Some(match names.is_empty() {
            true => policies.contains(&&Authority::named(authority.one_line())),
            false => names.iter().any(|name| name.matches(authority)),
        })
    }
}

/// Checks whether the lists of the file `name` are usable. `before` is the last usable content of the file.
pub(super) fn judge(
    directory: &Directory,
    stems: &Stems<'_>,
    name: &str,
    file: &TrustFile,
    before: Option<&TrustFile>,
    now: SystemTime,
) -> Result<(), FileDefect> {
    let lists = file.revocation_lists();
    let defect = |reason: String| FileDefect {
        reason,
        issuers: lists.iter().map(|list| list.issuer().clone()).collect(),
    };
    // A damaged issuer name would make it the list of another authority.
    let missing = missing_issuer(directory, stems, name, lists, before);
    if let Some(missing) = missing {
        let reason = format!("it is no revocation list of {missing}: fetch it anew (fetch-crl)");
        return Err(reason.into());
    }
    for list in lists {
        let name = list.issuer();
        let authorities = directory.authorities.get(name.canonical());
        // The key of an authority that is not in the directory is unknown.
        let Some(authorities) = authorities else {
            continue;
        };
        if !authorities.iter().any(|one| list.is_signed_by(one)) {
            let may_sign = authorities
                .iter()
                .any(|one| one.key_usage().is_none_or(|usage| usage.may_sign_lists));
            return Err(defect(match may_sign {
                true => format!(
                    "the signature of the revocation list of {name} is wrong: fetch it anew \
                     (fetch-crl)"
                ),
                false => format!(
                    "the certificate of {name} does not allow it to sign revocation lists (key usage \
                     cRLSign): fetch its new certificate"
                ),
            }));
        }
        // An older list is accepted if the previous one was dated in the future by mistake.
        let newer = before.and_then(|before| {
            let mut lists = before.revocation_lists().iter();
            lists.find(|old| old.replaces(list) && old.this_update() <= now)
        });
        if newer.is_some() {
            return Err(defect(format!(
                "the revocation list of {name} is older than the one that was there: fetch it anew \
                 (fetch-crl), or restart the server to use it"
            )));
        }
    }
    Ok(())
}

/// The authority whose list should be in a file but is missing.
fn missing_issuer(
    directory: &Directory,
    stems: &Stems<'_>,
    file: &str,
    lists: &[Arc<RevocationList>],
    before: Option<&TrustFile>,
) -> Option<String> {
    let has = |issuer: &Name| lists.iter().any(|list| list.issuer().matches(issuer));
    let before = before.map_or(&[][..], TrustFile::revocation_lists);
    let lost = before.iter().map(|list| list.issuer());
    if let Some(lost) = lost.into_iter().find(|issuer| !has(issuer)) {
        return Some(lost.to_string());
    }
    let is_foreign = |list: &Arc<RevocationList>| {
        let is_about = stems.are_about(file, list.issuer());
        is_about == Some(false)
    };
    let is_unknown = |list: &Arc<RevocationList>| {
        let name = list.issuer().canonical();
        !directory.authorities.contains_key(name)
    };
    let is_wrong = lists.iter().all(is_foreign)
        || lists
            .iter()
            .any(|list| is_foreign(list) && is_unknown(list));
    is_wrong.then(|| "the authority whose other files have that name".to_owned())
}

/// Adds the usable lists of a file.
pub(super) fn add(
    directory: &mut Directory,
    stems: &Stems<'_>,
    file: &str,
    lists: &[Arc<RevocationList>],
) {
    if !stems.names.contains_key(stem(file)) {
        for authority in stems.policies.get(stem(file)).into_iter().flatten() {
            if *authority != Authority::Any {
                let expected = &mut directory.unusable.expected;
                expected.insert(authority.clone(), file.to_owned());
            }
        }
    }
    for list in lists {
        let name = Arc::clone(list.issuer().canonical());
        let same_issuer = directory.revocation_lists.entry(name).or_default();
        if same_issuer.iter().all(|known| known.der() != list.der()) {
            same_issuer.push(Arc::clone(list));
        }
    }
}

/// Marks the lists of a file as unusable, without a replacement.
pub(super) fn refuse(
    directory: &mut Directory,
    stems: &Stems<'_>,
    file: &str,
    defect: FileDefect,
) -> TrustProblem {
    let unusable = &mut directory.unusable;
    let mut owners = defect.issuers;
    owners.extend(stems.names.get(stem(file)).into_iter().flatten().cloned());
    for owner in &owners {
        let entry = unusable.by_name.entry(Arc::clone(owner.canonical()));
        entry.or_insert_with(|| file.to_owned());
    }
    let policies: Vec<_> = stems
        .policies
        .get(stem(file))
        .into_iter()
        .flatten()
        .filter(|authority| **authority != Authority::Any)
        .collect();
    for authority in &policies {
        let entry = unusable.by_policy.entry((*authority).clone());
        entry.or_insert_with(|| file.to_owned());
    }
    let mut names: Vec<_> = owners.iter().map(Name::to_string).collect();
    names.sort();
    names.dedup();
    let whom = match (&names[..], &policies[..]) {
        ([], []) => {
            unusable.of_unknown.get_or_insert_with(|| file.to_owned());
            "of an authority without a revocation list (the file does not identify its authority)"
                .to_owned()
        }
        ([], _) => "of the authority of that name".to_owned(),
        (names, _) => format!("of {}", names.join(", ")),
    };
    let reason = defect.reason;
    TrustProblem {
        file: file.to_owned(),
        reason: format!("{reason}; until then no certificate {whom} is accepted"),
        is_grave: true,
    }
}
