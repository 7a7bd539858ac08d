//! What a record of a journal is about.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::SystemTime;

use super::super::job::{Job, Place};
use super::super::version::Version;

/// Names and version of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in super::super) struct Key(pub(super) u128);

impl Key {
    /// See [`Self::new`].
    pub(in super::super) fn of(job: &Job) -> Option<Self> {
        Self::new(&job.source, &job.destination, job.known)
    }

    /// `None` without a size or a time: another version of the file could have the same key.
    pub(super) fn new(source: &Place, destination: &Place, known: Version) -> Option<Self> {
        let (size, modified) = (known.size?, known.modified?);
        // With nanoseconds, where they are known.
        let since = modified.duration_since(SystemTime::UNIX_EPOCH).ok()?;
        let names = [source, destination].map(Place::absolute);
        let half = |salt: u8| {
            let mut hasher = DefaultHasher::new();
            (salt, &names, size, since).hash(&mut hasher);
            u128::from(hasher.finish())
        };
        Some(Self(half(0) << 64 | half(1)))
    }
}
