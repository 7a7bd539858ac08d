//! What a record of a journal is about.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::SystemTime;

use super::super::job::{Job, Place};

/// Names and version of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in super::super) struct Key(pub(super) u128);

impl Key {
    /// `None` without a size or a time: another version of the file could have the same key.
    pub(in super::super) fn of(job: &Job) -> Option<Self> {
        let (size, modified) = (job.known.size?, job.known.modified?);
        // With nanoseconds, where they are known.
        let since = modified.duration_since(SystemTime::UNIX_EPOCH).ok()?;
        let names = [&job.source, &job.destination].map(Place::absolute);
        let half = |salt: u8| {
            let mut hasher = DefaultHasher::new();
            (salt, &names, size, since).hash(&mut hasher);
            u128::from(hasher.finish())
        };
        Some(Self(half(0) << 64 | half(1)))
    }
}
