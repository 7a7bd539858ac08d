//! Opens logs with root's permissions, for appending only.
//!
//! A log may be in a directory to which other accounts can write: `/var/log` belongs to `root:syslog` with mode 0775 on Ubuntu.
//! What they put at the name of the log must not lead root to another file. So a symbolic link is not followed there, and a
//! file is used only if it has one name and belongs to root or to the account of the server: a hard link to a file of the
//! machine has a second name. A new log is made with `O_EXCL`. All directories above must be those that only root can replace.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{Access, AtFlags, FileType, Mode, OFlags, Stat, accessat, fstat, openat, statat};
use rustix::io::Errno;

use crate::listed::{Directory, Found, OpenError, find};

/// The permission bits of a log that the monitor creates. Logs have names of users and files.
const MODE: Mode = Mode::from_raw_mode(0o640);

/// How often opening is retried because another account changes the name meanwhile.
const ATTEMPTS: usize = 16;

/// Checks whether the monitor would open or create this log if it were on its list, for reports. Must be called as root.
/// Creates nothing. `owner` is the account of the server.
///
/// # Errors
///
/// The reason if it would not.
pub fn may_be_appended(path: &Path, owner: Option<u32>) -> Result<(), OpenError> {
    let (directory, name, facts) = match find(path)? {
        Found::File(directory, name) => {
            let facts = fstat(append(&directory, &name, OFlags::empty())?)?;
            (directory, name, facts)
        }
        Found::Shared(directory, name) => {
            let facts = statat(&directory.opened, &name, AtFlags::SYMLINK_NOFOLLOW)?;
            if !is_own(&facts, owner) {
                return Err(OpenError::Planted);
            }
            (directory, name, facts)
        }
        Found::Free(directory, _) if directory.facts.st_uid != 0 => {
            return Err(OpenError::Exposed);
        }
        Found::Free(directory, _) => {
            let facts = directory.facts;
            (directory, OsString::from("."), facts)
        }
    };
    // This process may have rights that the monitor gives up.
    if !root_may_write(&facts) {
        return Err(Errno::ACCESS.into());
    }
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

/// Opens a log for appending, or creates it, with root's permissions, as the monitor does. `owner` is the account of the
/// server.
///
/// # Errors
///
/// The reason: [`OpenError::Exposed`] where another account than root could replace the log's directory,
/// [`OpenError::Planted`] where another account may have put the file there.
pub fn open_log(path: &Path, owner: Option<u32>) -> Result<OwnedFd, OpenError> {
    for _ in 0..ATTEMPTS {
        let opened = match find(path)? {
            Found::File(directory, name) => {
                let log = append(&directory, &name, OFlags::empty())?;
                // Another process of root may have put something else there meanwhile.
                return match FileType::from_raw_mode(fstat(&log)?.st_mode) {
                    FileType::RegularFile => Ok(log),
                    _ => Err(OpenError::NoFile),
                };
            }
            Found::Shared(directory, name) => open_shared(&directory, &name, owner)?,
            Found::Free(directory, _) if directory.facts.st_uid != 0 => {
                return Err(OpenError::Exposed);
            }
            Found::Free(directory, name) => {
                match append(&directory, &name, OFlags::CREATE | OFlags::EXCL) {
                    Err(Errno::EXIST) => None,
                    made => Some(made?),
                }
            }
        };
        if let Some(log) = opened {
            return Ok(log);
        }
    }
    Err(OpenError::Planted)
}

/// `None` if the log has gone meanwhile.
fn open_shared(
    directory: &Directory,
    name: &OsStr,
    owner: Option<u32>,
) -> Result<Option<OwnedFd>, OpenError> {
    // A device is not even opened. What was looked at may be another file than the one that is opened.
    let facts = match statat(&directory.opened, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(None),
        facts => facts?,
    };
    if !is_own(&facts, owner) {
        return Err(OpenError::Planted);
    }
    let log = match append(directory, name, OFlags::empty()) {
        Err(Errno::NOENT) => return Ok(None),
        // A link, or a FIFO without a reader.
        Err(Errno::LOOP | Errno::NXIO) => return Err(OpenError::Planted),
        log => log?,
    };
    match is_own(&fstat(&log)?, owner) {
        true => Ok(Some(log)),
        false => Err(OpenError::Planted),
    }
}

/// Whether no other account can have put this file there: it is a regular file with one name, of root or of the server.
fn is_own(facts: &Stat, owner: Option<u32>) -> bool {
    FileType::from_raw_mode(facts.st_mode) == FileType::RegularFile
        && facts.st_nlink == 1
        && (facts.st_uid == 0 || Some(facts.st_uid) == owner)
}

fn append(directory: &Directory, name: &OsStr, more: OFlags) -> Result<OwnedFd, Errno> {
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    openat(
        &directory.opened,
        name,
        flags | OFlags::CLOEXEC | more,
        MODE,
    )
}
