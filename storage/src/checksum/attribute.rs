//! Keeps checksums with their files, in an extended attribute, so that they outlive the server.

use super::seal::{ChecksumKey, Sums, is_believed};
use super::version::{Place, Version, facts};
use crate::{OpenedFile, StoredFile};

/// How often a value is written anew because it took too long to write it.
const ATTEMPTS: usize = 3;

/// Reads and writes the attribute.
#[derive(Debug)]
pub(super) struct Attribute {
    key: ChecksumKey,
}

impl Attribute {
    pub(super) fn new(key: ChecksumKey) -> Self {
        Self { key }
    }

    /// The checksums that a file with this content carries. Whatever else is there, or cannot be read, is none.
    pub(super) fn read(&self, stored: &StoredFile<'_>, place: Place, version: Version) -> Sums {
        let value = stored.storage.checksum_attribute(stored.path);
        value
            .ok()
            .flatten()
            .and_then(|value| self.key.open(&value, place, version))
            .unwrap_or_default()
    }

    /// Gives the file these checksums of the content that `version` describes. Returns how the same content
    /// is described afterwards, whether the file took them or not; `None` if it was changed meanwhile.
    pub(super) fn write(
        &self,
        (file, stored): (&OpenedFile, &StoredFile<'_>),
        place: Place,
        version: Version,
        sums: &Sums,
    ) -> Option<Version> {
        let mut before = version;
        for _ in 0..ATTEMPTS {
            let value = self.key.seal(place, before, before.changed, sums);
            let written = stored
                .storage
                .set_checksum_attribute(stored.path, Some(&value));
            let (_, after) = facts(file).ok()?;
            if (after.size, after.modified) != (version.size, version.modified) {
                return None;
            }
            // Not every file system has attributes, and the reader of a file may have no right to change it.
            if written.is_err() || is_believed(after, before.changed) {
                return Some(after);
            }
            // It had not changed for long, and has now: the next value names that change.
            before = after;
        }
        Some(before)
    }

    /// Takes away what the file carries, for a change of its times that would make an old value true again.
    pub(super) fn remove(&self, stored: &StoredFile<'_>) {
        // Mostly there is none.
        let _ = stored.storage.set_checksum_attribute(stored.path, None);
    }
}
