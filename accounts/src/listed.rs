//! Opens files that only root may read, for the login process, which has no root privileges.
//!
//! The login process may request them at any time, also when an attacker controls it. So a file is opened only if no other
//! account than root can replace it, for example by a link to another secret of the machine.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path};

use rustix::fs::{FileType, Mode, OFlags, Stat, fstat, openat, readlinkat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::refusal::os_error;

/// The maximum number of symbolic links on a path, as in path_resolution(7).
const MOST_LINKS: usize = 40;

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

/// Opens a file for reading, after checking each directory and link of its path. Only regular files are opened: opening a
/// FIFO blocks, and opening a device may have side effects.
pub(crate) fn open(path: &Path) -> Result<OwnedFd, OpenError> {
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
        let found = openat(
            &here.opened,
            &name,
            OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
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
                // It is still the same file, because only root can change the directory.
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
                return Ok(openat(&here.opened, &name, flags, Mode::empty())?);
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
        let mode = Mode::from_raw_mode(self.facts.st_mode);
        let writable = mode.intersects(Mode::WGRP | Mode::WOTH);
        // In a sticky directory such as /tmp other accounts cannot replace files of root.
        let kept = mode.contains(Mode::SVTX) && entry.st_uid == 0;
        self.facts.st_uid == 0 && (!writable || kept)
    }
}
