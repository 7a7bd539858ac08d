//! Leases of pool accounts in a gridmapdir, as LCMAPS and the gridmapdir patch of the Globus Toolkit keep them.
//!
//! The directory has an empty file for each account of a pool (`atlas001`). The lease of an identity is a hard link to the file
//! of its account, whose name is the identity in lower case with every byte except letters and digits as `%xx`. A file with one
//! link is free. Other programs may lease accounts in the same directory at the same time, so only link(2) and the number of
//! links decide: the program that makes the second link has the account, and a third link is taken back.

use std::fmt::Write as _;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, Timespec, Timestamps, UTIME_NOW, linkat, openat,
    statat, unlinkat, utimensat,
};
use rustix::io::Errno;
use rustix::process::{getgid, getuid};
use serde::{Deserialize, Serialize};

use crate::refusal::os_error;

/// The maximum length of a file name.
const LONGEST_NAME: usize = 255;

/// The maximum length of the name of an account.
const LONGEST_ACCOUNT: usize = 32;

/// The maximum number of entries of the directory that are examined.
const MOST_ENTRIES: usize = 1_000_000;

/// Attempts while other programs lease accounts.
const ATTEMPTS: u32 = 50;

/// Why there is no account for an identity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum LeaseError {
    /// There is no gridmapdir.
    #[error("no gridmapdir was configured when the server started")]
    NoDirectory,
    /// The pool's name is invalid.
    #[error("this cannot be the name of a pool")]
    PoolName,
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
    /// The directory belongs to another account than root, or others may write to it.
    #[error("the gridmapdir must belong to root, and only root may write to it")]
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

/// The account of an identity from a pool: that of its lease, or a free one, which is leased for it.
pub(crate) fn lease(directory: &Path, identity: &str, pool: &str) -> Result<String, LeaseError> {
    let is_pool = (1..LONGEST_ACCOUNT).contains(&pool.len())
        && pool
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
        && !pool.starts_with('-');
    if !is_pool {
        return Err(LeaseError::PoolName);
    }
    let name = lease_name(identity);
    if name.len() > LONGEST_NAME || name.is_empty() {
        return Err(LeaseError::IdentityTooLong);
    }
    let directory = open(directory)?;
    for attempt in 0..ATTEMPTS {
        match attempt_lease(&directory, &name, pool) {
            // Others may be about to take links back.
            Err(LeaseError::Exhausted) if attempt < 3 => {
                std::thread::sleep(pause(&name, attempt));
            }
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

fn attempt_lease(directory: &OwnedFd, name: &str, pool: &str) -> Result<Attempt, LeaseError> {
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
                // Another program has tried to lease it, and takes its link back.
                (Some(_), 3) if has_settled(directory, name)? => Ok(Attempt::Collided),
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

/// Waits a moment for a third link to go away.
fn has_settled(directory: &OwnedFd, name: &str) -> Result<bool, Errno> {
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(5));
        match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(lease) if lease.st_nlink > 2 => {}
            Ok(_) | Err(Errno::NOENT) => return Ok(true),
            Err(errno) => return Err(errno),
        }
    }
    Ok(false)
}

/// A file of an account in the directory.
struct PoolAccount {
    name: String,
    inode: u64,
    links: u64,
}

/// The files of accounts.
struct Listing {
    /// Those of one pool, sorted by name.
    accounts: Vec<PoolAccount>,
    /// The names of all accounts with their inodes as the directory has them.
    all: Vec<(String, u64)>,
}

impl Listing {
    fn read(directory: &OwnedFd, pool: &str) -> Result<Self, LeaseError> {
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
    fn name_of(&self, directory: &OwnedFd, inode: u64) -> Result<Option<String>, Errno> {
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

/// Whether an account is one of a pool: the pool's name and a number. `.atlas` must not lead to `atlasprd001`.
fn is_of_pool(account: &str, pool: &str) -> bool {
    let number = account.strip_prefix(pool);
    number.is_some_and(|number| {
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// The name of the lease of an identity.
fn lease_name(identity: &str) -> String {
    let mut name = String::with_capacity(identity.len() * 2);
    for byte in identity.bytes() {
        if byte.is_ascii_alphanumeric() {
            name.push(char::from(byte.to_ascii_lowercase()));
        } else {
            // Writing to a string does not fail.
            let _ = write!(name, "%{byte:02x}");
        }
    }
    name
}

/// Opens the directory. Another account that could write there could choose the accounts of identities.
fn open(path: &Path) -> Result<OwnedFd, LeaseError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = openat(CWD, path, flags, Mode::empty())?;
    let facts = rustix::fs::fstat(&directory)?;
    let mode = Mode::from_raw_mode(facts.st_mode);
    // The group of the directory may be that of other services with the same pools.
    let is_own = facts.st_uid == getuid().as_raw();
    let is_safe_group = facts.st_gid == getgid().as_raw() || !mode.contains(Mode::WGRP);
    if !is_own || !is_safe_group || mode.contains(Mode::WOTH) {
        return Err(LeaseError::Exposed);
    }
    Ok(directory)
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

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::fs::{self, File};
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::process::Command;
    use std::thread;

    use proptest::prelude::*;
    use tempfile::TempDir;

    use super::*;

    fn directory(accounts: &[&str]) -> TempDir {
        let directory = tempfile::tempdir().expect("a directory");
        for account in accounts {
            File::create(directory.path().join(account)).expect("made");
        }
        directory
    }

    #[test]
    fn leases_have_the_names_of_lcmaps() {
        // The example of lcmaps_poolaccount.mod(8).
        let identity = "/DC=org/DC=terena/DC=tcs/C=NL/O=Nikhef/CN=Oscar Koeroo okoeroo@nikhef.nl";
        assert_eq!(
            lease_name(identity),
            "%2fdc%3dorg%2fdc%3dterena%2fdc%3dtcs%2fc%3dnl%2fo%3dnikhef%2fcn%3doscar%20koeroo%20okoeroo%40nikhef%2enl"
        );
    }

    #[test]
    fn an_identity_keeps_its_account_and_a_full_pool_is_refused() {
        let site = directory(&[
            "atlas001",
            "atlas002",
            "atlasprd001",
            "cms001",
            "atlas",
            "atlas00x",
        ]);
        let lease = |identity: &str, pool: &str| lease(site.path(), identity, pool);
        let first = lease("/CN=a", "atlas").expect("free");
        let second = lease("/CN=b", "atlas").expect("free");
        assert_ne!(first, second);
        for account in [&first, &second] {
            assert!(
                ["atlas001", "atlas002"].contains(&account.as_str()),
                "{account}"
            );
        }
        assert_eq!(lease("/CN=a", "atlas"), Ok(first.clone()));
        assert_eq!(lease("/cn=A", "atlas"), Ok(first.clone()), "one name");
        assert_eq!(lease("/CN=c", "atlas"), Err(LeaseError::Exhausted));
        assert_eq!(count_pool(site.path(), "atlas"), Ok((2, 0)));
        assert!(matches!(
            lease("/CN=a", "cms"),
            Err(LeaseError::OtherPool { .. })
        ));
        assert_eq!(lease("/CN=c", "lhcb"), Err(LeaseError::Exhausted));
        fs::remove_file(site.path().join("%2fcn%3da")).expect("taken back");
        assert_eq!(lease("/CN=c", "atlas"), Ok(first));
    }

    #[test]
    fn a_lease_of_another_program_is_honoured_and_marked_as_used() {
        let site = directory(&["atlas001", "atlas002"]);
        let at = |name: &str| site.path().join(name);
        fs::hard_link(at("atlas002"), at("%2fcn%3da")).expect("linked");
        let long_ago = File::options()
            .write(true)
            .open(at("atlas002"))
            .expect("opened");
        long_ago.set_modified(std::time::UNIX_EPOCH).expect("set");
        assert_eq!(
            lease(site.path(), "/CN=a", "atlas"),
            Ok("atlas002".to_owned())
        );
        assert!(fs::metadata(at("%2fcn%3da")).expect("there").mtime() > 0);
    }

    #[test]
    fn what_is_inconsistent_is_refused() {
        let site = directory(&["atlas001", "x"]);
        let at = |name: &str| site.path().join(name);
        fs::hard_link(at("atlas001"), at("%2fcn%3da")).expect("linked");
        fs::hard_link(at("atlas001"), at("%2fcn%3db")).expect("linked");
        for identity in ["/CN=a", "/CN=b"] {
            let error = lease(site.path(), identity, "atlas");
            assert!(
                matches!(error, Err(LeaseError::Inconsistent { .. })),
                "{error:?}"
            );
        }
        File::create(at("%2fcn%3dc")).expect("made");
        std::os::unix::fs::symlink("atlas001", at("%2fcn%3dd")).expect("linked");
        for identity in ["/CN=c", "/CN=d"] {
            let error = lease(site.path(), identity, "atlas");
            assert!(
                matches!(error, Err(LeaseError::Inconsistent { .. })),
                "{error:?}"
            );
        }
        for pool in ["", "../x", "a/b", ".", "-a", "%2f", &"a".repeat(40)] {
            assert_eq!(lease(site.path(), "/CN=e", pool), Err(LeaseError::PoolName));
        }
        let long = lease(site.path(), &"/".repeat(100), "atlas");
        assert_eq!(long, Err(LeaseError::IdentityTooLong));
        fs::set_permissions(site.path(), fs::Permissions::from_mode(0o777)).expect("set");
        assert_eq!(
            lease(site.path(), "/CN=e", "atlas"),
            Err(LeaseError::Exposed)
        );
    }

    /// The environment variable by which the test below runs itself as another process.
    const CHILD: &str = "GRIDHAUL_TEST_POOL";

    const THREADS: usize = 8;

    /// Leases an account for each of these identities in threads.
    fn lease_all(path: &Path, identities: &[String]) -> Vec<(String, Result<String, LeaseError>)> {
        thread::scope(|scope| {
            let leases: Vec<_> = (0..THREADS)
                .map(|thread| {
                    let own = identities
                        .iter()
                        .cycle()
                        .skip(thread * 7)
                        .take(identities.len());
                    scope.spawn(move || {
                        let leased = own.map(|one| (one.clone(), lease(path, one, "pool")));
                        leased.collect::<Vec<_>>()
                    })
                })
                .collect();
            leases
                .into_iter()
                .flat_map(|one| one.join().expect("no panic"))
                .collect()
        })
    }

    #[test]
    fn every_identity_gets_one_account_and_no_account_two_identities() {
        const IDENTITIES: usize = 40;

        let identities: Vec<String> = (0..IDENTITIES).map(|n| format!("/CN=user {n}")).collect();
        if let Ok(path) = std::env::var(CHILD) {
            for (identity, leased) in lease_all(Path::new(&path), &identities) {
                println!("LEASED {identity}\t{}", leased.expect("free"));
            }
            return;
        }
        let names: Vec<String> = (0..IDENTITIES).map(|n| format!("pool{n:03}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let site = directory(&names);
        let children: Vec<_> = (0..3)
            .map(|_| {
                let program = std::env::current_exe().expect("this program");
                let mut command = Command::new(program);
                command.args([
                    "--exact",
                    "--nocapture",
                    "pool_accounts::tests::every_identity_gets_one_account_and_no_account_two_identities",
                ]);
                command.env(CHILD, site.path());
                command.stdout(std::process::Stdio::piped()).spawn().expect("started")
            })
            .collect();
        let mut leases: HashMap<String, String> = HashMap::new();
        let mut note = |identity: String, account: String| {
            let known = leases.entry(identity).or_insert_with(|| account.clone());
            assert_eq!(*known, account);
        };
        for (identity, leased) in lease_all(site.path(), &identities) {
            note(identity, leased.expect("as many accounts as identities"));
        }
        for child in children {
            let output = child.wait_with_output().expect("ended");
            assert!(output.status.success());
            let text = String::from_utf8(output.stdout).expect("UTF-8");
            let lines = text.lines().filter_map(|line| line.split_once("LEASED "));
            for (identity, account) in lines.filter_map(|(_, line)| line.split_once('\t')) {
                note(identity.to_owned(), account.to_owned());
            }
        }
        assert_eq!(leases.len(), IDENTITIES);
        let mut accounts: Vec<_> = leases.into_values().collect();
        accounts.sort();
        assert_eq!(accounts, names, "each account has one identity");
    }

    proptest! {
        #[test]
        fn a_lease_never_leads_out_of_the_directory(identity in ".{0,60}") {
            let name = lease_name(&identity);
            let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'%';
            prop_assert!(name.bytes().all(fits));
        }
    }
}
