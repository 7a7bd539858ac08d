//! Leases of pool accounts in a gridmapdir, as LCMAPS and the gridmapdir patch of the Globus Toolkit keep them.
//!
//! The directory has an empty file for each account of a pool (`atlas001`). The lease of an identity is a hard link to the file
//! of its account, whose name is the identity in lower case with every byte except letters and digits as `%xx`. A file with one
//! link is free. Other programs may lease accounts in the same directory at the same time, so only link(2) and the number of
//! links decide: the program that makes the second link has the account, and further links are taken back.

mod budget;
mod listing;
mod names;
#[cfg(test)]
mod tests;

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, Timespec, Timestamps, UTIME_NOW, linkat, openat, statat,
    unlinkat, utimensat,
};
use rustix::io::Errno;
use rustix::process::getgid;
use serde::{Deserialize, Serialize};

pub(crate) use budget::LeaseBudget;
use listing::Listing;
use names::{checked_lease_name, is_of_pool, is_pool};

use crate::listed::{OpenError, find_directory};
use crate::refusal::os_error;

/// Attempts while other programs lease accounts.
const ATTEMPTS: u32 = 50;

/// The pauses before a pool without a free account is read again.
const EXHAUSTED_PAUSES: [Duration; 4] = [
    Duration::from_millis(1),
    Duration::from_millis(5),
    Duration::from_millis(20),
    Duration::from_millis(50),
];

/// Why there is no account for an identity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum LeaseError {
    /// There is no gridmapdir.
    #[error("no gridmapdir was configured when the server started")]
    NoDirectory,
    /// The pool's name is invalid.
    #[error("this cannot be the name of a pool")]
    PoolName,
    /// The identity is not a subject in one-line form.
    #[error("the identity does not begin with a slash")]
    Identity,
    /// Many accounts were leased in a short time.
    #[error("too many accounts were leased in a short time: existing leases work; try again later")]
    TooFast,
    /// The name of the lease would be too long.
    #[error("the identity is too long for the name of a lease")]
    IdentityTooLong,
    /// All accounts are leased, or there are none.
    #[error("all accounts of the pool are in use")]
    Exhausted,
    /// The lease is for an account of another pool.
    #[error(
        "the identity has a lease of {account}, which is not in this pool: remove the lease {lease} from the gridmapdir"
    )]
    OtherPool {
        /// The account.
        account: String,
        /// The name of the lease.
        lease: String,
    },
    /// The lease leads to no account, or the account has further leases.
    #[error(
        "the lease {lease} leads to no account, or to one with several leases: correct the gridmapdir"
    )]
    Inconsistent {
        /// The name of the lease.
        lease: String,
    },
    /// Other programs have been faster every time.
    #[error("too many programs lease accounts of this pool at the same time")]
    Busy,
    /// The directory belongs to another account than root, or others may write to it or to a directory above.
    #[error(
        "the gridmapdir must belong to root, and only root may write to it and to the directories above"
    )]
    Exposed,
    /// A system call failed, or the monitor does not answer.
    #[error("{}", os_error(Errno::from_raw_os_error(*.0)))]
    Kernel(i32),
}

impl From<Errno> for LeaseError {
    fn from(errno: Errno) -> Self {
        Self::Kernel(errno.raw_os_error())
    }
}

/// Checks whether leases can be made in a directory, and counts the accounts of a pool and those that are free. For reports.
///
/// # Errors
///
/// When the directory cannot be used.
pub fn count_pool(directory: &Path, pool: &str) -> Result<(usize, usize), LeaseError> {
    let directory = open(directory)?;
    let accounts = Listing::read(&directory, pool)?.accounts;
    let free = accounts.iter().filter(|account| account.links == 1).count();
    Ok((accounts.len(), free))
}

/// The account of an identity from a pool: that of its lease, or a free one, which is leased for it if `budget` allows.
pub(crate) fn lease(
    directory: &Path,
    identity: &str,
    pool: &str,
    budget: &LeaseBudget,
) -> Result<String, LeaseError> {
    if !is_pool(pool) {
        return Err(LeaseError::PoolName);
    }
    let name = checked_lease_name(identity)?;
    let mut is_paid = false;
    let mut pay = || {
        is_paid = is_paid || budget.take();
        is_paid
    };
    let directory = open(directory)?;
    let mut pauses = EXHAUSTED_PAUSES.iter();
    for attempt in 0..ATTEMPTS {
        match attempt_lease(&directory, &name, pool, &mut pay) {
            // Others may be about to take links back.
            Err(LeaseError::Exhausted) => match pauses.next() {
                Some(pause) => std::thread::sleep(*pause),
                None => return Err(LeaseError::Exhausted),
            },
            Err(error) => return Err(error),
            Ok(Attempt::Leased(account)) => {
                // As LCMAPS does: programs that end unused leases go by this time.
                let now = Timespec {
                    tv_sec: 0,
                    tv_nsec: UTIME_NOW,
                };
                let times = Timestamps {
                    last_access: now,
                    last_modification: now,
                };
                utimensat(&directory, &name, &times, AtFlags::SYMLINK_NOFOLLOW)?;
                return Ok(account);
            }
            // Those who met at one account must not meet again.
            Ok(Attempt::Collided) => std::thread::sleep(pause(&name, attempt)),
        }
    }
    Err(LeaseError::Busy)
}

enum Attempt {
    Leased(String),
    /// Another program leased the account at the same time.
    Collided,
}

/// `pay` is called before a new lease, and returns whether one may be made.
fn attempt_lease(
    directory: &OwnedFd,
    name: &str,
    pool: &str,
    pay: &mut impl FnMut() -> bool,
) -> Result<Attempt, LeaseError> {
    let listing = Listing::read(directory, pool)?;
    match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(lease) => {
            let inconsistent = || LeaseError::Inconsistent {
                lease: name.to_owned(),
            };
            if FileType::from_raw_mode(lease.st_mode) != FileType::RegularFile {
                return Err(inconsistent());
            }
            match (listing.name_of(directory, lease.st_ino)?, lease.st_nlink) {
                (Some(account), 2) if is_of_pool(&account, pool) => Ok(Attempt::Leased(account)),
                (Some(account), 2) => Err(LeaseError::OtherPool {
                    account,
                    lease: name.to_owned(),
                }),
                // Other programs have tried to lease it, and take their links back.
                (Some(_), 3..) if has_settled(directory, name)? => Ok(Attempt::Collided),
                _ => Err(inconsistent()),
            }
        }
        Err(Errno::NOENT) => {
            let free: Vec<_> = listing
                .accounts
                .iter()
                .filter(|one| one.links == 1)
                .collect();
            if free.is_empty() {
                return Err(LeaseError::Exhausted);
            }
            if !pay() {
                return Err(LeaseError::TooFast);
            }
            let chosen = free[start(name) % free.len()];
            match linkat(directory, &chosen.name, directory, name, AtFlags::empty()) {
                Ok(()) => {}
                // Another program leased an account for the same identity, or removed the account.
                Err(Errno::EXIST | Errno::NOENT) => return Ok(Attempt::Collided),
                Err(errno) => return Err(errno.into()),
            }
            let made = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
            if made.st_nlink == 2 && made.st_ino == chosen.inode {
                return Ok(Attempt::Leased(chosen.name.clone()));
            }
            unlinkat(directory, name, AtFlags::empty())?;
            Ok(Attempt::Collided)
        }
        Err(errno) => Err(errno.into()),
    }
}

/// Waits up to a second for further links to go away: on a busy machine or file system, the program that takes its link back
/// can be late.
fn has_settled(directory: &OwnedFd, name: &str) -> Result<bool, Errno> {
    for _ in 0..100 {
        std::thread::sleep(Duration::from_millis(10));
        match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(lease) if lease.st_nlink > 2 => {}
            Ok(_) | Err(Errno::NOENT) => return Ok(true),
            Err(errno) => return Err(errno),
        }
    }
    Ok(false)
}

/// Opens the directory. Another account that could write there, or put another directory in its place, could choose the
/// accounts of identities.
fn open(path: &Path) -> Result<OwnedFd, LeaseError> {
    let found = find_directory(path).map_err(|error| match error {
        OpenError::Kernel(errno) => LeaseError::Kernel(errno),
        OpenError::NoFile => Errno::NOTDIR.into(),
        OpenError::Exposed | OpenError::Planted | OpenError::Unlisted => LeaseError::Exposed,
    })?;
    let facts = found.facts;
    let mode = Mode::from_raw_mode(facts.st_mode);
    // The group of the directory may be that of other services with the same pools.
    let is_safe_group = facts.st_gid == getgid().as_raw() || !mode.contains(Mode::WGRP);
    if facts.st_uid != 0 || !is_safe_group || mode.contains(Mode::WOTH) {
        return Err(LeaseError::Exposed);
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(openat(&found.opened, c".", flags, Mode::empty())?)
}

/// A number that differs between identities, so that they begin with different accounts.
fn start(name: &str) -> usize {
    // FNV-1a.
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    usize::try_from(hash % 1_000_003).unwrap_or(0)
}

/// A pause between attempts that differs between identities and attempts.
fn pause(name: &str, attempt: u32) -> Duration {
    let spread = start(name) as u64 % 7 + u64::from(std::process::id() % 5);
    Duration::from_micros(200 * (spread + 1) * u64::from(attempt.min(8) + 1))
}
