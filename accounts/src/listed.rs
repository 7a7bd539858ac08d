//! Opens files that only root may read, and logs that only root may write, for the login process, which has no root
//! privileges.
//!
//! The login process may request them at any time, also when an attacker controls it. So a file is opened only if no other
//! account than root can replace it, for example by a link to another secret of the machine. Logs are opened for appending
//! only, so that nothing that was logged can be changed.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    Access, AtFlags, FileType, Mode, OFlags, Stat, accessat, fstat, openat, readlinkat,
};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::refusal::os_error;

/// The maximum number of symbolic links on a path, as in path_resolution(7).
const MOST_LINKS: usize = 40;

/// The permission bits of a log that the monitor creates. Logs have names of users and files.
const LOG_MODE: Mode = Mode::from_raw_mode(0o640);

/// The files that the monitor opens or removes: those that are named at its start, and no others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListedFiles {
    /// For reading.
    pub read: Vec<PathBuf>,
    /// For appending. They are created if they do not exist.
    pub append: Vec<PathBuf>,
    /// The Unix socket of the server, which is removed when the server has ended.
    pub socket: Option<PathBuf>,
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
struct Directory {
    opened: OwnedFd,
    facts: Stat,
}

/// Checks whether the monitor would open this file if it were on its list, for reports. Must be called as root.
///
/// # Errors
///
/// The reason if it would not.
pub fn may_be_opened(path: &Path) -> Result<(), OpenError> {
    open(path).map(drop)
}

/// Checks whether the monitor would open or create this log if it were on its list, for reports. Must be called as root.
/// Creates nothing.
///
/// # Errors
///
/// The reason if it would not.
pub fn may_be_appended(path: &Path) -> Result<(), OpenError> {
    let (directory, name, facts) = match find(path)? {
        Found::File(directory, name) => {
            let facts = fstat(append(&directory.opened, &name, OFlags::empty())?)?;
            (directory, Some(name), facts)
        }
        Found::Free(directory, _) if !directory.only_root_adds() => return Err(OpenError::Exposed),
        Found::Free(directory, _) => {
            let facts = directory.facts;
            (directory, None, facts)
        }
    };
    // This process may have rights that the monitor gives up.
    if !root_may_write(&facts) {
        return Err(Errno::ACCESS.into());
    }
    let name = name.unwrap_or_else(|| OsString::from("."));
    // For file systems that are mounted read-only.
    Ok(accessat(
        &directory.opened,
        &name,
        Access::WRITE_OK,
        AtFlags::EACCESS,
    )?)
}

/// Whether permission bits let root write without the capability to ignore them.
fn root_may_write(facts: &Stat) -> bool {
    let wanted = match (facts.st_uid, facts.st_gid) {
        (0, _) => Mode::WUSR,
        (_, 0) => Mode::WGRP,
        _ => Mode::WOTH,
    };
    Mode::from_raw_mode(facts.st_mode).contains(wanted)
}

/// Opens a file for reading, after checking each directory and link of its path.
pub(crate) fn open(path: &Path) -> Result<OwnedFd, OpenError> {
    match find(path)? {
        Found::File(directory, name) => {
            // It is still the same file, because only root can change the directory.
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            Ok(openat(&directory.opened, &name, flags, Mode::empty())?)
        }
        Found::Free(..) => Err(Errno::NOENT.into()),
    }
}

/// Opens a log for appending, or creates it, with root's permissions, as the monitor does.
///
/// # Errors
///
/// The reason, [`OpenError::Exposed`] where another account than root could replace the log.
pub fn open_log(path: &Path) -> Result<OwnedFd, OpenError> {
    let (directory, name, flags) = match find(path)? {
        Found::File(directory, name) => (directory, name, OFlags::empty()),
        Found::Free(directory, _) if !directory.only_root_adds() => return Err(OpenError::Exposed),
        Found::Free(directory, name) => (directory, name, OFlags::CREATE),
    };
    let log = append(&directory.opened, &name, flags)?;
    // Another process of root may have put something else there meanwhile.
    match FileType::from_raw_mode(fstat(&log)?.st_mode) {
        FileType::RegularFile => Ok(log),
        _ => Err(OpenError::NoFile),
    }
}

fn append(directory: &OwnedFd, name: &OsStr, more: OFlags) -> Result<OwnedFd, Errno> {
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    openat(directory, name, flags | OFlags::CLOEXEC | more, LOG_MODE)
}

/// A place in a directory in which only root can replace it.
enum Found {
    /// A regular file.
    File(Directory, OsString),
    /// Nothing yet.
    Free(Directory, OsString),
}

/// Follows a path and checks each directory and link. Only regular files are found: opening a FIFO blocks, and opening a
/// device may have side effects.
fn find(path: &Path) -> Result<Found, OpenError> {
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
                return Ok(Found::Free(here, name));
            }
            found => found?,
        };
        let facts = fstat(&found)?;
        if !here.only_root_exchanges(&facts) {
            return Err(OpenError::Exposed);
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
                return Ok(Found::File(here, name));
            }
            _ => return Err(OpenError::NoFile),
        }
    }
    Err(OpenError::NoFile)
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
        // In a sticky directory such as /tmp other accounts cannot replace files of root.
        let mode = Mode::from_raw_mode(self.facts.st_mode);
        let kept = mode.contains(Mode::SVTX) && entry.st_uid == 0;
        self.facts.st_uid == 0 && (!self.is_writable() || kept)
    }

    /// Whether only root may create an entry in this directory.
    fn only_root_adds(&self) -> bool {
        self.facts.st_uid == 0 && !self.is_writable()
    }

    /// Whether other accounts than its owner may write to it.
    fn is_writable(&self) -> bool {
        let mode = Mode::from_raw_mode(self.facts.st_mode);
        mode.intersects(Mode::WGRP | Mode::WOTH)
    }
}
