//! The files of accounts in a gridmapdir.

use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Dir, FileType, statat};
use rustix::io::Errno;

use super::LeaseError;
use super::names::{LONGEST_ACCOUNT, is_of_pool};

/// The maximum number of entries of the directory that are examined.
const MOST_ENTRIES: usize = 1_000_000;

/// A file of an account in the directory.
pub(super) struct PoolAccount {
    pub(super) name: String,
    pub(super) inode: u64,
    pub(super) links: u64,
}

/// The files of accounts.
pub(super) struct Listing {
    /// Those of one pool, sorted by name.
    pub(super) accounts: Vec<PoolAccount>,
    /// The names of all accounts with their inodes as the directory has them.
    all: Vec<(String, u64)>,
}

impl Listing {
    pub(super) fn read(directory: &OwnedFd, pool: &str) -> Result<Self, LeaseError> {
        let mut listing = Self {
            accounts: Vec::new(),
            all: Vec::new(),
        };
        for (count, entry) in Dir::read_from(directory)?.enumerate() {
            let entry = entry?;
            if count >= MOST_ENTRIES {
                return Err(Errno::OVERFLOW.into());
            }
            // Leases begin with a percent sign.
            let Ok(name) = entry.file_name().to_str() else {
                continue;
            };
            if name.starts_with(['%', '.']) || name.len() > LONGEST_ACCOUNT {
                continue;
            }
            if is_of_pool(name, pool) {
                let facts = match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
                    Err(Errno::NOENT) => continue,
                    facts => facts?,
                };
                if FileType::from_raw_mode(facts.st_mode) == FileType::RegularFile {
                    listing.accounts.push(PoolAccount {
                        name: name.to_owned(),
                        inode: facts.st_ino,
                        links: facts.st_nlink as _,
                    });
                }
            }
            listing.all.push((name.to_owned(), entry.ino()));
        }
        listing
            .accounts
            .sort_by(|one, other| one.name.cmp(&other.name));
        Ok(listing)
    }

    /// The only account with this inode. `None` if there is none, or more than one.
    pub(super) fn name_of(&self, directory: &OwnedFd, inode: u64) -> Result<Option<String>, Errno> {
        let mut found = None;
        for (name, listed) in &self.all {
            if *listed != inode {
                continue;
            }
            // Some file systems list other inodes than stat(2) reports.
            match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(facts) if facts.st_ino == inode && found.is_some() => return Ok(None),
                Ok(facts) if facts.st_ino == inode => found = Some(name.clone()),
                Ok(_) | Err(Errno::NOENT) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(found)
    }
}
