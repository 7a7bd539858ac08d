//! Directories, read piece by piece.

use std::collections::VecDeque;
use std::ffi::{CStr, CString, OsStr};
use std::mem;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FileType, Mode, OFlags, RawDir};
use rustix::io::Errno;

use super::facts::{self, Judge, View};
use crate::{DirectoryRun, DirectoryStream, FileKind, Metadata, StorageError};

/// Bytes that the kernel is asked to fill with names at a time; some hundred names.
const BUFFER: usize = 32 * 1024;

/// The names in an open directory, in the order of the kernel, without `.` and `..`.
#[derive(Debug)]
pub(super) struct Names {
    directory: Arc<OwnedFd>,
    buffer: Vec<u8>,
    waiting: VecDeque<(CString, FileType)>,
}

impl Names {
    /// Starts where the descriptor stands, which is the beginning of one just opened.
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

    /// The next name, and what it names if the file system says so here.
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

    /// Asks the kernel once, and shows what it tells; false at the end.
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

/// A listing under way.
pub(super) struct Listing {
    view: Arc<View>,
    /// What was asked for; the links in the directory are resolved from the root through it.
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
            places: Vec::new(),
        };
        while run.places.len() < enough {
            let more = self.names.read(&mut |name, _| run.push(name));
            if !more.map_err(|errno| StorageError::new("scandir", errno))? {
                break;
            }
        }
        Ok((!run.places.is_empty()).then(|| Box::new(run) as _))
    }
}

/// Some names of a listing.
///
/// Access is judged by permission bits, which costs nothing; the kernel is asked for single paths.
struct Run {
    view: Arc<View>,
    path: Arc<Path>,
    directory: Arc<OwnedFd>,
    /// The names, each with a zero at its end as the kernel wants them.
    text: Vec<u8>,
    places: Vec<Place>,
}

/// Where a name is, with its zero.
#[derive(Clone, Copy)]
struct Place {
    start: usize,
    end: usize,
}

impl Place {
    fn name(self, text: &[u8]) -> &OsStr {
        OsStr::from_bytes(&text[self.start..self.end - 1])
    }
}

impl Run {
    fn push(&mut self, name: &CStr) {
        let start = self.text.len();
        self.text.extend_from_slice(name.to_bytes_with_nul());
        let end = self.text.len();
        self.places.push(Place { start, end });
    }

    fn sort(&mut self) {
        let text = &self.text;
        self.places.sort_unstable_by_key(|place| place.name(text));
    }

    /// The directory once more, for one thread alone: runs that are worked at beside each other would
    /// take turns at the count of references to one open file. `None` where it may not be searched,
    /// and for few names.
    fn open_again(&self) -> Option<OwnedFd> {
        /// Names for which it pays.
        const MANY: usize = 256;

        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let again = || rustix::fs::openat(&*self.directory, c".", flags, Mode::empty()).ok();
        (self.places.len() >= MANY).then(again).flatten()
    }

    /// The facts of an entry of `directory`. `before` are those of another, most likely with the same
    /// accounts, which it gives away.
    fn metadata(
        &self,
        directory: BorrowedFd<'_>,
        place: Place,
        before: Option<&mut Metadata>,
    ) -> Result<Metadata, Errno> {
        let name = CStr::from_bytes_with_nul(&self.text[place.start..place.end]);
        let name = name.map_err(|_| Errno::INVAL)?;
        let facts = facts::facts_at(directory, name)?;
        if facts::kind(&facts) != FileKind::Symlink {
            return Ok(self.view.entry(&facts, None, before));
        }
        // The kernel resolves from the root only, so the whole path is resolved again. It stays inside, even if
        // another directory was put there meanwhile.
        let path: PathBuf = self.path.join(place.name(&self.text));
        match self.view.stat(&path, Judge::ModeBits) {
            Ok(metadata) => Ok(metadata),
            // It leads nowhere, or nowhere that this account can see.
            Err(_) => {
                let target = facts::link_target(directory, name).ok();
                Ok(self.view.entry(&facts, target, before))
            }
        }
    }
}

impl DirectoryRun for Run {
    fn count(&self) -> usize {
        self.places.len()
    }

    fn retain(&mut self, wanted: &dyn Fn(&OsStr) -> bool) {
        let text = &self.text;
        self.places.retain(|place| wanted(place.name(text)));
    }

    fn names(&mut self, show: &mut dyn FnMut(&OsStr)) {
        self.sort();
        self.places
            .iter()
            .for_each(|place| show(place.name(&self.text)));
    }

    fn entries(&mut self, show: &mut dyn FnMut(&OsStr, &Metadata)) -> Result<(), StorageError> {
        self.sort();
        let own = self.open_again();
        let directory = own.as_ref().unwrap_or(&self.directory).as_fd();
        let mut before = None;
        for &place in &self.places {
            match self.metadata(directory, place, before.as_mut()) {
                Ok(metadata) => show(place.name(&self.text), before.insert(metadata)),
                // It is gone already.
                Err(Errno::NOENT | Errno::STALE) => {}
                Err(errno) => return Err(StorageError::new("stat", errno)),
            }
        }
        Ok(())
    }
}
