//! Opens regular files only.
//!
//! Opening a device can have side effects (a tape rewinds when it is closed), and opening a FIFO wakes the process at its
//! other end. So the file is first opened with `O_PATH`, which does neither, then checked, and then opened through the
//! link to its descriptor in `/proc`. The name is not resolved again, so no other file can be substituted after the check.
//! A new file is made with `O_EXCL`.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::reopen::by_descriptor;
use super::resolve::Root;
use crate::StorageError;

/// How often opening is retried because names change meanwhile or links are followed. The kernel follows 40 links
/// (path_resolution(7)).
const ATTEMPTS: usize = 64;

/// Opens an existing regular file, and returns its size.
pub(super) fn existing(
    root: &Root,
    path: &Path,
    flags: OFlags,
) -> Result<(OwnedFd, u64), StorageError> {
    for _ in 0..ATTEMPTS {
        let held = root.hold(path).map_err(failed)?;
        if let Some(opened) = held_file(root, path, &held, flags)? {
            return Ok(opened);
        }
    }
    Err(failed(Errno::AGAIN))
}

/// Opens a regular file, or makes a new one, and returns its size.
pub(super) fn existing_or_new(
    root: &Root,
    path: &Path,
    flags: OFlags,
    mode: Mode,
) -> Result<(OwnedFd, u64), StorageError> {
    let mut path = path.to_owned();
    for _ in 0..ATTEMPTS {
        if path.as_os_str().as_bytes().ends_with(b"/") {
            // As the kernel does with `O_CREAT`: a trailing slash means a directory.
            root.parent(&path).map_err(failed)?;
            return Err(failed(Errno::ISDIR));
        }
        // Most files that are written are new.
        let refusal = match root.create_file("open", &path, flags, mode) {
            Ok(file) => return Ok((file, 0)),
            // The file exists, or may exist although its name is refused for new files.
            Err(error) if error.errno == Errno::EXIST || error.rule.is_some() => error,
            Err(error) => return Err(error),
        };
        match root.hold(&path) {
            Ok(held) => {
                if let Some(opened) = held_file(root, &path, &held, flags)? {
                    return Ok(opened);
                }
            }
            Err(Errno::NOENT) if refusal.rule.is_some() => return Err(refusal),
            // A dangling link, or a file that was removed meanwhile.
            Err(Errno::NOENT) => path = followed(root, path).map_err(failed)?,
            Err(errno) => return Err(failed(errno)),
        }
    }
    Err(failed(Errno::LOOP))
}

/// Opens a file that is open with `O_PATH`; `None` if there is no `/proc`, and its name belongs to another file now.
pub(super) fn held_file(
    root: &Root,
    path: &Path,
    held: &OwnedFd,
    flags: OFlags,
) -> Result<Option<(OwnedFd, u64)>, StorageError> {
    let facts = regular(held).map_err(failed)?;
    root.serves(held, &facts)?;
    let opened = match by_descriptor(held, flags) {
        // The file is open and exists, so `/proc` is missing.
        Err(Errno::NOENT) => by_name(root, path, &facts, flags),
        opened => opened.map(Some),
    };
    let Some(file) = opened.map_err(failed)? else {
        return Ok(None);
    };
    let size = match flags.contains(OFlags::TRUNC) {
        true => 0,
        false => u64::try_from(facts.st_size).unwrap_or(0),
    };
    Ok(Some((file, size)))
}

/// The status of a regular file; an error for other types.
fn regular(held: &OwnedFd) -> Result<Stat, Errno> {
    let facts = rustix::fs::fstat(held)?;
    match FileType::from_raw_mode(facts.st_mode) {
        FileType::RegularFile => Ok(facts),
        FileType::Directory => Err(Errno::ISDIR),
        _ => Err(Errno::OPNOTSUPP),
    }
}

/// Opens the name again, without `/proc`, and refuses another file than the one that was checked. A device that takes the
/// name in that moment is opened, but not read or written.
fn by_name(
    root: &Root,
    path: &Path,
    wanted: &Stat,
    flags: OFlags,
) -> Result<Option<OwnedFd>, Errno> {
    let cut = flags.contains(OFlags::TRUNC);
    let flags = flags.difference(OFlags::TRUNC) | OFlags::NOCTTY | OFlags::NONBLOCK;
    let file = match root.resolve(path, flags, Mode::empty()) {
        Err(Errno::NOENT | Errno::NXIO) => return Ok(None),
        file => file?,
    };
    let found = rustix::fs::fstat(&file)?;
    if (found.st_dev, found.st_ino) != (wanted.st_dev, wanted.st_ino) {
        return Ok(None);
    }
    if cut {
        rustix::fs::ftruncate(&file, 0)?;
    }
    Ok(Some(file))
}

/// The target of the link at `path`, or `path` itself if it is not a link.
fn followed(root: &Root, path: PathBuf) -> Result<PathBuf, Errno> {
    let target = match root.hold_unfollowed(&path) {
        Ok(held) => rustix::fs::readlinkat(&held, "", Vec::new()),
        Err(errno) => Err(errno),
    };
    match target {
        Ok(target) => {
            // Only the last name is replaced. `..` in the path before it is left to the kernel.
            let bytes = path.as_os_str().as_bytes();
            let end = bytes.iter().rposition(|&byte| byte == b'/');
            let directory = OsStr::from_bytes(&bytes[..end.map_or(0, |slash| slash + 1)]);
            Ok(Path::new(directory).join(OsStr::from_bytes(target.as_bytes())))
        }
        // readlinkat(2): not a link, or removed.
        Err(Errno::NOENT | Errno::INVAL) => Ok(path),
        Err(errno) => Err(errno),
    }
}

fn failed(errno: Errno) -> StorageError {
    StorageError::new("open", errno)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn without_proc_the_name_is_opened_if_it_is_still_the_same_file() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::open(directory.path()).unwrap();
        fs::write(directory.path().join("f"), "content").unwrap();
        fs::write(directory.path().join("g"), "content").unwrap();
        let path = Path::new("f");
        let facts = rustix::fs::fstat(root.hold(path).unwrap()).unwrap();
        let open = |flags| by_name(&root, path, &facts, flags).unwrap();
        assert!(open(OFlags::RDONLY).is_some());
        assert!(open(OFlags::WRONLY | OFlags::TRUNC).is_some());
        assert_eq!(fs::read(directory.path().join("f")).unwrap(), b"");
        fs::rename(directory.path().join("g"), directory.path().join("f")).unwrap();
        assert!(open(OFlags::WRONLY | OFlags::TRUNC).is_none());
        assert_eq!(fs::read(directory.path().join("f")).unwrap(), b"content");
        fs::remove_file(directory.path().join("f")).unwrap();
        assert!(open(OFlags::RDONLY).is_none());
    }
}
