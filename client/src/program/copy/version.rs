//! Size and time of a file.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::SystemTime;

use gridhaul_protocol::path::PathArgument;

use super::super::plan::PlannedFile;
use super::error::CopyError;
use crate::session::{Facts, Session};

/// Size and time of a file. Another version of it has others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Version {
    /// In bytes.
    pub(super) size: Option<u64>,
    /// The last change of the content.
    pub(super) modified: Option<SystemTime>,
    /// The permission bits. Other bits do not make another version.
    pub(super) mode: Option<u32>,
}

impl Version {
    /// Whether the sizes are known to be equal.
    pub(super) fn has_size_of(&self, other: &Self) -> bool {
        self.size.is_some() && self.size == other.size
    }

    /// Whether the times are known to be equal.
    pub(super) fn has_time_of(&self, other: &Self) -> bool {
        self.seconds().is_some() && self.seconds() == other.seconds()
    }

    /// Whether this one may be newer: it is, or that is not known.
    pub(super) fn may_be_newer_than(&self, other: &Self) -> bool {
        let times = self.seconds().zip(other.seconds());
        times.is_none_or(|(one, other)| one > other)
    }

    /// That of a source on a server, if it is not known.
    pub(super) async fn of_source(
        session: &mut Session,
        path: &PathArgument,
        known: Self,
    ) -> Result<Self, CopyError> {
        if known.size.is_some() {
            return Ok(known);
        }
        let found = Self::of_facts(session, path).await?;
        if found.size.is_some() {
            return Ok(found);
        }
        let size = session.size(path).await.map_err(CopyError::Source)?;
        Ok(Self { size, ..found })
    }

    /// What a server says now about a source.
    pub(super) async fn of_facts(
        session: &mut Session,
        path: &PathArgument,
    ) -> Result<Self, CopyError> {
        let facts = session.facts(path).await.map_err(CopyError::Source)?;
        Ok(facts.map(Self::from).unwrap_or_default())
    }

    /// That of a file of this machine.
    pub(super) fn of_file(path: &Path) -> Result<Self, CopyError> {
        let failed = |error| CopyError::File(path.display().to_string(), error);
        let metadata = fs::metadata(path).map_err(failed)?;
        if metadata.is_dir() {
            return Err(CopyError::Directory(path.display().to_string()));
        }
        Ok(Self {
            size: metadata.is_file().then_some(metadata.len()),
            modified: metadata
                .is_file()
                .then(|| metadata.modified().ok())
                .flatten(),
            mode: Some(permissions_of(&metadata)),
        })
    }

    /// For the list of a dry run.
    pub(super) fn planned(&self) -> PlannedFile {
        PlannedFile {
            size: self.size,
            modified: self.seconds(),
            mode: self.mode,
        }
    }

    /// The time in whole seconds, as FTP has it.
    fn seconds(&self) -> Option<u64> {
        let since = self.modified?.duration_since(SystemTime::UNIX_EPOCH);
        since.ok().map(|since| since.as_secs())
    }

    /// Whether a file with the one is another than a file with the other.
    pub(super) fn differs_from(&self, other: &Self) -> bool {
        let differ = |known: Option<bool>| known == Some(false);
        let size = self.size.zip(other.size).map(|(one, other)| one == other);
        let modified = self.modified.zip(other.modified);
        let modified = modified.map(|(one, other)| one == other);
        differ(size) || differ(modified)
    }
}

/// The permission bits of a file of this machine.
pub(super) fn permissions_of(metadata: &fs::Metadata) -> u32 {
    metadata.permissions().mode() & 0o7777
}

impl From<Facts> for Version {
    fn from(facts: Facts) -> Self {
        Self {
            size: facts.size,
            modified: facts.modified,
            mode: facts.mode,
        }
    }
}
