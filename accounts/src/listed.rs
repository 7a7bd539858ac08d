//! Files that only root may read, opened for the login process, which is not root any more.
//!
//! That process may ask at any time, also when an attacker has taken it over. So a file is opened only if
//! root alone can put another in its place: a link to any secret of the machine would do.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path};

use rustix::fs::{FileType, Mode, OFlags, Stat, fstat, openat, readlinkat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::refusal::os_error;

/// Symbolic links on the way to a file; path_resolution(7) has as many.
const MOST_LINKS: usize = 40;

/// Why the monitor does not open a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum OpenError {
    /// The monitor was not told of it when it was started.
    #[error("it was not configured when the server started")]
    Unlisted,
    /// The server could have it point elsewhere.
    #[error(
        "others than root may put another in its place: let only root write to its directories"
    )]
    Exposed,
    /// It is a directory, a pipe or a device.
    #[error("it is no file")]
    NoFile,
    /// The kernel refused, or the monitor is gone.
    #[error("{}", os_error(Errno::from_raw_os_error(*.0)))]
    Kernel(i32),
}

impl From<Errno> for OpenError {
    fn from(errno: Errno) -> Self {
        Self::Kernel(errno.raw_os_error())
    }
}

/// A directory on the way, and what is known of it.
struct Directory {
    opened: OwnedFd,
    facts: Stat,
}

/// Whether a monitor that had this file on its list would open it: for reports. Must be called as root.
///
/// # Errors
///
/// Why it would not.
pub fn may_be_opened(path: &Path) -> Result<(), OpenError> {
    open(path).map(drop)
}

/// Opens a file for reading, after a look at each directory and link that leads to it. Nothing is opened
/// that is not a file: opening a pipe waits, and a device may do anything.
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
                // The same file: the directory is root's.
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
                return Ok(openat(&here.opened, &name, flags, Mode::empty())?);
            }
            _ => return Err(OpenError::NoFile),
        }
    }
    Err(OpenError::NoFile)
}

/// The names of a path, the first on top. `..` is a name too.
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

    /// Whether only root may put something else in the place of an entry.
    fn only_root_exchanges(&self, entry: &Stat) -> bool {
        let mode = Mode::from_raw_mode(self.facts.st_mode);
        let writable = mode.intersects(Mode::WGRP | Mode::WOTH);
        // As in /tmp, where what is root's stays root's.
        let kept = mode.contains(Mode::SVTX) && entry.st_uid == 0;
        self.facts.st_uid == 0 && (!writable || kept)
    }
}
