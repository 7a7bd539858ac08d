//! Opens files that only root may read, for the login process, which has no root privileges.
//!
//! The login process may request them at any time, also when an attacker controls it. So a file is opened only if no other
//! account than root can replace it, for example by a link to another secret of the machine.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, Stat, fstat, openat, readlinkat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::refusal::os_error;

/// The maximum number of symbolic links on a path, as in path_resolution(7).
const MOST_LINKS: usize = 40;

/// The files that the monitor opens or removes: those that are named at its start, and no others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListedFiles {
    /// For reading.
    pub read: Vec<PathBuf>,
    /// For appending. They are created if they do not exist.
    pub append: Vec<PathBuf>,
    /// The Unix socket of the server, which is removed when the server has ended.
    pub socket: Option<PathBuf>,
    /// The account, besides root, to which a log in a directory that other accounts may write to may belong.
    pub log_owner: Option<u32>,
}

impl ListedFiles {
    /// Whether there is no file to open.
    pub fn is_empty(&self) -> bool {
        self.read.is_empty() && self.append.is_empty()
    }
}

/// Why the monitor does not open a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum OpenError {
    /// It is not on the monitor's list.
    #[error("it was not configured when the server started")]
    Unlisted,
    /// Another account than root could replace it.
    #[error("accounts other than root can replace it: let only root write to its directories")]
    Exposed,
    /// Another account may have put it there.
    #[error(
        "accounts other than root can write to its directory, and it is not a regular file with one name that belongs to root \
         or to the account of the server: remove it, or let only root write to its directory"
    )]
    Planted,
    /// It is not a regular file.
    #[error("it is no file")]
    NoFile,
    /// A system call failed, or the monitor has ended.
    #[error("{}", os_error(Errno::from_raw_os_error(*.0)))]
    Kernel(i32),
}

impl From<Errno> for OpenError {
    fn from(errno: Errno) -> Self {
        Self::Kernel(errno.raw_os_error())
    }
}

/// A directory of the path, and its status.
pub(crate) struct Directory {
    pub(crate) opened: OwnedFd,
    pub(crate) facts: Stat,
}

/// Checks whether the monitor would open this file if it were on its list, for reports. Must be called as root.
///
/// # Errors
///
/// The reason if it would not.
pub fn may_be_opened(path: &Path) -> Result<(), OpenError> {
    open(path).map(drop)
}

/// Opens a file for reading, after checking each directory and link of its path.
pub(crate) fn open(path: &Path) -> Result<OwnedFd, OpenError> {
    match find(path)? {
        Found::File(directory, name) => {
            // It is still the same file, because only root can change the directory.
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            Ok(openat(&directory.opened, &name, flags, Mode::empty())?)
        }
        Found::Shared(..) => Err(OpenError::Exposed),
        Found::Free(..) => Err(Errno::NOENT.into()),
    }
}

/// A place in a directory that belongs to root.
pub(crate) enum Found {
    /// A regular file that only root can replace.
    File(Directory, OsString),
    /// Something that other accounts can replace.
    Shared(Directory, OsString),
    /// Nothing yet. Other accounts may be able to put something there.
    Free(Directory, OsString),
}

/// Follows a path and checks each directory and link, except what is at the end in a directory of root. Only regular files are found: opening a FIFO blocks, and opening a
/// device may have side effects.
pub(crate) fn find(path: &Path) -> Result<Found, OpenError> {
    match walk(path)? {
        Walked::Entry(found) => Ok(found),
        Walked::Directory(_) => Err(OpenError::NoFile),
    }
}

/// Follows a path to a directory that no other account than root can replace, opened with `O_PATH`. Other accounts may be able
/// to write to it.
pub(crate) fn find_directory(path: &Path) -> Result<Directory, OpenError> {
    match walk(path)? {
        Walked::Directory(directory) => Ok(directory),
        Walked::Entry(Found::Free(..)) => Err(Errno::NOENT.into()),
        Walked::Entry(Found::Shared(..)) => Err(OpenError::Exposed),
        Walked::Entry(Found::File(..)) => Err(OpenError::NoFile),
    }
}

/// The end of a path.
enum Walked {
    Entry(Found),
    Directory(Directory),
}

fn walk(path: &Path) -> Result<Walked, OpenError> {
    let path = std::path::absolute(path)
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::INVAL))?;
    let mut way = vec![Directory::root()?];
    let mut ahead = Vec::new();
    put_ahead(&mut ahead, &path);
    let mut links = 0;
    while let (Some(name), Some(here)) = (ahead.pop(), way.last()) {
        if name == ".." {
            // The root's parent is the root.
            way.truncate((way.len() - 1).max(1));
            continue;
        }
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let found = match openat(&here.opened, &name, flags, Mode::empty()) {
            Err(Errno::NOENT) if ahead.is_empty() => {
                let here = way.pop().ok_or(Errno::NOENT)?;
                return Ok(Walked::Entry(Found::Free(here, name)));
            }
            found => found?,
        };
        let facts = fstat(&found)?;
        if !here.only_root_exchanges(&facts) {
            let here = way.pop().ok_or(Errno::NOENT)?;
            return match ahead.is_empty() && here.facts.st_uid == 0 {
                true => Ok(Walked::Entry(Found::Shared(here, name))),
                false => Err(OpenError::Exposed),
            };
        }
        match FileType::from_raw_mode(facts.st_mode) {
            FileType::Symlink => {
                links += 1;
                if links > MOST_LINKS {
                    return Err(Errno::LOOP.into());
                }
                let target = readlinkat(&found, "", Vec::new())?;
                let target = Path::new(OsStr::from_bytes(target.as_bytes()));
                if target.is_absolute() {
                    way.truncate(1);
                }
                put_ahead(&mut ahead, target);
            }
            FileType::Directory => way.push(Directory {
                opened: found,
                facts,
            }),
            FileType::RegularFile if ahead.is_empty() => {
                let here = way.pop().ok_or(Errno::NOENT)?;
                return Ok(Walked::Entry(Found::File(here, name)));
            }
            _ => return Err(OpenError::NoFile),
        }
    }
    way.pop().map(Walked::Directory).ok_or(OpenError::NoFile)
}

/// Pushes the names of a path, the first on top. `..` is a name as well.
fn put_ahead(ahead: &mut Vec<OsString>, path: &Path) {
    let names = path
        .components()
        .rev()
        .filter_map(|component| match component {
            Component::Normal(name) => Some(name.to_owned()),
            Component::ParentDir => Some(OsString::from("..")),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
        });
    ahead.extend(names);
}

impl Directory {
    fn root() -> Result<Self, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::open("/", flags, Mode::empty())?;
        let facts = fstat(&opened)?;
        Ok(Self { opened, facts })
    }

    /// Whether only root may replace an entry of this directory.
    fn only_root_exchanges(&self, entry: &Stat) -> bool {
        // In a sticky directory such as /tmp other accounts cannot replace files of root. But they may be able to make the first
        // entry a second name of a file of root (link(2), unless `fs.protected_hardlinks` is set).
        let mode = Mode::from_raw_mode(self.facts.st_mode);
        let is_directory = FileType::from_raw_mode(entry.st_mode) == FileType::Directory;
        let has_one_name = is_directory || entry.st_nlink == 1;
        let kept = mode.contains(Mode::SVTX) && entry.st_uid == 0 && has_one_name;
        self.facts.st_uid == 0 && (!self.is_writable() || kept)
    }

    /// Whether other accounts than its owner may write to it.
    fn is_writable(&self) -> bool {
        let mode = Mode::from_raw_mode(self.facts.st_mode);
        mode.intersects(Mode::WGRP | Mode::WOTH)
    }
}
