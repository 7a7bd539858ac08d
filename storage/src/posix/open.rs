//! Opens regular files, and nothing else.
//!
//! To open a device can do something (a tape rewinds when it is closed), and to open a FIFO wakes who
//! waits at its other end. So a file is held first, which does neither (`O_PATH`), looked at, and only
//! then opened by the link that `/proc` has of what is held: no name is resolved again, and nothing can
//! take the place of what was looked at. A new file is made with `O_EXCL`.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::reopen::by_descriptor;
use super::resolve::Root;
use crate::StorageError;

/// How often opening is begun again because names change meanwhile or links lead on. The kernel follows
/// 40 links (path_resolution(7)).
const ATTEMPTS: usize = 64;

/// A regular file that exists, and its size.
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

/// A regular file that exists or is made here, and its size.
pub(super) fn existing_or_new(
    root: &Root,
    path: &Path,
    flags: OFlags,
    mode: Mode,
) -> Result<(OwnedFd, u64), StorageError> {
    let mut path = path.to_owned();
    for _ in 0..ATTEMPTS {
        if path.as_os_str().as_bytes().ends_with(b"/") {
            // As the kernel does where a file may be made: a directory is meant, whatever is there.
            root.parent(&path).map_err(failed)?;
            return Err(failed(Errno::ISDIR));
        }
        // Most files that are written are new.
        let refusal = match root.create_file("open", &path, flags, mode) {
            Ok(file) => return Ok((file, 0)),
            // It exists. So may a name that is refused to new files.
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
            // A link that leads nowhere yet, or a file that was removed meanwhile.
            Err(Errno::NOENT) => path = followed(root, path).map_err(failed)?,
            Err(errno) => return Err(failed(errno)),
        }
    }
    Err(failed(Errno::LOOP))
}

/// Opens what is held; `None` if that was not possible because another file has its name now.
fn held_file(
    root: &Root,
    path: &Path,
    held: &OwnedFd,
    flags: OFlags,
) -> Result<Option<(OwnedFd, u64)>, StorageError> {
    let facts = regular(held).map_err(failed)?;
    root.serves(held, &facts)?;
    let opened = match by_descriptor(held, flags) {
        // What is held is there, so it is `/proc` that is not.
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

/// The facts of a regular file; an error for anything else.
fn regular(held: &OwnedFd) -> Result<Stat, Errno> {
    let facts = rustix::fs::fstat(held)?;
    match FileType::from_raw_mode(facts.st_mode) {
        FileType::RegularFile => Ok(facts),
        FileType::Directory => Err(Errno::ISDIR),
        _ => Err(Errno::OPNOTSUPP),
    }
}

/// Opens the name again where there is no `/proc`, and refuses another file than the one that was looked
/// at. Who puts a device there in that moment has it opened, but neither read nor written.
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

/// Where the link at `path` leads, or `path` itself if it is none.
fn followed(root: &Root, path: PathBuf) -> Result<PathBuf, Errno> {
    let target = match root.hold_unfollowed(&path) {
        Ok(held) => rustix::fs::readlinkat(&held, "", Vec::new()),
        Err(errno) => Err(errno),
    };
    match target {
        Ok(target) => {
            // The last name is replaced, not what stands before it: `..` is the kernel's business.
            let bytes = path.as_os_str().as_bytes();
            let end = bytes.iter().rposition(|&byte| byte == b'/');
            let directory = OsStr::from_bytes(&bytes[..end.map_or(0, |slash| slash + 1)]);
            Ok(Path::new(directory).join(OsStr::from_bytes(target.as_bytes())))
        }
        // readlinkat(2): no link, or gone.
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
