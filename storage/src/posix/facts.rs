//! Metadata of files, and the access of the account to them.

use std::ffi::OsStr;
use std::mem;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{Access as Question, AtFlags, CWD, FileType, Statx, StatxFlags};
use rustix::io::Errno;

use super::resolve::{Root, path_of};
use crate::{Access, Account, FileKind, Metadata};

/// A root from the point of view of one account.
#[derive(Debug)]
pub(super) struct View {
    pub(super) root: Root,
    /// Changes are refused, also if the kernel would permit them.
    pub(super) read_only: bool,
    /// Names are looked up in the account database.
    pub(super) account_names: bool,
    /// The effective user of this process.
    user: u32,
    /// The effective and supplementary groups of this process.
    groups: Vec<u32>,
}

/// How access is determined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AccessCheck {
    /// By the kernel, which considers access control lists, read-only mounts and the file server. Costs one to four system
    /// calls for each file, and on NFS up to as many round trips.
    Kernel,
    /// By permission bits, without a system call: for listings of many entries.
    ModeBits,
}

impl View {
    /// A view with the present identity of this process.
    pub(super) fn new(root: Root, read_only: bool, account_names: bool) -> Self {
        // Reading the groups does not fail in practice; the effective group remains if it does.
        let mut groups = rustix::process::getgroups().unwrap_or_default();
        groups.push(rustix::process::getegid());
        Self {
            root,
            read_only,
            account_names,
            user: rustix::process::geteuid().as_raw(),
            groups: groups.into_iter().map(rustix::fs::Gid::as_raw).collect(),
        }
    }

    /// The metadata of the file at `path`, and the target if its last component is a symbolic link.
    pub(super) fn stat(&self, path: &Path, check: AccessCheck) -> Result<Metadata, Errno> {
        // Most paths are not links and need three calls only: open, stat, close.
        let named = self.root.hold_unfollowed(path)?;
        let facts = facts_of(&named)?;
        if kind(&facts) != FileKind::Symlink {
            return Ok(self.metadata(&named, &facts, None, check));
        }
        let target = link_target(named.as_fd(), OsStr::new(""))?;
        let followed = self.root.hold(path)?;
        let facts = facts_of(&followed)?;
        Ok(self.metadata(&followed, &facts, Some(target), check))
    }

    /// The metadata of an entry of a listing, without following a link. `before` is that of the previous entry: most
    /// entries of a directory have the same owner, whose name is reused.
    pub(super) fn entry(
        &self,
        facts: &Statx,
        link_target: Option<PathBuf>,
        before: Option<&mut Metadata>,
    ) -> Metadata {
        let access = self.access_by_mode(facts);
        // The highest number is not a valid uid or gid.
        let take = |account: &mut Account| mem::replace(account, Account::number(u32::MAX));
        let (owner, group) = before.map_or((None, None), |before| {
            (Some(take(&mut before.owner)), Some(take(&mut before.group)))
        });
        let accounts = (
            owner
                .filter(|owner| owner.id == facts.stx_uid)
                .unwrap_or_else(|| self.user(facts.stx_uid)),
            group
                .filter(|group| group.id == facts.stx_gid)
                .unwrap_or_else(|| self.group(facts.stx_gid)),
        );
        describe(facts, link_target, access, accounts)
    }

    fn metadata(
        &self,
        held: impl AsFd,
        facts: &Statx,
        link_target: Option<PathBuf>,
        check: AccessCheck,
    ) -> Metadata {
        let access = match check {
            AccessCheck::Kernel => self
                .access_by_kernel(held.as_fd(), facts)
                .unwrap_or_else(|| self.access_by_mode(facts)),
            AccessCheck::ModeBits => self.access_by_mode(facts),
        };
        let accounts = (self.user(facts.stx_uid), self.group(facts.stx_gid));
        describe(facts, link_target, access, accounts)
    }

    fn user(&self, id: u32) -> Account {
        if self.account_names {
            Account::user(id)
        } else {
            Account::number(id)
        }
    }

    fn group(&self, id: u32) -> Account {
        if self.account_names {
            Account::group(id)
        } else {
            Account::number(id)
        }
    }

    /// `None` if `/proc` is missing, so that the kernel cannot be asked.
    fn access_by_kernel(&self, held: BorrowedFd<'_>, facts: &Statx) -> Option<Access> {
        let path = path_of(held);
        let may =
            |question| match rustix::fs::accessat(CWD, path.as_str(), question, AtFlags::EACCESS) {
                Ok(()) => Some(true),
                Err(Errno::NOENT | Errno::NOSYS | Errno::INVAL) => None,
                Err(_) => Some(false),
            };
        let directory = kind(facts) == FileKind::Directory;
        let mut questions = Question::READ_OK;
        questions.set(Question::WRITE_OK, !self.read_only);
        questions.set(Question::EXEC_OK, directory);
        // Mostly all access is permitted, and one call is enough.
        let all = may(questions)?;
        let single = |question| Some(questions.contains(question) && (all || may(question)?));
        Some(Access {
            read: single(Question::READ_OK)?,
            write: single(Question::WRITE_OK)?,
            search: single(Question::EXEC_OK)?,
        })
    }

    fn access_by_mode(&self, facts: &Statx) -> Access {
        let mode = u32::from(facts.stx_mode);
        // The superuser may read and write all files.
        let bits = if self.user == 0 {
            0o7
        } else if self.user == facts.stx_uid {
            mode >> 6
        } else if self.groups.contains(&facts.stx_gid) {
            mode >> 3
        } else {
            mode
        };
        Access {
            read: bits & 0o4 != 0,
            write: bits & 0o2 != 0 && !self.read_only,
            search: bits & 0o1 != 0 && kind(facts) == FileKind::Directory,
        }
    }
}

fn describe(
    facts: &Statx,
    link_target: Option<PathBuf>,
    access: Access,
    (owner, group): (Account, Account),
) -> Metadata {
    Metadata {
        kind: kind(facts),
        size: facts.stx_size,
        mode: u32::from(facts.stx_mode) & 0o7777,
        owner,
        group,
        links: u64::from(facts.stx_nlink),
        modified: time(facts.stx_mtime.tv_sec, facts.stx_mtime.tv_nsec),
        device: rustix::fs::makedev(facts.stx_dev_major, facts.stx_dev_minor),
        inode: facts.stx_ino,
        link_target,
        access,
    }
}

/// The status of `name` in a directory. Symbolic links are not followed, and no automount is triggered.
pub(super) fn facts_at(directory: impl AsFd, name: impl rustix::path::Arg) -> Result<Statx, Errno> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    rustix::fs::statx(directory, name, flags, WANTED)
}

/// The target of the link `name` in a directory; an empty name means the link that the descriptor refers to.
pub(super) fn link_target(
    directory: BorrowedFd<'_>,
    name: impl rustix::path::Arg,
) -> Result<PathBuf, Errno> {
    let target = rustix::fs::readlinkat(directory, name, Vec::new())?;
    Ok(PathBuf::from(std::ffi::OsString::from_vec(
        target.into_bytes(),
    )))
}

pub(super) fn kind(facts: &Statx) -> FileKind {
    match FileType::from_raw_mode(u32::from(facts.stx_mode)) {
        FileType::RegularFile => FileKind::File,
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink,
        FileType::Fifo => FileKind::Pipe,
        FileType::CharacterDevice => FileKind::CharacterDevice,
        FileType::BlockDevice => FileKind::BlockDevice,
        _ => FileKind::Other,
    }
}

const WANTED: StatxFlags = StatxFlags::TYPE
    .union(StatxFlags::MODE)
    .union(StatxFlags::NLINK)
    .union(StatxFlags::UID)
    .union(StatxFlags::GID)
    .union(StatxFlags::MTIME)
    .union(StatxFlags::INO)
    .union(StatxFlags::SIZE);

fn facts_of(held: impl AsFd) -> Result<Statx, Errno> {
    rustix::fs::statx(held, "", AtFlags::EMPTY_PATH, WANTED)
}

/// Nanoseconds are positive, also before 1970.
fn time(seconds: i64, nanoseconds: u32) -> SystemTime {
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let start = if seconds < 0 {
        SystemTime::UNIX_EPOCH.checked_sub(whole)
    } else {
        SystemTime::UNIX_EPOCH.checked_add(whole)
    };
    start
        .and_then(|start| start.checked_add(Duration::from_nanos(u64::from(nanoseconds))))
        .unwrap_or(SystemTime::UNIX_EPOCH)
}
