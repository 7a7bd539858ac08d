//! Mapped pages and their kind.

use std::fmt;
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::thread::{self, ScopedJoinHandle};

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

/// A mapping whose pages are populated from the start, so that its first use does not fault.
#[derive(Debug)]
pub(super) struct Pages {
    start: NonNull<u8>,
    length: NonZeroUsize,
    kind: PageKind,
}

// SAFETY: the mapping belongs to this value until it is dropped, and no code here reads or writes
// it.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

/// The size of a mapping's pages. Large ones need fewer translations in a device and a processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PageKind {
    /// Reserved by the administrator (`vm.nr_hugepages`).
    Huge,
    /// Small or huge ones, at the kernel's choice.
    Transparent,
    /// The processor's base size.
    Small,
}

impl fmt::Display for PageKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Huge => "huge",
            Self::Transparent => "transparent",
            Self::Small => "small",
        })
    }
}

/// A mapping of twice this length is populated by two threads.
const BYTES_OF_A_THREAD: usize = 256 << 20;

/// The most threads that populate a mapping.
const MAX_THREADS: usize = 8;

/// A thread populates so many bytes at a time, and stops in between if the mapping is not wanted any more. That is some tens of
/// milliseconds. As many are unmapped at a time.
const STEP_BYTES: usize = 64 << 20;

/// The size of a huge page. Architectures with other sizes get transparent ones.
const HUGE_BYTES: usize = 2 << 20;

impl Pages {
    /// Maps `length` bytes of zeros, as long as they are wanted.
    ///
    /// # Errors
    ///
    /// When there is no memory, and ECANCELED when they are not wanted any more.
    pub(super) fn map(
        length: NonZeroUsize,
        are_wanted: &(dyn Fn() -> bool + Sync),
    ) -> io::Result<Self> {
        if length.get().is_multiple_of(HUGE_BYTES)
            && let Ok(pages) = Self::map_as(length, PageKind::Huge, are_wanted)
        {
            return Ok(pages);
        }
        let kind = if length.get() >= HUGE_BYTES && has_transparent() {
            PageKind::Transparent
        } else {
            PageKind::Small
        };
        Self::map_as(length, kind, are_wanted)
    }

    fn map_as(
        length: NonZeroUsize,
        kind: PageKind,
        are_wanted: &(dyn Fn() -> bool + Sync),
    ) -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = match kind {
            PageKind::Huge => MapFlags::PRIVATE | MapFlags::HUGETLB | MapFlags::HUGE_2MB,
            PageKind::Transparent | PageKind::Small => MapFlags::PRIVATE,
        };
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing else.
        let start =
            unsafe { mmap_anonymous(std::ptr::null_mut(), length.get(), protection, flags) }?;
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let pages = Self {
            start,
            length,
            kind,
        };
        if kind == PageKind::Transparent {
            // Only advice: without it the pages are small.
            let _ = pages.advise(Advice::LinuxHugepage);
        }
        match pages.populate(BYTES_OF_A_THREAD, are_wanted) {
            // Kernels before 5.14 populate pages at first use.
            Ok(()) | Err(Errno::INVAL) => Ok(pages),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Populates all pages: several threads at once if the mapping is long, since the kernel clears
    /// only some gigabytes in a second with one.
    fn populate(
        &self,
        bytes_of_a_thread: usize,
        are_wanted: &(dyn Fn() -> bool + Sync),
    ) -> Result<(), Errno> {
        let processors = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let threads = (self.length() / bytes_of_a_thread).clamp(1, processors.min(MAX_THREADS));
        let part = (self.length() / threads).next_multiple_of(HUGE_BYTES);
        let starts = (0..self.length()).step_by(part);
        // madvise(2): unlike MAP_POPULATE it reports a lack of memory, also where a control group
        // limits huge pages, which would cause a SIGBUS later.
        let populate = |from: usize| {
            let end = (from + part).min(self.length());
            for step in (from..end).step_by(STEP_BYTES) {
                if !are_wanted() {
                    return Err(Errno::CANCELED);
                }
                let length = STEP_BYTES.min(end - step);
                self.advise_part(step, length, Advice::LinuxPopulateWrite)?;
            }
            Ok(())
        };
        thread::scope(|scope| {
            let (mut outcomes, mut others) = (Vec::new(), Vec::new());
            for from in starts.skip(1) {
                match thread::Builder::new().spawn_scoped(scope, move || populate(from)) {
                    Ok(other) => others.push(other),
                    // Without a thread it takes longer.
                    Err(_) => outcomes.push(populate(from)),
                }
            }
            outcomes.push(populate(0));
            let ended = others.into_iter().map(ScopedJoinHandle::join);
            outcomes.extend(ended.map(|outcome| outcome.unwrap_or(Err(Errno::NOMEM))));
            outcomes.into_iter().collect()
        })
    }

    /// Maps a part of a file for reading. `offset` is a multiple of a page. With `is_private` the
    /// kernel copies the pages when a device pins them.
    ///
    /// Truncating the file removes the pages: a processor that reads them then gets a SIGBUS, so
    /// only the kernel and devices may read them.
    ///
    /// # Errors
    ///
    /// When the file system cannot map, the file is too short, or there is no memory.
    pub(super) fn of_file(
        file: BorrowedFd<'_>,
        offset: u64,
        length: NonZeroUsize,
        is_private: bool,
    ) -> io::Result<Self> {
        let flags = match is_private {
            true => MapFlags::PRIVATE,
            false => MapFlags::SHARED,
        };
        let anywhere = std::ptr::null_mut();
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing else.
        let start = unsafe { mmap(anywhere, length.get(), ProtFlags::READ, flags, file, offset) }?;
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let pages = Self {
            start,
            length,
            kind: PageKind::Small,
        };
        // madvise(2) reports EFAULT in place of a later SIGBUS.
        match pages.advise(Advice::LinuxPopulateRead) {
            // Kernels before 5.14 populate pages at first use.
            Ok(()) | Err(Errno::INVAL) => Ok(pages),
            Err(errno) => Err(errno.into()),
        }
    }

    fn advise(&self, advice: Advice) -> Result<(), Errno> {
        self.advise_part(0, self.length(), advice)
    }

    /// For at most `length` bytes from an offset within the mapping.
    fn advise_part(&self, from: usize, length: usize, advice: Advice) -> Result<(), Errno> {
        let length = length.min(self.length() - from);
        // SAFETY: the offset is within the mapping.
        let start = unsafe { self.start.add(from) };
        // SAFETY: the part lies within the mapping, and no advice that is given here changes the
        // contents of the pages, which are ours.
        unsafe { madvise(start.as_ptr().cast(), length, advice) }
    }

    /// The first byte.
    pub(super) fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(super) fn length(&self) -> usize {
        self.length.get()
    }

    pub(super) fn kind(&self) -> PageKind {
        self.kind
    }
}

/// Whether the kernel provides huge pages on request.
fn has_transparent() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| {
        let enabled = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
        enabled.is_ok_and(|enabled| !enabled.contains("[never]"))
    })
}

/// The length of whole pages for this many bytes.
pub(super) fn whole_pages(bytes: u64) -> u64 {
    bytes.next_multiple_of(page_bytes())
}

/// The size of a page.
pub(super) fn page_bytes() -> u64 {
    rustix::param::page_size() as u64
}

impl Drop for Pages {
    /// In steps, because the kernel lets other threads change the mappings of the process only between two calls.
    fn drop(&mut self) {
        for from in (0..self.length()).step_by(STEP_BYTES) {
            let length = STEP_BYTES.min(self.length() - from);
            // SAFETY: the offset is within the mapping.
            let start = unsafe { self.start.add(from) };
            // SAFETY: the mapping was made by `map_as` or `of_file`, and every holder of a pointer to it holds this value too. The
            // parts are multiples of all sizes of pages, up to the end of the mapping. If the call fails, which it does not for
            // parts from the start on, they stay mapped and unused.
            let _ = unsafe { munmap(start.as_ptr().cast(), length) };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Whether the kernel has all pages in memory.
    fn is_populated(pages: &Pages) -> bool {
        let mut resident = vec![0_u8; pages.length() / rustix::param::page_size()];
        // SAFETY: the mapping is `length` bytes long, and there is a byte for each of its pages.
        let done = unsafe {
            libc::mincore(
                pages.start().as_ptr().cast(),
                pages.length(),
                resident.as_mut_ptr(),
            )
        };
        assert_eq!(done, 0);
        resident.iter().all(|byte| byte & 1 == 1)
    }

    #[test]
    fn pages_are_there_at_once() {
        let length = NonZeroUsize::new(8 << 20).unwrap();
        let pages = Pages::map(length, &|| true).unwrap();
        assert_eq!(pages.length(), length.get());
        // mincore(2) counts no pages of hugetlbfs.
        assert!(pages.kind() == PageKind::Huge || is_populated(&pages));
    }

    #[test]
    fn pages_that_are_not_wanted_any_more_are_not_populated() {
        let steps = AtomicUsize::new(0);
        let are_wanted = || steps.fetch_add(1, Ordering::Relaxed) < 1;
        // Not a multiple of huge pages.
        let length = NonZeroUsize::new(3 * STEP_BYTES + 4096).unwrap();
        let error = Pages::map(length, &are_wanted).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ECANCELED));
        assert_eq!(steps.into_inner(), 2, "of four");
    }

    #[test]
    fn several_threads_populate_all_pages() {
        for length in [8 << 20, (7 << 20) + 4096, 4096] {
            let anywhere = std::ptr::null_mut();
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            // SAFETY: a new mapping at an address of the kernel's choice touches nothing else.
            let start = unsafe { mmap_anonymous(anywhere, length, protection, MapFlags::PRIVATE) };
            let pages = Pages {
                start: NonNull::new(start.unwrap().cast()).unwrap(),
                length: NonZeroUsize::new(length).unwrap(),
                kind: PageKind::Small,
            };
            assert!(!is_populated(&pages));
            pages.populate(1 << 20, &|| true).unwrap();
            assert!(is_populated(&pages), "{length}");
        }
    }
}
