//! What the kernel says of a file's content, by which one content is told from another.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, Statx, StatxFlags, Timespec, Timestamps, UTIME_OMIT};
use rustix::io::Errno;

use crate::{OpenedFile, StorageError};

/// How long a file must not have changed before a checksum that was computed from it is remembered.
pub(super) const QUIET: Duration = Duration::from_secs(60);

/// Where a file is, whatever its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Place {
    pub(super) device: u64,
    pub(super) inode: u64,
}

/// What differs between two contents of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) size: u64,
    pub(super) modified: Time,
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
    /// Whether a later write cannot leave the same times.
    pub(super) fn is_lasting(&self) -> bool {
        self.modified < self.changed
    }

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

/// What the kernel says of an open file's content.
pub(super) fn version(file: &OpenedFile) -> Result<Version, StorageError> {
    facts(file).map(|(_, version)| version)
}

/// The same, and where the file is.
pub(super) fn facts(file: &OpenedFile) -> Result<(Place, Version), StorageError> {
    const WANTED: StatxFlags = StatxFlags::INO
        .union(StatxFlags::SIZE)
        .union(StatxFlags::MTIME)
        .union(StatxFlags::CTIME);
    let facts: Statx = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, WANTED)
        .map_err(|errno| StorageError::new("stat", errno))?;
    let place = Place {
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
    Ok((place, version))
}

/// Sets a file's time of modification.
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
