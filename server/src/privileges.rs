//! Giving up root.
//!
//! The server never serves as root: started as root, it listens, opens the files that only root may open, and becomes
//! another account before it reads the first byte from the network. This must happen while the process has one thread.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use gridhaul_accounts::process::fork;
use gridhaul_accounts::socket::pair;
use gridhaul_sandbox::{keep_capabilities, narrow_bounding_set};
use nix::unistd::{
    Gid, Group, Uid, User, getgrouplist, getgroups, setegid, seteuid, setgroups, setresgid,
    setresuid,
};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, WaitOptions};
use rustix::thread::CapabilitySet;

use crate::wire::{NotReady, tell_ready, wait_until_ready};

/// An error that keeps the server from becoming another account.
#[derive(Debug, thiserror::Error)]
pub enum PrivilegeError {
    /// The account does not exist.
    #[error("there is no account '{0}' to run as; name one with --user")]
    UnknownAccount(String),
    /// The account is root.
    #[error("'{0}' is root: the server does not serve as root; name another account with --user")]
    Root(String),
    /// A system call failed.
    #[error("cannot become '{account}': {call}: {error}")]
    System {
        /// The account.
        account: String,
        /// The call that failed.
        call: &'static str,
        /// The error.
        error: nix::Error,
    },
    /// The process could become root again.
    #[error("root was given up, but the kernel would give it back; refusing to serve")]
    Recoverable,
}

/// The account that the server runs as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The account's name, or its number.
    pub account: String,
    /// The name of its group, or the number.
    pub group: String,
    /// Whether root was given up to become it.
    pub dropped: bool,
}

/// Whether this process runs as root.
pub fn is_root() -> bool {
    Uid::effective().is_root()
}

/// The account of this process: its name, or its number.
pub(crate) fn account() -> String {
    identity(Uid::effective(), Gid::effective(), false).account
}

/// Becomes the account `user`, by name or number, with its groups, if the process runs as root. Otherwise changes nothing.
///
/// # Errors
///
/// When there is no such account, it is root, or the kernel refuses.
pub fn drop_root(user: &str) -> Result<Identity, PrivilegeError> {
    let uid = Uid::effective();
    if !uid.is_root() {
        return Ok(identity(uid, Gid::effective(), false));
    }
    let account = unprivileged(user)?;
    let system = |call| {
        move |error| PrivilegeError::System {
            account: user.to_owned(),
            call,
            error,
        }
    };
    let name = std::ffi::CString::new(account.name.clone())
        .map_err(|_| PrivilegeError::UnknownAccount(user.to_owned()))?;
    let groups = getgrouplist(&name, account.gid).map_err(system("getgrouplist"))?;
    setgroups(&groups).map_err(system("setgroups"))?;
    setresgid(account.gid, account.gid, account.gid).map_err(system("setresgid"))?;
    let nothing = CapabilitySet::empty();
    narrow_bounding_set(nothing).map_err(|errno| system("prctl")(nix_error(errno)))?;
    setresuid(account.uid, account.uid, account.uid).map_err(system("setresuid"))?;
    // Drops inherited capabilities too.
    keep_capabilities(nothing).map_err(|errno| system("capset")(nix_error(errno)))?;
    if setresuid(Uid::from_raw(0), Uid::from_raw(0), Uid::from_raw(0)).is_ok() {
        return Err(PrivilegeError::Recoverable);
    }
    // The process has keys in its memory. The kernel leaves access by other processes of the account to `fs.suid_dumpable`.
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(|errno| system("prctl")(nix_error(errno)))?;
    Ok(identity(account.uid, account.gid, true))
}

/// Does work with the rights of the account `user`, and takes those of root back. Must be called as root, while the process has
/// one thread.
///
/// # Errors
///
/// When there is no such account, it is root, or the kernel refuses.
pub(crate) fn as_account<T>(user: &str, work: impl FnOnce() -> T) -> Result<T, PrivilegeError> {
    let account = unprivileged(user)?;
    let system = |call| {
        move |error| PrivilegeError::System {
            account: user.to_owned(),
            call,
            error,
        }
    };
    let (own_group, own_groups) = (Gid::effective(), getgroups().map_err(system("getgroups"))?);
    let name = std::ffi::CString::new(account.name.clone())
        .map_err(|_| PrivilegeError::UnknownAccount(user.to_owned()))?;
    let groups = getgrouplist(&name, account.gid).map_err(system("getgrouplist"))?;
    setgroups(&groups).map_err(system("setgroups"))?;
    let become_account = || {
        setegid(account.gid)?;
        seteuid(account.uid)
    };
    let done = become_account().map(|()| work());
    seteuid(Uid::from_raw(0)).map_err(system("seteuid"))?;
    setegid(own_group).map_err(system("setegid"))?;
    setgroups(&own_groups).map_err(system("setgroups"))?;
    done.map_err(system("seteuid"))
}

fn nix_error(errno: Errno) -> nix::Error {
    nix::Error::from_raw(errno.raw_os_error())
}

/// Checks whether a process of root could become the account `user`, as in [`drop_root`].
///
/// # Errors
///
/// When there is no such account, or it is root.
pub fn check_user(user: &str) -> Result<(), PrivilegeError> {
    unprivileged(user).map(drop)
}

/// The number of the account `user`, if it exists.
pub(crate) fn uid_of(user: &str) -> Option<u32> {
    find(user).ok().map(|account| account.uid.as_raw())
}

/// Whether the account `user` may read a file by its permission bits; `false` if this cannot be found out.
pub(crate) fn may_read(user: &str, path: &Path) -> bool {
    find(user).is_ok_and(|account| allows(&account, path, READ))
}

/// As [`may_read`], for a file or directory and all directories above it.
pub(crate) fn may_reach(user: &str, path: &Path) -> bool {
    let (Ok(account), Ok(path)) = (find(user), path.canonicalize()) else {
        return false;
    };
    let wanted = if path.is_dir() { READ | SEARCH } else { READ };
    let mut above = path.ancestors().skip(1);
    allows(&account, &path, wanted) && above.all(|above| allows(&account, above, SEARCH))
}

/// Checks, as root, whether the account `user` may look up names in a directory that this process opens for it. The kernel
/// decides in a child process, because access control lists and network file systems know more than permission bits. The
/// directories above do not matter: the server opens the directory as root.
///
/// # Errors
///
/// The error of the kernel, or that of the account.
pub(crate) fn check_entering(user: &str, directory: &Path) -> io::Result<()> {
    const NOTHING: &str = ".";

    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = rustix::fs::open(directory, flags, Mode::empty())?;
    let (tell, told) = pair()?;
    let started = fork(|| {
        let entered = drop_root(user).map_err(|error| error.to_string());
        let entered = entered.and_then(|_| {
            rustix::fs::openat(&opened, NOTHING, flags, Mode::empty())
                .map_err(|errno| io::Error::from(errno).to_string())
        });
        tell_ready(&tell, entered.err().as_deref());
    });
    let Ok(child) = started else {
        // A process with threads has only the permission bits.
        let account = find(user).map_err(io::Error::other)?;
        return match allows(&account, directory, SEARCH) {
            true => Ok(()),
            false => Err(Errno::ACCESS.into()),
        };
    };
    drop(tell);
    let entered = wait_until_ready(&told);
    rustix::process::waitpid(Some(child), WaitOptions::empty())?;
    match entered {
        Ok(()) => Ok(()),
        Err(NotReady::Reason(reason)) => Err(io::Error::other(reason)),
        Err(NotReady::Ended(error)) => Err(error),
    }
}

/// As [`may_read`], for creating a file in its directory.
pub(crate) fn may_create(user: &str, path: &Path) -> bool {
    let parent = path.parent().and_then(|parent| parent.canonicalize().ok());
    let (Ok(account), Some(parent)) = (find(user), parent) else {
        return false;
    };
    let mut above = parent.ancestors().skip(1);
    allows(&account, &parent, WRITE | SEARCH) && above.all(|above| allows(&account, above, SEARCH))
}

/// The permission bits of others.
const READ: u32 = 0o4;
const WRITE: u32 = 0o2;
const SEARCH: u32 = 0o1;

fn allows(account: &User, path: &Path, rights: u32) -> bool {
    let Ok(found) = std::fs::metadata(path) else {
        return false;
    };
    let groups = std::ffi::CString::new(account.name.clone())
        .ok()
        .and_then(|name| getgrouplist(&name, account.gid).ok())
        .unwrap_or_else(|| vec![account.gid]);
    let rights = if found.uid() == account.uid.as_raw() {
        rights << 6
    } else if groups.iter().any(|group| group.as_raw() == found.gid()) {
        rights << 3
    } else {
        rights
    };
    found.mode() & rights == rights
}

fn unprivileged(user: &str) -> Result<User, PrivilegeError> {
    let account = find(user)?;
    if account.uid.is_root() {
        return Err(PrivilegeError::Root(user.to_owned()));
    }
    Ok(account)
}

fn find(user: &str) -> Result<User, PrivilegeError> {
    let found = match user.parse() {
        Ok(number) => User::from_uid(Uid::from_raw(number)),
        Err(_) => User::from_name(user),
    };
    found
        .ok()
        .flatten()
        .ok_or_else(|| PrivilegeError::UnknownAccount(user.to_owned()))
}

fn identity(uid: Uid, gid: Gid, dropped: bool) -> Identity {
    let account = User::from_uid(uid).ok().flatten();
    let group = Group::from_gid(gid).ok().flatten();
    Identity {
        account: account.map_or_else(|| uid.to_string(), |account| account.name),
        group: group.map_or_else(|| gid.to_string(), |group| group.name),
        dropped,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_found_by_name_and_by_number() {
        let root = find("root").expect("every machine has root");
        assert_eq!(root.uid, Uid::from_raw(0));
        assert_eq!(find("0").expect("root").name, "root");
    }

    #[test]
    fn an_unknown_account_is_named_with_what_to_do() {
        let error = find("no-such-account").expect_err("unknown").to_string();
        assert!(error.contains("'no-such-account'"), "{error}");
        assert!(error.contains("--user"), "{error}");
    }

    #[test]
    fn root_is_no_account_to_serve_as() {
        if Uid::effective().is_root() {
            assert!(matches!(drop_root("root"), Err(PrivilegeError::Root(_))));
        }
    }
}
