//! Directories, read piece by piece.

use std::collections::VecDeque;
use std::ffi::{CStr, CString, OsStr, OsString};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FileType, Mode, OFlags, RawDir};
use rustix::io::Errno;

use super::facts::{self, Judge, View};
use crate::{DirectoryEntry, DirectoryStream, FileKind, Metadata, StorageError};

/// Bytes that the kernel is asked to fill with names at a time; some hundred names.
const BUFFER: usize = 32 * 1024;

/// The names in an open directory, in the order of the kernel, without `.` and `..`.
#[derive(Debug)]
pub(super) struct Names {
    directory: OwnedFd,
    buffer: Vec<u8>,
    waiting: VecDeque<(CString, FileType)>,
}

impl Names {
    /// Starts where the descriptor stands, which is the beginning of one just opened.
    pub(super) fn new(directory: OwnedFd) -> Self {
        Self {
            directory,
            buffer: Vec::new(),
            waiting: VecDeque::new(),
        }
    }

    /// The directory that is read.
    pub(super) fn directory(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    /// The next name, and what it names if the file system says so here.
    pub(super) fn next(&mut self) -> Result<Option<(CString, FileType)>, Errno> {
        while self.waiting.is_empty() {
            if !self.fill()? {
                return Ok(None);
            }
        }
        Ok(self.waiting.pop_front())
    }

    /// Asks the kernel once; false at the end.
    fn fill(&mut self) -> Result<bool, Errno> {
        self.buffer.reserve(BUFFER);
        let mut entries = RawDir::new(&self.directory, self.buffer.spare_capacity_mut());
        loop {
            match entries.next() {
                Some(Ok(entry)) => {
                    let name = entry.file_name();
                    if name != c"." && name != c".." {
                        self.waiting.push_back((name.to_owned(), entry.file_type()));
                    }
                }
                Some(Err(Errno::INTR)) => continue,
                Some(Err(errno)) => return Err(errno),
                None => return Ok(false),
            }
            if entries.is_buffer_empty() {
                return Ok(true);
            }
        }
    }
}

/// A listing under way.
///
/// Access is judged by permission bits, which costs nothing; the kernel is asked for single paths.
pub(super) struct Listing {
    view: Arc<View>,
    /// What was asked for; the links in the directory are resolved from the root through it.
    path: PathBuf,
    names: Names,
}

impl Listing {
    pub(super) fn open(view: &Arc<View>, path: &Path) -> Result<Self, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let directory = view.root.resolve(path, flags, Mode::empty())?;
        Ok(Self {
            view: Arc::clone(view),
            path: path.to_owned(),
            names: Names::new(directory),
        })
    }

    fn metadata(&self, name: &CStr) -> Result<Metadata, Errno> {
        let directory = self.names.directory();
        let facts = facts::facts_at(directory, name)?;
        if facts::kind(&facts) != FileKind::Symlink {
            return Ok(self.view.entry(&facts, None));
        }
        // The kernel resolves from the root only, so the whole path is resolved again. It stays
        // inside, even if somebody has meanwhile put another directory there.
        let path = self.path.join(OsStr::from_bytes(name.to_bytes()));
        match self.view.stat(&path, Judge::ModeBits) {
            Ok(metadata) => Ok(metadata),
            // It leads nowhere, or nowhere that this account can see.
            Err(_) => {
                let target = facts::link_target(directory, name).ok();
                Ok(self.view.entry(&facts, target))
            }
        }
    }
}

impl DirectoryStream for Listing {
    fn next_entry(&mut self) -> Result<Option<DirectoryEntry>, StorageError> {
        let failed = |errno| StorageError::new("scandir", errno);
        while let Some((name, _)) = self.names.next().map_err(failed)? {
            match self.metadata(&name) {
                Ok(metadata) => {
                    let name = OsString::from_vec(name.into_bytes());
                    return Ok(Some(DirectoryEntry { name, metadata }));
                }
                // It is gone already.
                Err(Errno::NOENT | Errno::STALE) => {}
                Err(errno) => return Err(StorageError::new("stat", errno)),
            }
        }
        Ok(None)
    }
}
