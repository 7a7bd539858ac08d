//! Stores checksums with their files, in an extended attribute, so that they survive a restart of the server.

use super::seal::{ChecksumKey, Sums, is_unchanged_since};
use super::version::{FileId, Version, facts};
use crate::{OpenedFile, StoredFile};

/// How often a value is written, if writing it moves the change time too far.
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

    /// The checksums in the attribute of a file with this content. Empty if there is no valid value, or it cannot be read.
    pub(super) fn read(&self, stored: &StoredFile<'_>, id: FileId, version: Version) -> Sums {
        let value = stored.storage.checksum_attribute(stored.path);
        value
            .ok()
            .flatten()
            .and_then(|value| self.key.open(&value, id, version))
            .unwrap_or_default()
    }

    /// Stores the checksums of the content that `version` describes. Returns the version of the same content afterwards,
    /// also if the attribute could not be written; `None` if the content was changed meanwhile.
    pub(super) fn write(
        &self,
        (file, stored): (&OpenedFile, &StoredFile<'_>),
        id: FileId,
        version: Version,
        sums: &Sums,
    ) -> Option<Version> {
        let mut before = version;
        for _ in 0..ATTEMPTS {
            let value = self.key.seal(id, before, before.changed, sums);
            let written = stored
                .storage
                .set_checksum_attribute(stored.path, Some(&value));
            let (_, after) = facts(file).ok()?;
            if (after.size, after.modified) != (version.size, version.modified) {
                return None;
            }
            // Not every file system has attributes, and the account may have no permission to write them.
            if written.is_err() || is_unchanged_since(after, before.changed) {
                return Some(after);
            }
            // The last change was too long ago for this value. The next one contains the change that this one has made.
            before = after;
        }
        Some(before)
    }

    /// Removes the value, before a change of the modification time could make an old value valid again.
    pub(super) fn remove(&self, stored: &StoredFile<'_>) {
        // An error mostly means that there is no value.
        let _ = stored.storage.set_checksum_attribute(stored.path, None);
    }
}
