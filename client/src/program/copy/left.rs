//! The directories that a copy makes for a moment, and those that copies which were killed have left.
//!
//! The new one tells who the user is at the destination, and what time it is there.

use std::collections::hash_map::RandomState;
use std::ffi::OsStr;
use std::hash::BuildHasher as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

use gridhaul_storage::{FileKind, Metadata, StorageError};
use gridhaul_transfer::Admission;
use tokio::task::block_in_place;

use super::job::Place;
use super::shared::Shared;
use crate::listing::Lister;
use crate::location::Url;

/// What each name begins with. 16 hexadecimal digits follow.
const PREFIX: &str = ".gridhaul-";

/// Younger ones may belong to copies that run: they need theirs until the whole source is listed.
const OLD: Duration = Duration::from_secs(7 * 24 * 3600);

/// The entries of a directory that are looked at.
const MOST_ENTRIES: usize = 100_000;

/// The directories that one copy removes. Each one is a round trip.
const MOST_REMOVED: usize = 16;

/// A directory with such a name.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Found {
    name: Vec<u8>,
    /// Equal for directories of one owner.
    owner: Option<u64>,
    modified: Option<SystemTime>,
}

/// A name that no other copy has.
pub(super) fn new_name() -> String {
    format!("{PREFIX}{:016x}", RandomState::new().hash_one(()))
}

fn is_name(name: &[u8]) -> bool {
    let digits = name.strip_prefix(PREFIX.as_bytes());
    digits.is_some_and(|digits| digits.len() == 16 && digits.iter().all(u8::is_ascii_hexdigit))
}

/// The names of the old directories in the destination, which has one with the name `own` now. None if the destination cannot be listed.
pub(super) async fn old_ones(shared: &Shared, destination: &Place, own: &[u8]) -> Vec<Vec<u8>> {
    let found = match destination {
        Place::Local { root, beneath, .. } => {
            block_in_place(|| look_here(shared, root, beneath)).unwrap_or_default()
        }
        Place::Remote(url) => look_there(shared, url).await.unwrap_or_default(),
    };
    old_of(&found, own)
}

fn old_of(found: &[Found], own: &[u8]) -> Vec<Vec<u8>> {
    let Some(new) = found.iter().find(|one| one.name == own) else {
        return Vec::new();
    };
    let is_old = |one: &&Found| {
        let ages = one.modified.zip(new.modified);
        one.owner.is_some()
            && one.owner == new.owner
            && ages.is_some_and(|(old, now)| now.duration_since(old).is_ok_and(|age| age > OLD))
    };
    let old = found.iter().filter(is_old).take(MOST_REMOVED);
    old.map(|one| one.name.clone()).collect()
}

fn look_here(shared: &Shared, root: &Path, beneath: &Path) -> Option<Vec<Found>> {
    let files = shared.files(root, Admission::none()).ok()?;
    let path = match beneath.as_os_str().is_empty() {
        true => Path::new("/"),
        false => beneath,
    };
    let mut found = Vec::new();
    let mut looked = || -> Result<(), StorageError> {
        let (storage, mut seen) = (files.storage(), 0);
        let mut stream = storage.list(path)?;
        while seen < MOST_ENTRIES
            && let Some(mut run) = stream.next_run(MOST_ENTRIES - seen)?
        {
            seen += run.count();
            run.retain(&|name| is_name(name.as_bytes()));
            let mut note = |name: &OsStr, entry: &Metadata| {
                let is_directory = entry.kind == FileKind::Directory && entry.link_target.is_none();
                if is_directory {
                    found.push(Found {
                        name: name.as_bytes().to_vec(),
                        owner: Some(entry.owner.id.into()),
                        modified: Some(entry.modified),
                    });
                }
            };
            run.entries(&mut note)?;
        }
        Ok(())
    };
    // What was found until an error is enough to remove some.
    let _ = looked();
    Some(found)
}

async fn look_there(shared: &Shared, url: &Url) -> Option<Vec<Found>> {
    let path = url.argument().ok()?;
    let lister = Lister::new(&shared.machine).ok()?;
    let mut session = shared.session(&url.server).await.ok()?;
    let how = shared.arguments.data.channels.listings(&session);
    let listed = lister.list(&mut session, &path, &how).await;
    shared.give_back(session);
    let entries = listed.ok()?.take(MOST_ENTRIES).map_while(Result::ok);
    let found = entries.filter(|entry| entry.facts.is_real_directory() && is_name(&entry.name));
    let found = found.map(|entry| Found {
        owner: entry.facts.owner,
        modified: entry.facts.modified,
        name: entry.name,
    });
    Some(found.collect())
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
        let found = |name: &str, owner, age: Option<Duration>| Found {
            name: name.into(),
            owner,
            modified: age.map(|age| now - age),
        };
        let mut all = vec![
            found("new", Some(1), Some(Duration::ZERO)),
            found("old", Some(1), Some(OLD + Duration::from_secs(1))),
            found("young", Some(1), Some(OLD)),
            found("foreign", Some(2), Some(OLD * 2)),
            found("unknown", None, Some(OLD * 2)),
            found("timeless", Some(1), None),
        ];
        assert_eq!(old_of(&all, b"new"), [b"old"]);
        assert!(old_of(&all, b"none").is_empty());
        // A server that tells no owners.
        all[0].owner = None;
        assert!(old_of(&all, b"new").is_empty());
        all.extend((0..100).map(|_| found("more", Some(3), Some(OLD * 2))));
        all[0].owner = Some(3);
        assert_eq!(old_of(&all, b"new").len(), MOST_REMOVED);
    }
}
