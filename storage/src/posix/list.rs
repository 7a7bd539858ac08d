//! Reads directories in pieces of bounded size.

use std::collections::VecDeque;
use std::ffi::{CStr, CString, OsStr};
use std::mem;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FileType, Mode, OFlags, RawDir};
use rustix::io::Errno;

use super::facts::{self, AccessCheck, View};
use crate::{DirectoryRun, DirectoryStream, FileKind, Metadata, StorageError};

/// The buffer of `getdents64` in bytes, for some hundred names.
const BUFFER: usize = 32 * 1024;

/// The names in an open directory, in the order of the file system, without `.` and `..`.
#[derive(Debug)]
pub(super) struct Names {
    directory: Arc<OwnedFd>,
    buffer: Vec<u8>,
    waiting: VecDeque<(CString, FileType)>,
}

impl Names {
    /// Starts at the offset of the descriptor, which is 0 after it was opened.
    pub(super) fn new(directory: OwnedFd) -> Self {
        Self {
            directory: Arc::new(directory),
            buffer: Vec::new(),
            waiting: VecDeque::new(),
        }
    }

    /// The directory that is read.
    pub(super) fn directory(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    /// The next name, and the file's type if the file system reports it here.
    pub(super) fn next(&mut self) -> Result<Option<(CString, FileType)>, Errno> {
        let mut waiting = mem::take(&mut self.waiting);
        while waiting.is_empty() {
            let more = self.read(&mut |name, file_type| {
                waiting.push_back((name.to_owned(), file_type));
            });
            if !more? {
                return Ok(None);
            }
        }
        let next = waiting.pop_front();
        self.waiting = waiting;
        Ok(next)
    }

    /// Makes one call of `getdents64`, and passes the entries to `show`; false at the end.
    fn read(&mut self, show: &mut dyn FnMut(&CStr, FileType)) -> Result<bool, Errno> {
        self.buffer.reserve(BUFFER);
        let mut entries = RawDir::new(&self.directory, self.buffer.spare_capacity_mut());
        loop {
            match entries.next() {
                Some(Ok(entry)) => {
                    let name = entry.file_name();
                    if name != c"." && name != c".." {
                        show(name, entry.file_type());
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

/// A listing in progress.
pub(super) struct Listing {
    view: Arc<View>,
    /// The path of the directory, through which its symbolic links are resolved from the root.
    path: Arc<Path>,
    names: Names,
}

impl Listing {
    pub(super) fn open(view: &Arc<View>, path: &Path) -> Result<Self, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let directory = view.root.resolve(path, flags, Mode::empty())?;
        Ok(Self {
            view: Arc::clone(view),
            path: path.into(),
            names: Names::new(directory),
        })
    }
}

impl DirectoryStream for Listing {
    fn next_run(&mut self, enough: usize) -> Result<Option<Box<dyn DirectoryRun>>, StorageError> {
        let mut run = Run {
            view: Arc::clone(&self.view),
            path: Arc::clone(&self.path),
            directory: Arc::clone(&self.names.directory),
            text: Vec::new(),
            names: Vec::new(),
        };
        while run.names.len() < enough {
            let more = self.names.read(&mut |name, _| run.push(name));
            if !more.map_err(|errno| StorageError::new("scandir", errno))? {
                break;
            }
        }
        Ok((!run.names.is_empty()).then(|| Box::new(run) as _))
    }
}

/// A run of names of a listing.
struct Run {
    view: Arc<View>,
    path: Arc<Path>,
    directory: Arc<OwnedFd>,
    /// The names, each with a terminating zero byte.
    text: Vec<u8>,
    names: Vec<NameRange>,
}

/// The position of a name in the text, with its zero byte.
#[derive(Clone, Copy)]
struct NameRange {
    start: usize,
    end: usize,
}

impl NameRange {
    fn in_text(self, text: &[u8]) -> &OsStr {
        OsStr::from_bytes(&text[self.start..self.end - 1])
    }
}

impl Run {
    fn push(&mut self, name: &CStr) {
        let start = self.text.len();
        self.text.extend_from_slice(name.to_bytes_with_nul());
        let end = self.text.len();
        self.names.push(NameRange { start, end });
    }

    fn sort(&mut self) {
        let text = &self.text;
        self.names.sort_unstable_by_key(|name| name.in_text(text));
    }

    /// A second descriptor of the directory, for this thread alone: threads that process runs concurrently would contend
    /// for the reference count of a shared one. `None` if the directory may not be searched, and for few names.
    fn open_again(&self) -> Option<OwnedFd> {
        /// The number of names from which it pays off.
        const MANY: usize = 256;

        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let again = || rustix::fs::openat(&*self.directory, c".", flags, Mode::empty()).ok();
        (self.names.len() >= MANY).then(again).flatten()
    }

    /// The metadata of an entry of `directory`. `before` is that of the previous entry, most likely of the same owner,
    /// whose name is moved out of it.
    fn metadata(
        &self,
        directory: BorrowedFd<'_>,
        name: NameRange,
        before: Option<&mut Metadata>,
    ) -> Result<Metadata, Errno> {
        let c_name = CStr::from_bytes_with_nul(&self.text[name.start..name.end]);
        let c_name = c_name.map_err(|_| Errno::INVAL)?;
        let facts = facts::facts_at(directory, c_name)?;
        if facts::kind(&facts) != FileKind::Symlink {
            return Ok(self.view.entry(&facts, None, before));
        }
        // A link can be resolved from the root only, so the whole path is resolved again. It stays beneath the root, even
        // if the directory was replaced meanwhile.
        let path: PathBuf = self.path.join(name.in_text(&self.text));
        match self.view.stat(&path, AccessCheck::ModeBits) {
            Ok(metadata) => Ok(metadata),
            // The link is dangling, or the account may not follow it.
            Err(_) => {
                let target = facts::link_target(directory, c_name).ok();
                Ok(self.view.entry(&facts, target, before))
            }
        }
    }
}

impl DirectoryRun for Run {
    fn count(&self) -> usize {
        self.names.len()
    }

    fn retain(&mut self, wanted: &dyn Fn(&OsStr) -> bool) {
        let text = &self.text;
        self.names.retain(|name| wanted(name.in_text(text)));
    }

    fn names(&mut self, show: &mut dyn FnMut(&OsStr)) {
        self.sort();
        self.names
            .iter()
            .for_each(|name| show(name.in_text(&self.text)));
    }

    fn entries(&mut self, show: &mut dyn FnMut(&OsStr, &Metadata)) -> Result<(), StorageError> {
        self.sort();
        let own = self.open_again();
        let directory = own.as_ref().unwrap_or(&self.directory).as_fd();
        let mut before = None;
        for &name in &self.names {
            match self.metadata(directory, name, before.as_mut()) {
                Ok(metadata) => show(name.in_text(&self.text), before.insert(metadata)),
                // Removed meanwhile.
                Err(Errno::NOENT | Errno::STALE) => {}
                Err(errno) => return Err(StorageError::new("stat", errno)),
            }
        }
        Ok(())
    }
}
