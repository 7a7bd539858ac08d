//! Removes a directory with its content.
//!
//! The path down the tree is a list and not a recursion, and only the innermost directories are open. So neither the stack
//! nor the limit of descriptors restricts the depth of a tree. Every step operates on one name relative to an open
//! directory and does not follow links: if a directory is replaced by a link meanwhile, the link is removed and not its
//! target.

use std::collections::VecDeque;
use std::ffi::{CStr, CString, OsStr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::failed;
use super::list::Names;
use super::resolve::Root;
use crate::StorageError;

/// The number of directories that are open at a time.
const MOST_OPEN: usize = 16;

/// The maximum depth of a tree. A path can name 2,048 levels, but renaming can make deeper trees, and each level needs
/// memory here.
const MAX_DEPTH: usize = 65_536;

/// How often a directory is read again because new entries have appeared.
const PASSES: usize = 16;

/// Removes a file, a link, or a directory with its content.
///
/// # Errors
///
/// `ENOTEMPTY` if other programs keep adding entries; `EBUSY` if they move directories of the tree, and for the root
/// itself; `ECANCELED`; and the error of an entry that cannot be removed. The remaining entries are kept then.
pub(super) fn remove_tree(
    root: &Root,
    path: &Path,
    cancelled: &dyn Fn() -> bool,
) -> Result<(), StorageError> {
    let (parent, last) = root.parent(path).map_err(failed("unlink"))?;
    let Some(name) = plain_name(last) else {
        // `.`, `..` and `/` cannot be removed: the kernel returns the right error.
        return unlink_directory(&parent, last).map_err(failed("rmdir"));
    };
    match rustix::fs::unlinkat(&parent, last, AtFlags::empty()) {
        Err(Errno::ISDIR) => {}
        result => return result.map_err(failed("unlink")),
    }
    let mut walk = Walk {
        parent,
        closed: Vec::new(),
        open: VecDeque::new(),
    };
    walk.enter(name, 1)?;
    while !walk.open.is_empty() {
        if cancelled() {
            return Err(StorageError::new("unlink", Errno::CANCELED));
        }
        walk.step()?;
    }
    Ok(())
}

/// The name without trailing slashes, if it can be the name of an entry.
fn plain_name(last: &OsStr) -> Option<CString> {
    let name = last.as_bytes();
    let end = name.iter().rposition(|&byte| byte != b'/')? + 1;
    match &name[..end] {
        b"." | b".." => None,
        name => CString::new(name).ok(),
    }
}

struct Walk {
    /// The directory that contains the tree.
    parent: OwnedFd,
    /// The outer directories, from the top of the tree, which are closed to save descriptors.
    closed: Vec<Closed>,
    /// The directories inside those. The last one is being emptied.
    open: VecDeque<Open>,
}

struct Closed {
    name: CString,
    pass: usize,
    device: u64,
    inode: u64,
}

struct Open {
    /// The name in the directory above.
    name: CString,
    /// The number of the pass over the directory, from 1.
    pass: usize,
    names: Names,
}

impl Walk {
    /// Removes one entry of the innermost directory, or enters it if it is a directory, or leaves an empty directory.
    fn step(&mut self) -> Result<(), StorageError> {
        let Some(innermost) = self.open.back_mut() else {
            return Ok(());
        };
        let names = &mut innermost.names;
        let Some((name, file_type)) = names.next().map_err(failed("scandir"))? else {
            return self.leave();
        };
        if file_type != FileType::Directory {
            match rustix::fs::unlinkat(names.directory(), &name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => return Ok(()),
                Err(Errno::ISDIR) => {}
                Err(errno) => return Err(StorageError::new("unlink", errno)),
            }
        }
        self.enter(name, 1)
    }

    /// Enters a directory. If another file has taken its name, the next pass over the directory above finds that.
    fn enter(&mut self, name: CString, pass: usize) -> Result<(), StorageError> {
        if self.closed.len() + self.open.len() >= MAX_DEPTH {
            return Err(StorageError::new("scandir", Errno::NAMETOOLONG));
        }
        let directory = match open_directory(self.innermost(), &name) {
            Ok(directory) => directory,
            Err(Errno::NOENT) => return Ok(()),
            Err(Errno::NOTDIR | Errno::LOOP) if !self.open.is_empty() => return Ok(()),
            // It cannot be read, but if it is empty it can be removed.
            Err(errno @ Errno::ACCESS) => {
                return match unlink_directory(self.innermost(), &name) {
                    Ok(()) | Err(Errno::NOENT) => Ok(()),
                    Err(_) => Err(StorageError::new("scandir", errno)),
                };
            }
            Err(errno) => return Err(StorageError::new("scandir", errno)),
        };
        let names = Names::new(directory);
        self.open.push_back(Open { name, pass, names });
        self.close_outermost()
    }

    /// Leaves a directory that was read to its end, and removes it.
    fn leave(&mut self) -> Result<(), StorageError> {
        let Some(emptied) = self.open.pop_back() else {
            return Ok(());
        };
        if self.open.is_empty() {
            self.reopen_above(&emptied)?;
        }
        match unlink_directory(self.innermost(), &emptied.name) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(Errno::NOTDIR) if !self.open.is_empty() => Ok(()),
            // New entries have appeared, or another directory has its name.
            Err(Errno::NOTEMPTY | Errno::EXIST) if emptied.pass < PASSES => {
                self.enter(emptied.name, emptied.pass + 1)
            }
            Err(errno) => Err(StorageError::new("rmdir", errno)),
        }
    }

    /// The directory that is being emptied, or the one that contains the tree.
    fn innermost(&self) -> BorrowedFd<'_> {
        match self.open.back() {
            Some(innermost) => innermost.names.directory(),
            None => self.parent.as_fd(),
        }
    }

    fn close_outermost(&mut self) -> Result<(), StorageError> {
        if self.open.len() > MOST_OPEN
            && let Some(outermost) = self.open.pop_front()
        {
            let (device, inode) = identity(outermost.names.directory())?;
            self.closed.push(Closed {
                name: outermost.name,
                pass: outermost.pass,
                device,
                inode,
            });
        }
        Ok(())
    }

    /// Opens the directory above `below` again, if it was closed. `..` is checked, because it changes if `below` is moved.
    fn reopen_above(&mut self, below: &Open) -> Result<(), StorageError> {
        let Some(closed) = self.closed.pop() else {
            return Ok(());
        };
        let directory =
            open_directory(below.names.directory(), c"..").map_err(failed("scandir"))?;
        if identity(directory.as_fd())? != (closed.device, closed.inode) {
            return Err(StorageError::new("rmdir", Errno::BUSY));
        }
        self.open.push_back(Open {
            name: closed.name,
            pass: closed.pass,
            names: Names::new(directory),
        });
        Ok(())
    }
}

fn open_directory(above: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(above, name, flags, Mode::empty())
}

fn unlink_directory(above: impl AsFd, name: impl rustix::path::Arg) -> Result<(), Errno> {
    rustix::fs::unlinkat(above, name, AtFlags::REMOVEDIR)
}

/// Device and inode, which are unique while the directory exists.
fn identity(directory: BorrowedFd<'_>) -> Result<(u64, u64), StorageError> {
    let stat = rustix::fs::fstat(directory).map_err(failed("stat"))?;
    Ok((stat.st_dev, stat.st_ino))
}
