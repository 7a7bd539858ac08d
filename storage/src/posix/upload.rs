//! Files of unfinished uploads.
//!
//! Their names are predictable, and other accounts may have write permission in the directory. They could make a file or a
//! link at such a name in advance, to read an upload, or to have it written into another file. So a file is used only if it is
//! a regular file of this account with a single name. Anything else at the name is removed, and the file is made with
//! `O_EXCL`.
//!
//! An upload that will replace a file must not expose more than that file, neither by its own name nor through a descriptor
//! that was opened before its rights were narrowed. So its file grants nothing to other accounts until it is complete; it
//! gets the rights of the old file as the last step before the rename. A file that grants more, from an upload that began
//! when there was no old file, is not continued.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::failed;
use super::open::held_file;
use super::resolve::{Root, is_beside, last_name};
use super::rights::{self, OF_GROUP, OF_OTHERS};
use crate::{FileIdentity, StorageError, UploadOpening};

/// How often opening is retried because names change meanwhile.
const ATTEMPTS: usize = 16;

/// Opens the file of an unfinished upload, and returns its size. `mode` is that of a new file that is not private.
pub(super) fn open(
    root: &Root,
    path: &Path,
    mode: Mode,
    opening: UploadOpening,
) -> Result<(OwnedFd, u64), StorageError> {
    let failed = failed("open");
    let create = opening.create;
    let mode = if opening.private {
        // Where a directory has a default list, this makes its mask empty as well (acl(5)).
        (mode & (Mode::RUSR | Mode::WUSR)) | Mode::WUSR
    } else {
        mode
    };
    for _ in 0..ATTEMPTS {
        let mut refusal = None;
        if create {
            // Most uploads are new.
            match root.create_file("open", path, OFlags::WRONLY, mode) {
                Ok(file) => return Ok((file, 0)),
                Err(error) if error.errno == Errno::EXIST => {}
                // The name may be that of a file that was made before the rule.
                Err(error) if error.rule.is_some() => refusal = Some(error),
                Err(error) => return Err(error),
            }
        }
        match root.hold_unfollowed(path) {
            Ok(held) if is_usable(&rustix::fs::fstat(&held).map_err(&failed)?, opening) => {
                if let Some(opened) = held_file(root, path, &held, OFlags::WRONLY)? {
                    return Ok(opened);
                }
            }
            Ok(_) if create => {
                let (directory, name) = root.parent(path).map_err(&failed)?;
                match rustix::fs::unlinkat(directory, name, AtFlags::empty()) {
                    Ok(()) | Err(Errno::NOENT) => {}
                    Err(errno) => return Err(failed(errno)),
                }
            }
            Err(Errno::NOENT) if create => {
                if let Some(refusal) = refusal {
                    return Err(refusal);
                }
            }
            // A file that cannot be trusted is not the one of an earlier attempt.
            Ok(_) => return Err(failed(Errno::NOENT)),
            Err(errno) => return Err(failed(errno)),
        }
    }
    Err(failed(Errno::AGAIN))
}

/// Gives the file `identity` at `from` the rights of the one at `to`, if there is one, and renames it to `to`; `durable`
/// waits until the new name is on the disk.
pub(super) fn complete(
    root: &Root,
    from: &Path,
    to: &Path,
    identity: FileIdentity,
    durable: bool,
) -> Result<(), StorageError> {
    let failed = failed("rename");
    let place = root.new_place("rename", to)?;
    let above = match is_beside(from, to) {
        true => None,
        false => Some(root.parent(from).map_err(&failed)?.0),
    };
    let directory = above.as_ref().unwrap_or_else(|| place.directory());
    let name = last_name(from);
    if identity_of(directory, name).map_err(&failed)? != identity {
        return Err(failed(Errno::STALE));
    }
    match identity_of(place.directory(), place.name()) {
        Ok(_) => copy_rights(root, from, to, identity)?,
        Err(Errno::NOENT) => {}
        Err(errno) => return Err(failed(errno)),
    }
    place.rename_from(directory, name).map_err(&failed)?;
    // The name may have changed in between, so that another file was renamed.
    if identity_of(place.directory(), place.name()).map_err(&failed)? != identity {
        return Err(failed(Errno::STALE));
    }
    if durable {
        return sync(place.directory());
    }
    Ok(())
}

/// Gives the file `identity` at `from` the rights of the one at `to`, unless a link there leads to nothing.
fn copy_rights(
    root: &Root,
    from: &Path,
    to: &Path,
    identity: FileIdentity,
) -> Result<(), StorageError> {
    let failed = failed("rename");
    let new = root.hold_unfollowed(from).map_err(&failed)?;
    if held_identity(&new).map_err(&failed)? != identity {
        return Err(failed(Errno::STALE));
    }
    match root.hold(to) {
        Ok(old) => rights::copy(&old, &new).map_err(&failed),
        Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(failed(errno)),
    }
}

/// Whether the file `identity` is at `path` itself.
pub(super) fn is_at(root: &Root, path: &Path, identity: FileIdentity) -> Result<bool, Errno> {
    let file = root.hold_unfollowed(path)?;
    Ok(held_identity(&file)? == identity)
}

/// The file that is at a name, which may be a link.
fn identity_of(directory: impl AsFd, name: &OsStr) -> Result<FileIdentity, Errno> {
    let facts = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(identity(&facts))
}

/// The file of a descriptor.
fn held_identity(file: impl AsFd) -> Result<FileIdentity, Errno> {
    Ok(identity(&rustix::fs::fstat(file)?))
}

fn identity(facts: &Stat) -> FileIdentity {
    FileIdentity {
        device: facts.st_dev,
        inode: facts.st_ino,
    }
}

/// Waits until the entries of a directory are on the disk. Has no effect if the account may not read the directory, or the
/// file system does not support it.
fn sync(directory: impl AsFd) -> Result<(), StorageError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = match rustix::fs::openat(directory, c".", flags, Mode::empty()) {
        Err(Errno::ACCESS) => return Ok(()),
        directory => directory.map_err(failed("open"))?,
    };
    match rustix::io::retry_on_intr(|| rustix::fs::fsync(&directory)) {
        Ok(()) | Err(Errno::INVAL) => Ok(()),
        Err(errno) => Err(StorageError::new("fsync", errno)),
    }
}

fn is_usable(facts: &Stat, opening: UploadOpening) -> bool {
    // With a list the bits of the group are the mask of all that it names.
    let is_private = facts.st_mode & (OF_GROUP | OF_OTHERS) == 0;
    (is_private || !opening.private)
        && FileType::from_raw_mode(facts.st_mode) == FileType::RegularFile
        && facts.st_uid == rustix::process::geteuid().as_raw()
        && facts.st_nlink == 1
}
