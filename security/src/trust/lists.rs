//! Which revocation lists count, and which authorities are not believed for want of one.
//!
//! A file that should hold a list and holds none that can be used must not open a door: what it held when
//! it was last usable stays in use, and without that no certificate of its authority is accepted.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::SystemTime;

use super::Directory;
use super::file::{FileDefect, TrustFile, stem};
use super::problem::TrustProblem;
use super::revocation::RevocationList;
use super::signing_policy::Authority;
use crate::name::{CanonicalName, Name};

/// Authorities whose revocation lists cannot be used, each with the file at fault.
#[derive(Debug, Default)]
pub(super) struct Unusable {
    by_name: HashMap<CanonicalName, String>,
    /// Those of which only the signing policy is in the directory.
    by_policy: HashMap<Authority, String>,
    /// Files with lists of authorities of which only the signing policy is there: a list counts only if
    /// its issuer is the authority, for which the policy's text is not enough.
    expected: HashMap<Authority, String>,
    /// A file of which nothing says whose lists it should hold: it may be that of any authority without
    /// a list.
    of_anybody: Option<String>,
}

impl Unusable {
    /// The file because of which no certificate of this authority may be accepted.
    pub(super) fn file_of(&self, authority: &Name, has_list: bool) -> Option<&str> {
        let named = || self.by_policy.get(&Authority::named(authority.one_line()));
        let without_list = || {
            let expected = || self.expected.get(&Authority::named(authority.one_line()));
            self.of_anybody.as_ref().or_else(expected)
        };
        let by_name = self.by_name.get(authority.canonical());
        let found = by_name.or_else(named);
        let found = found.or_else(|| without_list().filter(|_| !has_list));
        found.map(String::as_str)
    }
}

/// Whom the files with a stem are about.
#[derive(Debug, Default)]
pub(super) struct Stems<'a> {
    pub(super) names: HashMap<&'a str, Vec<Name>>,
    pub(super) policies: HashMap<&'a str, HashSet<Authority>>,
}

impl Stems<'_> {
    /// Whether the files with this one's stem are about an authority; `None` if nothing says whom they
    /// are about.
    fn are_about(&self, file: &str, authority: &Name) -> Option<bool> {
        let names = self.names.get(stem(file)).map_or(&[][..], Vec::as_slice);
        let policies = self.policies.get(stem(file)).into_iter().flatten();
        let policies: Vec<_> = policies
            .filter(|about| **about != Authority::Anybody)
            .collect();
        if names.is_empty() && policies.is_empty() {
            return None;
        }
        // Names of several encodings have one text, so that certificates go before policies.
        Some(match names.is_empty() {
            true => policies.contains(&&Authority::named(authority.one_line())),
            false => names.iter().any(|name| name.matches(authority)),
        })
    }
}

/// Whether the lists of the file `name` can be used. `before` is what it held when it was last usable.
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
    // One wrong byte in the name of its issuer makes it the list of another authority.
    let missing = missing_issuer(directory, stems, name, lists, before);
    if let Some(missing) = missing {
        let reason = format!("it is no revocation list of {missing}: fetch it anew (fetch-crl)");
        return Err(reason.into());
    }
    for list in lists {
        let name = list.issuer();
        let authorities = directory.authorities.get(name.canonical());
        // Of authorities that are not in the directory the key is not known yet.
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
        // One that was made in the future is a mistake, which the next one mends.
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

/// Whose list should be in a file, and is not.
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

/// Adds the lists of a file, which count.
pub(super) fn add(
    directory: &mut Directory,
    stems: &Stems<'_>,
    file: &str,
    lists: &[Arc<RevocationList>],
) {
    if !stems.names.contains_key(stem(file)) {
        for authority in stems.policies.get(stem(file)).into_iter().flatten() {
            if *authority != Authority::Anybody {
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

/// Notes that the lists of a file cannot be used, and that nothing takes their place.
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
        .filter(|authority| **authority != Authority::Anybody)
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
            unusable.of_anybody.get_or_insert_with(|| file.to_owned());
            "of an authority without a revocation list (nothing says whose list this is)".to_owned()
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
