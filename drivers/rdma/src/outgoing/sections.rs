//! Sections of files that are pinned just in time and sent from the page cache.
//!
//! With `register=dynamic` a file is not read into a ring. Its pages in the page cache are mapped
//! and registered, a section at a time, and a device sends from them. This saves a copy and costs a
//! registration, so sections stay pinned for a while after use: the same file sent again over the
//! channel uses them again.
//!
//! All sections of a channel together are bounded by its part of the memory for rings; a small part
//! means small sections. A section belongs to one channel, because a registration does.
//!
//! Files may change. Pinned pages stay valid when the file is truncated, and the processor never
//! reads them, so no SIGBUS can come. A kept section is used again only for a file that was not
//! changed since.

use std::io;
use std::num::NonZeroUsize;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gridhaul_stack::Detail;
use rustix::fs::fstat;

use crate::engine::Source;
use crate::memory::Memory;
use crate::provider::{Access, Endpoint};

/// The sections of one channel.
#[derive(Debug)]
pub(crate) struct Sections {
    /// The bound of all sections in bytes.
    allowance: usize,
    /// The longest section, in bytes.
    longest: usize,
    /// The least recently used first. A cache of the crate `lru` does not fit: a lookup matches a
    /// range within a section and not a key, and sections in use must not be evicted.
    sections: Vec<Section>,
    /// The file system's shared pages cannot be pinned; the mapping is private, which copies them.
    is_private: bool,
    /// Devices of file systems whose files cannot be pinned.
    refused: Vec<u64>,
    /// The number of calls so far.
    call: u64,
    counts: Counts,
}

/// Counters for the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Counts {
    pinned: u64,
    reused: u64,
}

/// A pinned part of a file.
#[derive(Debug)]
struct Section {
    state: FileState,
    /// Its offset in the file.
    offset: u64,
    length: usize,
    region: usize,
    /// The position of the stream up to which it is needed.
    needed_to: u64,
    /// The call for which it was pinned.
    call: u64,
    /// Later calls may use it while the file is unchanged.
    is_lasting: bool,
}

impl Section {
    /// Where the bytes at `offset` of the file are, if they are pinned here, and how many of
    /// `length`.
    fn find(&self, offset: u64, length: usize) -> Option<Pinned> {
        let within = usize::try_from(offset.checked_sub(self.offset)?).ok()?;
        let there = self.length.checked_sub(within).filter(|there| *there > 0)?;
        let source = Source {
            region: self.region,
            offset: within,
        };
        let length = there.min(length);
        Some(Pinned { source, length })
    }
}

/// Identifies a version of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileState {
    device: u64,
    inode: u64,
    pub(crate) bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// Where a part of a file is pinned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pinned {
    pub(crate) source: Source,
    pub(crate) length: usize,
}

/// The longest section. Larger ones are no cheaper and take longer to pin.
const MAX_SECTION_BYTES: usize = 1 << 20;

/// The least memory for all sections with which pinning is worthwhile.
const LEAST_PAGES: usize = 32;

/// The most sections at a time: devices have a limited number of registrations.
const MAX_SECTIONS: usize = 1024;

/// The most file systems that are remembered as unsuitable.
const MAX_REFUSED: usize = 64;

/// How old the last change of a file must be to identify its version: a write within one tick of
/// the kernel's clock leaves the time of change as it is.
const SETTLED: Duration = Duration::from_secs(1);

impl FileState {
    pub(crate) fn of(file: BorrowedFd<'_>) -> io::Result<Self> {
        let stat = fstat(file)?;
        Ok(Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            bytes: u64::try_from(stat.st_size).unwrap_or(0),
            modified: (
                stat.st_mtime,
                i64::try_from(stat.st_mtime_nsec).unwrap_or(0),
            ),
            changed: (
                stat.st_ctime,
                i64::try_from(stat.st_ctime_nsec).unwrap_or(0),
            ),
        })
    }

    /// Whether any further change would show in the times.
    fn is_settled(&self, now: SystemTime) -> bool {
        let seconds = u64::try_from(self.changed.0).unwrap_or(0);
        let changed = UNIX_EPOCH + Duration::from_secs(seconds + 1);
        now.duration_since(changed).is_ok_and(|age| age >= SETTLED)
    }
}

impl Sections {
    /// Sections for a channel with a ring of this length; `None` if it is too short for them.
    ///
    /// They take half of the ring's memory. The other end returns credit by quarters of the ring: a
    /// sender with less than that in flight, because it has memory for one section only, would wait
    /// for ever.
    pub(crate) fn for_ring(ring_bytes: u64) -> Option<Self> {
        let page = rustix::param::page_size();
        let half = usize::try_from(ring_bytes / 2).unwrap_or(usize::MAX);
        let allowance = half / page * page;
        (allowance >= LEAST_PAGES * page).then_some(Self {
            allowance,
            longest: (allowance / 8).min(MAX_SECTION_BYTES) / page * page,
            sections: Vec::new(),
            is_private: false,
            refused: Vec::new(),
            call: 0,
            counts: Counts::default(),
        })
    }

    /// The bound of all sections in bytes.
    pub(crate) fn allowance(&self) -> usize {
        self.allowance
    }

    /// Begins a call. Sections of earlier calls count only for unchanged files.
    pub(crate) fn begin(&mut self) {
        self.call += 1;
    }

    /// Current values and counters for the log.
    pub(crate) fn details(&self) -> [Detail; 3] {
        [
            Detail::holding("pinned-file-bytes", self.pinned_bytes() as u64),
            Detail::count("sections-pinned", self.counts.pinned),
            Detail::count("sections-reused", self.counts.reused),
        ]
    }

    /// The memory that the sections take, in bytes.
    fn pinned_bytes(&self) -> usize {
        self.sections.iter().map(|section| section.length).sum()
    }

    /// Pins up to `length` bytes at `offset` of a file. Returns `None` while all memory is in use;
    /// sections that end at or before `free_to` of the stream are not in use.
    ///
    /// # Errors
    ///
    /// When the file cannot be mapped or pinned. It can still be read.
    pub(crate) fn pin(
        &mut self,
        endpoint: &mut dyn Endpoint,
        file: (BorrowedFd<'_>, &FileState),
        offset: u64,
        length: NonZeroUsize,
        free_to: u64,
    ) -> io::Result<Option<Pinned>> {
        let (file, state) = file;
        if self.refused.contains(&state.device) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        if let Some(pinned) = self.find(state, offset, length.get()) {
            return Ok(Some(pinned));
        }
        let page = rustix::param::page_size();
        let first = offset - offset % page as u64;
        let within = usize::try_from(offset - first).expect("less than a page");
        let bytes = (within + length.get()).min(self.longest);
        let bytes = bytes.next_multiple_of(page);
        while self.is_full(bytes) {
            let is_free = |section: &Section| section.needed_to <= free_to;
            let Some(oldest) = self.sections.iter().position(is_free) else {
                return Ok(None);
            };
            let section = self.sections.remove(oldest);
            endpoint.deregister(section.region);
        }
        let mapped = NonZeroUsize::new(bytes).ok_or(io::ErrorKind::InvalidInput)?;
        let registered = self.register(endpoint, file, first, mapped);
        let region = registered.inspect_err(|error| self.note_refusal(state, error))?;
        self.counts.pinned += 1;
        self.sections.push(Section {
            state: *state,
            offset: first,
            length: bytes,
            region,
            needed_to: 0,
            call: self.call,
            is_lasting: state.is_settled(SystemTime::now()),
        });
        Ok(self.find(state, offset, length.get()))
    }

    /// The section of a region is needed up to this position of the stream.
    pub(crate) fn need(&mut self, region: usize, to: u64) {
        let section = self
            .sections
            .iter()
            .rposition(|section| section.region == region);
        if let Some(found) = section {
            let mut section = self.sections.remove(found);
            section.needed_to = to;
            if section.call != self.call {
                section.call = self.call;
                self.counts.reused += 1;
            }
            self.sections.push(section);
        }
    }

    fn find(&self, state: &FileState, offset: u64, length: usize) -> Option<Pinned> {
        let matches = |section: &Section| {
            section.state == *state && (section.is_lasting || section.call == self.call)
        };
        let mut matching = self
            .sections
            .iter()
            .rev()
            .filter(|section| matches(section));
        matching.find_map(|section| section.find(offset, length))
    }

    /// Whether this many more bytes exceed the bound.
    fn is_full(&self, bytes: usize) -> bool {
        self.sections.len() >= MAX_SECTIONS || self.pinned_bytes() + bytes > self.allowance
    }

    /// Remembers that pinning fails for the files of a file system. Trying again costs more than reading,
    /// for each section. A truncated file (EFAULT) does not affect others.
    fn note_refusal(&mut self, state: &FileState, error: &io::Error) {
        let is_lasting = !matches!(error.raw_os_error(), Some(libc::EFAULT | libc::EINTR));
        if is_lasting && self.refused.len() < MAX_REFUSED {
            self.refused.push(state.device);
        }
    }

    fn register(
        &mut self,
        endpoint: &mut dyn Endpoint,
        file: BorrowedFd<'_>,
        offset: u64,
        length: NonZeroUsize,
    ) -> io::Result<usize> {
        let mut register = |is_private| -> io::Result<usize> {
            let memory = Arc::new(Memory::of_file(file, offset, length, is_private)?);
            Ok(endpoint.register(&memory, Access::Local)?.id)
        };
        match register(self.is_private) {
            // Kernels before 6.2 pin no shared pages of a file that is open for reading.
            Err(error) if !self.is_private && error.raw_os_error() == Some(libc::EFAULT) => {
                let region = register(true)?;
                self.is_private = true;
                Ok(region)
            }
            outcome => outcome,
        }
    }
}

#[cfg(test)]
mod tests;
