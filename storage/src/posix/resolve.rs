//! Resolves paths beneath an open directory, by the kernel.
//!
//! All paths become descriptors here. `openat2` with `RESOLVE_IN_ROOT` keeps every step of the resolution beneath the root,
//! despite symbolic links, `..` and concurrent renames. `RESOLVE_NO_MAGICLINKS` refuses links such as `/proc/PID/root`.
//! Paths are never parsed to check them, only to separate the last name from its directory.
//!
//! `openat2` needs Linux 5.6. There is no fallback, because checks of paths in the program have race conditions: an older
//! kernel, or a sandbox that forbids the call, is an error when the root is opened.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, Stat, StatxFlags};
use rustix::io::Errno;

use super::place::Place;
use super::rules;
use crate::StorageError;
use crate::error::OPENAT2;

/// How often a resolution that failed because of a concurrent rename is repeated. Resolving `..` fails if any file of the
/// machine is renamed at that moment (openat2(2), `EAGAIN`).
const ATTEMPTS: usize = 128;

/// An open directory, beneath which paths are resolved.
#[derive(Debug)]
pub(super) struct Root {
    descriptor: OwnedFd,
    /// The path that was opened.
    path: PathBuf,
    /// The resolved path, as the kernel reports it.
    place: Option<Place>,
    /// The device number of its file system, unless that is a pseudo file system. The number is unique while the root is
    /// open.
    served: Option<u64>,
}

impl Root {
    /// Opens `path`, without restrictions on its resolution, and checks that `openat2` works.
    pub(super) fn open(path: &Path) -> Result<Self, StorageError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let descriptor = rustix::fs::open(path, flags, Mode::empty())
            .map_err(|errno| StorageError::new("open", errno))?;
        let root = Self {
            place: Place::of(&descriptor),
            served: rules::served(&descriptor)
                .and_then(|()| device(&descriptor))
                .ok(),
            descriptor,
            path: path.to_owned(),
        };
        match root.resolve(Path::new("."), flags, Mode::empty()) {
            Ok(_) => Ok(root),
            // A sandbox answers an unlisted call with EPERM, which the call itself does not return here.
            Err(errno @ (Errno::NOSYS | Errno::PERM)) => Err(StorageError::new(OPENAT2, errno)),
            Err(errno) => Err(StorageError::new("open", errno)),
        }
    }

    /// Whether the path of the root still leads to the open directory. It does not after a rename, or if a file system is
    /// mounted over it.
    pub(super) fn is_current(&self) -> Result<bool, Errno> {
        // Cached attributes of a network file system are sufficient: a login must not wait for its server.
        let identity = |directory: BorrowedFd<'_>, path: &Path| {
            let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
            rustix::fs::statx(directory, path, flags, StatxFlags::INO)
                .map(|facts| (facts.stx_dev_major, facts.stx_dev_minor, facts.stx_ino))
        };
        let held = identity(self.descriptor.as_fd(), Path::new(""))?;
        match identity(CWD, &self.path) {
            Ok(found) => Ok(held == found),
            // The process may not follow the path: it was root when it opened the directory.
            Err(Errno::ACCESS) => {
                let place = self.place.as_ref();
                let has = place.and_then(|place| place.still_has(&self.descriptor));
                has.ok_or(Errno::ACCESS)
            }
            Err(errno) => Err(errno),
        }
    }

    /// Whether a file may be opened: see [`rules::served`].
    pub(super) fn serves(&self, held: &OwnedFd, facts: &Stat) -> Result<(), StorageError> {
        if self.served == Some(facts.st_dev) {
            return Ok(());
        }
        rules::served(held)
    }

    /// Opens the file at `path`. Symbolic links are followed beneath the root.
    pub(super) fn resolve(&self, path: &Path, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let flags = flags | OFlags::CLOEXEC;
        let mut result = Err(Errno::AGAIN);
        for _ in 0..ATTEMPTS {
            result = rustix::fs::openat2(&self.descriptor, path, flags, mode, resolve);
            if !matches!(result, Err(Errno::AGAIN | Errno::INTR)) {
                break;
            }
        }
        result
    }

    /// A descriptor of the file at `path` with `O_PATH`, for its metadata and attributes.
    pub(super) fn hold(&self, path: &Path) -> Result<OwnedFd, Errno> {
        self.resolve(path, OFlags::PATH, Mode::empty())
    }

    /// As [`Root::hold`], without following a link in the last component.
    pub(super) fn hold_unfollowed(&self, path: &Path) -> Result<OwnedFd, Errno> {
        self.resolve(path, OFlags::PATH | OFlags::NOFOLLOW, Mode::empty())
    }

    /// The directory of the last name of `path`, and that name, for calls that change directories.
    ///
    /// The name may have trailing slashes, and it may be `.`, `..`, `/` or empty. It can be passed on unchanged: all calls
    /// that make, remove or rename an entry return the right error for these names, and do not follow a link in the last
    /// component.
    pub(super) fn parent<'path>(
        &self,
        path: &'path Path,
    ) -> Result<(OwnedFd, &'path OsStr), Errno> {
        let (directory, name) = split(path.as_os_str().as_bytes());
        let parent = self.resolve(
            Path::new(OsStr::from_bytes(directory)),
            OFlags::PATH | OFlags::DIRECTORY,
            Mode::empty(),
        )?;
        Ok((parent, OsStr::from_bytes(name)))
    }

    /// Makes a regular file and opens it, if the rules permit its name. It is an error if the name exists, even as a link.
    pub(super) fn create_file(
        &self,
        call: &'static str,
        path: &Path,
        flags: OFlags,
        mode: Mode,
    ) -> Result<OwnedFd, StorageError> {
        let (_, name) = split(path.as_os_str().as_bytes());
        rules::new_name(name).map_err(|rule| StorageError::refused(call, rule))?;
        let flags = flags.difference(OFlags::TRUNC) | OFlags::CREATE | OFlags::EXCL;
        self.resolve(path, flags, mode)
            .map_err(|errno| StorageError::new(call, errno))
    }

    /// The directory and name of a new entry, if the rules permit the name.
    pub(super) fn new_place<'path>(
        &self,
        call: &'static str,
        path: &'path Path,
    ) -> Result<NewPlace<'path>, StorageError> {
        let (directory, name) = self
            .parent(path)
            .map_err(|errno| StorageError::new(call, errno))?;
        rules::new_name(name.as_bytes()).map_err(|rule| StorageError::refused(call, rule))?;
        let name = Cow::Borrowed(name);
        Ok(NewPlace { directory, name })
    }
}

/// A new entry of a directory, whose name the rules permit. Except for [`Root::create_file`], entries are made only through
/// this type.
#[derive(Debug)]
pub(super) struct NewPlace<'path> {
    directory: OwnedFd,
    /// As in [`Root::parent`].
    name: Cow<'path, OsStr>,
}

impl NewPlace<'_> {
    /// The same place, which outlives the path.
    pub(super) fn into_owned(self) -> NewPlace<'static> {
        NewPlace {
            directory: self.directory,
            name: Cow::Owned(self.name.into_owned()),
        }
    }

    /// Whether there is no entry, not even a link that leads to nothing.
    pub(super) fn is_free(&self) -> bool {
        let found = rustix::fs::statat(&self.directory, self.name(), AtFlags::SYMLINK_NOFOLLOW);
        matches!(found, Err(Errno::NOENT))
    }

    pub(super) fn make_directory(&self, mode: Mode) -> Result<(), Errno> {
        rustix::fs::mkdirat(&self.directory, self.name(), mode)
    }

    pub(super) fn make_link(&self, target: &Path) -> Result<(), Errno> {
        rustix::fs::symlinkat(target, &self.directory, self.name())
    }

    pub(super) fn directory(&self) -> &OwnedFd {
        &self.directory
    }

    pub(super) fn name(&self) -> &OsStr {
        &self.name
    }

    /// Renames an entry of `directory` to this one.
    pub(super) fn rename_from(&self, directory: impl AsFd, name: &OsStr) -> Result<(), Errno> {
        rustix::fs::renameat(directory, name, &self.directory, self.name())
    }

    /// Makes another link to a file. It is an error if the name exists.
    pub(super) fn link_from(
        &self,
        directory: impl AsFd,
        name: &str,
        flags: AtFlags,
    ) -> Result<(), Errno> {
        rustix::fs::linkat(directory, name, &self.directory, self.name(), flags)
    }
}

fn device(held: &OwnedFd) -> Result<u64, StorageError> {
    let facts = rustix::fs::fstat(held).map_err(|errno| StorageError::new("stat", errno))?;
    Ok(facts.st_dev)
}

/// A path to the file of a descriptor, which cannot be redirected to another file.
///
/// For calls that do not accept an `O_PATH` descriptor, such as `chmod` before Linux 6.6. Requires `/proc`.
pub(super) fn path_of(descriptor: impl AsFd) -> String {
    format!("/proc/self/fd/{}", descriptor.as_fd().as_raw_fd())
}

/// Whether both paths name entries of the same directory, in the same words.
pub(super) fn is_beside(one: &Path, other: &Path) -> bool {
    let [one, other] = [one, other].map(|path| split(path.as_os_str().as_bytes()).0);
    one == other
}

/// The name in [`Root::parent`].
pub(super) fn last_name(path: &Path) -> &OsStr {
    OsStr::from_bytes(split(path.as_os_str().as_bytes()).1)
}

/// Splits before the last name; slashes after the name stay with it.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let Some(end) = path.iter().rposition(|&byte| byte != b'/') else {
        // The root itself, or an empty path.
        return (b".", &path[..path.len().min(1)]);
    };
    match path[..end].iter().rposition(|&byte| byte == b'/') {
        Some(slash) => path.split_at(slash + 1),
        None => (b".", path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_name_keeps_its_slashes() {
        let cases = [
            ("", ".", ""),
            ("/", ".", "/"),
            ("///", ".", "/"),
            ("a", ".", "a"),
            ("/a", "/", "a"),
            ("a/", ".", "a/"),
            ("a//", ".", "a//"),
            ("a/b", "a/", "b"),
            ("/a//b/", "/a//", "b/"),
            ("a/..", "a/", ".."),
            ("./", ".", "./"),
        ];
        for (path, directory, name) in cases {
            let expected = (directory.as_bytes(), name.as_bytes());
            assert_eq!(split(path.as_bytes()), expected, "{path:?}");
        }
    }

    #[test]
    fn a_root_is_current_until_its_path_leads_elsewhere() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("root");
        std::fs::create_dir(&path).unwrap();
        let root = Root::open(&path).unwrap();
        assert_eq!(root.is_current(), Ok(true));
        std::fs::write(path.join("file"), "x").unwrap();
        assert_eq!(root.is_current(), Ok(true));
        std::fs::rename(&path, place.path().join("old")).unwrap();
        assert_eq!(root.is_current(), Err(Errno::NOENT));
        std::fs::create_dir(&path).unwrap();
        assert_eq!(root.is_current(), Ok(false));
        assert_eq!(Root::open(&path).unwrap().is_current(), Ok(true));
    }

    #[test]
    fn a_file_is_no_root() {
        let error = Root::open(Path::new("/dev/null")).unwrap_err();
        assert_eq!(error.errno, Errno::NOTDIR);
    }
}
