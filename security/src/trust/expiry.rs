//! The ends of validity of what a trust directory contains, for monitoring.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::SystemTime;

use super::Directory;
use super::file::TrustFile;

/// An authority or a revocation list of a trust directory, and when it ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustExpiry {
    /// What it is.
    pub kind: TrustExpiryKind,
    /// The authority, in one-line form.
    pub name: String,
    /// The name of its file in the directory, the first one if links lead to it.
    pub file: String,
    /// The end of its validity.
    pub expires: SystemTime,
}

/// What ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TrustExpiryKind {
    /// The certificate of an authority.
    Authority,
    /// A revocation list: `nextUpdate` (RFC 5280 5.1.2.5).
    RevocationList,
}

/// The certificates and lists in use, each once, by kind and file. Lists without an end are left out.
pub(super) fn of(directory: &Directory, files: &HashMap<String, TrustFile>) -> Arc<[TrustExpiry]> {
    let files: BTreeMap<_, _> = files.iter().collect();
    let mut seen: HashSet<&[u8]> = HashSet::new();
    let mut found = Vec::new();
    for (file, content) in files {
        match content {
            TrustFile::Certificates(certificates) => {
                let new = certificates.iter().filter(|one| seen.insert(one.der()));
                found.extend(new.map(|certificate| TrustExpiry {
                    kind: TrustExpiryKind::Authority,
                    name: certificate.subject().one_line().to_owned(),
                    file: file.clone(),
                    expires: certificate.validity().not_after,
                }));
            }
            TrustFile::RevocationLists(lists) => {
                for list in &**lists {
                    let held = directory.revocation_lists.get(list.issuer().canonical());
                    let is_held =
                        held.is_some_and(|held| held.iter().any(|held| Arc::ptr_eq(held, list)));
                    if let Some(expires) = list.next_update().filter(|_| is_held) {
                        found.push(TrustExpiry {
                            kind: TrustExpiryKind::RevocationList,
                            name: list.issuer().one_line().to_owned(),
                            file: file.clone(),
                            expires,
                        });
                    }
                }
            }
            TrustFile::SigningPolicy(_) => {}
        }
    }
    found.sort_by_key(|one| one.kind);
    // A link to a list shares its content with the file.
    found.dedup_by(|later, first| {
        later.kind == first.kind
            && later.kind == TrustExpiryKind::RevocationList
            && later.name == first.name
            && later.expires == first.expires
    });
    found.into()
}
