//! The directories that a copy makes for a moment, and those that copies which were killed have left.
//!
//! The new one tells who the user is at the destination, and what time it is there. The old ones are taken from what the copy has listed
//! of the destination (`--sync`): to list a directory only for them could take longer than the copy, because servers send all of its entries.

use std::collections::hash_map::RandomState;
use std::ffi::OsStr;
use std::hash::BuildHasher as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use gridhaul_storage::Storage;
use gridhaul_transfer::Admission;
use tokio::task::block_in_place;

use super::job::Place;
use super::shared::Shared;
use crate::location::Url;
use crate::session::Session;

/// What each name begins with. 16 hexadecimal digits follow.
const PREFIX: &str = ".gridhaul-";

/// Younger ones may belong to copies that run: they need theirs until the whole source is listed.
const OLD: Duration = Duration::from_secs(7 * 24 * 3600);

/// The directories that one copy looks at, and removes. Each one takes two round trips.
const MOST_REMOVED: usize = 16;

/// A directory with such a name, as a listing shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Left {
    pub(super) name: Vec<u8>,
    pub(super) modified: Option<SystemTime>,
}

/// What the destination tells of such a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Facts {
    /// Equal for directories of one owner.
    owner: Option<u64>,
    modified: Option<SystemTime>,
}

/// A name that no other copy has.
pub(super) fn new_name() -> String {
    format!("{PREFIX}{:016x}", RandomState::new().hash_one(()))
}

pub(super) fn is_name(name: &[u8]) -> bool {
    let digits = name.strip_prefix(PREFIX.as_bytes());
    digits.is_some_and(|digits| digits.len() == 16 && digits.iter().all(u8::is_ascii_hexdigit))
}

/// Of the directories that were `left` in the destination, the names of the old ones of this user. The destination has one with the name
/// `own` now.
pub(super) async fn old_ones(
    shared: &Shared,
    destination: &Place,
    own: &[u8],
    left: &[Left],
) -> Vec<Vec<u8>> {
    if left.is_empty() {
        return Vec::new();
    }
    let Some(mut looker) = Looker::new(shared, destination).await else {
        return Vec::new();
    };
    let mut old = Vec::new();
    if let Some(new) = looker.look(own).await {
        let seem_old = left.iter().filter(|one| is_old(one.modified, &new));
        for one in seem_old.take(MOST_REMOVED) {
            let facts = looker.look(&one.name).await;
            if facts.is_some_and(|facts| is_removed(&facts, &new)) {
                old.push(one.name.clone());
            }
        }
    }
    looker.end(shared);
    old
}

/// Whether a directory is much older than the new one.
fn is_old(modified: Option<SystemTime>, new: &Facts) -> bool {
    let ages = modified.zip(new.modified);
    ages.is_some_and(|(old, now)| now.duration_since(old).is_ok_and(|age| age > OLD))
}

fn is_removed(old: &Facts, new: &Facts) -> bool {
    old.owner.is_some() && old.owner == new.owner && is_old(old.modified, new)
}

/// Looks at entries of the destination.
enum Looker {
    Here(Arc<dyn Storage>, PathBuf),
    There(Box<Session>, Url),
}

impl Looker {
    async fn new(shared: &Shared, destination: &Place) -> Option<Self> {
        match destination {
            Place::Local { root, beneath, .. } => {
                let files = shared.files(root, Admission::none()).ok()?;
                Some(Self::Here(files.storage(), beneath.clone()))
            }
            Place::Remote(url) => {
                // Sessions that have listed directories were told to leave owners out (`Session::settle_facts`).
                let session = shared.new_session(&url.server).await.ok()?;
                Some(Self::There(Box::new(session), url.clone()))
            }
        }
    }

    /// What is known of an entry. `None` if it cannot be looked at.
    async fn look(&mut self, name: &[u8]) -> Option<Facts> {
        match self {
            Self::Here(storage, beneath) => {
                let path = beneath.join(OsStr::from_bytes(name));
                let found = block_in_place(|| storage.stat(&path)).ok()?;
                Some(Facts {
                    owner: Some(found.owner.id.into()),
                    modified: Some(found.modified),
                })
            }
            Self::There(session, url) => {
                let path = url.join(name).argument().ok()?;
                let found = session.facts(&path).await.ok()??;
                Some(Facts {
                    owner: found.owner,
                    modified: found.modified,
                })
            }
        }
    }

    fn end(self, shared: &Shared) {
        if let Self::There(session, _) = self {
            shared.give_back(*session);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_from_others() {
        assert!(is_name(new_name().as_bytes()));
        for other in [
            ".gridhaul-check-0123456789",
            ".gridhaul-0123",
            "gridhaul-0123456789abcdef",
        ] {
            assert!(!is_name(other.as_bytes()), "{other}");
        }
    }

    #[test]
    fn only_old_ones_of_the_same_owner_are_removed() {
        let now = SystemTime::UNIX_EPOCH + OLD * 10;
        let facts = |owner, age: Option<Duration>| Facts {
            owner,
            modified: age.map(|age| now - age),
        };
        let new = facts(Some(1), Some(Duration::ZERO));
        let older = OLD + Duration::from_secs(1);
        for (what, old, expected) in [
            ("old", facts(Some(1), Some(older)), true),
            ("young", facts(Some(1), Some(OLD)), false),
            ("foreign", facts(Some(2), Some(older)), false),
            ("unknown", facts(None, Some(older)), false),
            ("timeless", facts(Some(1), None), false),
        ] {
            assert_eq!(is_removed(&old, &new), expected, "{what}");
            // A server that tells no owners, or no times.
            for new in [facts(None, Some(Duration::ZERO)), facts(Some(1), None)] {
                assert!(!is_removed(&old, &new), "{what}");
            }
        }
    }
}
