//! Identifies the version of a file's content by size and timestamps.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, Statx, StatxFlags, Timespec, Timestamps, UTIME_OMIT};
use rustix::io::Errno;

use crate::{OpenedFile, StorageError};

/// The time for which a file must be unchanged before a checksum that was computed from it is remembered.
pub(super) const QUIET: Duration = Duration::from_secs(60);

/// Identifies a file independently of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct FileId {
    pub(super) device: u64,
    pub(super) inode: u64,
}

/// The facts that differ between two contents of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) size: u64,
    /// mtime
    pub(super) modified: Time,
    /// ctime
    pub(super) changed: Time,
}

/// Seconds and nanoseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Time {
    pub(super) seconds: i64,
    pub(super) nanoseconds: u32,
}

impl Time {
    /// How much later `self` is, unless it is earlier.
    pub(super) fn since(self, earlier: Self) -> Option<Duration> {
        let nanoseconds =
            |time: Self| i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanoseconds);
        let later = nanoseconds(self) - nanoseconds(earlier);
        u64::try_from(later).ok().map(Duration::from_nanos)
    }
}

impl Version {
    /// Whether no later write can leave the same timestamps.
    pub(super) fn is_lasting(&self) -> bool {
        self.modified < self.changed
    }

    /// Whether the file has not changed for [`QUIET`].
    pub(super) fn is_quiet(&self, now: SystemTime) -> bool {
        let since = now
            .checked_sub(QUIET)
            .and_then(|since| since.duration_since(UNIX_EPOCH).ok());
        since.is_some_and(|since| {
            let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
            self.modified.max(self.changed).seconds < seconds
        })
    }
}

/// The version of an open file.
pub(super) fn version(file: &OpenedFile) -> Result<Version, StorageError> {
    facts(file).map(|(_, version)| version)
}

/// The identity and the version of an open file.
pub(super) fn facts(file: &OpenedFile) -> Result<(FileId, Version), StorageError> {
    const WANTED: StatxFlags = StatxFlags::INO
        .union(StatxFlags::SIZE)
        .union(StatxFlags::MTIME)
        .union(StatxFlags::CTIME);
    let facts: Statx = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, WANTED)
        .map_err(|errno| StorageError::new("stat", errno))?;
    let id = FileId {
        device: rustix::fs::makedev(facts.stx_dev_major, facts.stx_dev_minor),
        inode: facts.stx_ino,
    };
    let version = Version {
        size: facts.stx_size,
        modified: Time {
            seconds: facts.stx_mtime.tv_sec,
            nanoseconds: facts.stx_mtime.tv_nsec,
        },
        changed: Time {
            seconds: facts.stx_ctime.tv_sec,
            nanoseconds: facts.stx_ctime.tv_nsec,
        },
    };
    Ok((id, version))
}

/// Sets a file's modification time.
pub(super) fn stamp(file: &OpenedFile, time: SystemTime) -> Result<(), Errno> {
    let since = time.duration_since(UNIX_EPOCH).map_err(|_| Errno::INVAL)?;
    let times = Timestamps {
        last_access: Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_OMIT,
        },
        last_modification: Timespec {
            tv_sec: i64::try_from(since.as_secs()).map_err(|_| Errno::INVAL)?,
            tv_nsec: since.subsec_nanos().into(),
        },
    };
    rustix::fs::futimens(file, &times)
}
