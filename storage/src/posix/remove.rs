//! Removing a directory with all that is in it.
//!
//! The way down is a list, not recursion, and only the innermost directories are held open, so neither
//! the stack nor the descriptors limit how deep a tree may be. Every step is one name relative to a
//! held directory and follows no link: if a directory is swapped for a link while this runs, the link is removed, not
//! its target.

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

/// How many directories are held open.
const HELD: usize = 16;

/// How deep a tree may be. A path can name 2,048 levels; renaming makes deeper trees, and each level
/// takes memory here.
const DEPTH: usize = 65_536;

/// How often a directory is emptied again because new entries appeared.
const PASSES: usize = 16;

/// Removes what `path` names: a file or link, or a directory with all that is in it.
///
/// # Errors
///
/// `ENOTEMPTY` when others keep adding; `EBUSY` when others move the tree apart, and for the root itself;
/// `ECANCELED`; and whatever stops one entry from being removed, which leaves the rest as it is.
pub(super) fn remove_tree(
    root: &Root,
    path: &Path,
    cancelled: &dyn Fn() -> bool,
) -> Result<(), StorageError> {
    let (parent, last) = root.parent(path).map_err(failed("unlink"))?;
    let Some(name) = plain_name(last) else {
        // `.`, `..` and `/` cannot be removed, and this says why.
        return unlink_directory(&parent, last).map_err(failed("rmdir"));
    };
    match rustix::fs::unlinkat(&parent, last, AtFlags::empty()) {
        Err(Errno::ISDIR) => {}
        result => return result.map_err(failed("unlink")),
    }
    let mut walk = Walk {
        parent,
        left: Vec::new(),
        held: VecDeque::new(),
    };
    walk.enter(name, 1)?;
    while !walk.held.is_empty() {
        if cancelled() {
            return Err(StorageError::new("unlink", Errno::CANCELED));
        }
        walk.step()?;
    }
    Ok(())
}

/// The name without slashes behind it, if it can be the name of an entry.
fn plain_name(last: &OsStr) -> Option<CString> {
    let name = last.as_bytes();
    let end = name.iter().rposition(|&byte| byte != b'/')? + 1;
    match &name[..end] {
        b"." | b".." => None,
        name => CString::new(name).ok(),
    }
}

struct Walk {
    /// Where the tree stands.
    parent: OwnedFd,
    /// The outer directories, from the tree's top, closed to save descriptors.
    left: Vec<Left>,
    /// The directories inside those, the one that is being emptied last.
    held: VecDeque<Held>,
}

struct Left {
    name: CString,
    pass: usize,
    device: u64,
    inode: u64,
}

struct Held {
    /// The name in the directory above.
    name: CString,
    /// Which reading from the start this is.
    pass: usize,
    names: Names,
}

impl Walk {
    /// Removes one entry of the innermost directory, or goes down into it, or up.
    fn step(&mut self) -> Result<(), StorageError> {
        let Some(innermost) = self.held.back_mut() else {
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

    /// Goes down into a directory. Where something else has taken its place, the next pass over the
    /// directory above finds that.
    fn enter(&mut self, name: CString, pass: usize) -> Result<(), StorageError> {
        if self.left.len() + self.held.len() >= DEPTH {
            return Err(StorageError::new("scandir", Errno::NAMETOOLONG));
        }
        let directory = match open_directory(self.innermost(), &name) {
            Ok(directory) => directory,
            Err(Errno::NOENT) => return Ok(()),
            Err(Errno::NOTDIR | Errno::LOOP) if !self.held.is_empty() => return Ok(()),
            // It cannot be read, but if it is empty it can go.
            Err(errno @ Errno::ACCESS) => {
                return match unlink_directory(self.innermost(), &name) {
                    Ok(()) | Err(Errno::NOENT) => Ok(()),
                    Err(_) => Err(StorageError::new("scandir", errno)),
                };
            }
            Err(errno) => return Err(StorageError::new("scandir", errno)),
        };
        let names = Names::new(directory);
        self.held.push_back(Held { name, pass, names });
        self.close_outermost()
    }

    /// Goes up from a directory that was read to its end, and removes it.
    fn leave(&mut self) -> Result<(), StorageError> {
        let Some(emptied) = self.held.pop_back() else {
            return Ok(());
        };
        if self.held.is_empty() {
            self.reopen_above(&emptied)?;
        }
        match unlink_directory(self.innermost(), &emptied.name) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(Errno::NOTDIR) if !self.held.is_empty() => Ok(()),
            // New entries appeared, or another directory is in its place.
            Err(Errno::NOTEMPTY | Errno::EXIST) if emptied.pass < PASSES => {
                self.enter(emptied.name, emptied.pass + 1)
            }
            Err(errno) => Err(StorageError::new("rmdir", errno)),
        }
    }

    /// The directory that is being emptied, or above the tree.
    fn innermost(&self) -> BorrowedFd<'_> {
        match self.held.back() {
            Some(held) => held.names.directory(),
            None => self.parent.as_fd(),
        }
    }

    fn close_outermost(&mut self) -> Result<(), StorageError> {
        if self.held.len() > HELD
            && let Some(outermost) = self.held.pop_front()
        {
            let (device, inode) = identity(outermost.names.directory())?;
            self.left.push(Left {
                name: outermost.name,
                pass: outermost.pass,
                device,
                inode,
            });
        }
        Ok(())
    }

    /// Opens the directory above `below` again, if one was closed. `..` alone is not trusted: moving `below` changes
    /// its `..` too.
    fn reopen_above(&mut self, below: &Held) -> Result<(), StorageError> {
        let Some(left) = self.left.pop() else {
            return Ok(());
        };
        let directory =
            open_directory(below.names.directory(), c"..").map_err(failed("scandir"))?;
        if identity(directory.as_fd())? != (left.device, left.inode) {
            return Err(StorageError::new("rmdir", Errno::BUSY));
        }
        self.held.push_back(Held {
            name: left.name,
            pass: left.pass,
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

/// Device and inode, which no other directory has while this one exists.
fn identity(directory: BorrowedFd<'_>) -> Result<(u64, u64), StorageError> {
    let stat = rustix::fs::fstat(directory).map_err(failed("stat"))?;
    Ok((stat.st_dev, stat.st_ino))
}
