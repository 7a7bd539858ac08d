//! Mapped pages and their kind.

use std::fmt;
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::OnceLock;

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

/// The size of a huge page. Architectures with other sizes get transparent ones.
const HUGE_BYTES: usize = 2 << 20;

impl Pages {
    /// Maps `length` bytes of zeros.
    ///
    /// # Errors
    ///
    /// When there is no memory.
    pub(super) fn map(length: NonZeroUsize) -> io::Result<Self> {
        if length.get().is_multiple_of(HUGE_BYTES)
            && let Ok(pages) = Self::map_as(length, PageKind::Huge)
        {
            return Ok(pages);
        }
        let kind = if length.get() >= HUGE_BYTES && has_transparent() {
            PageKind::Transparent
        } else {
            PageKind::Small
        };
        Self::map_as(length, kind)
    }

    fn map_as(length: NonZeroUsize, kind: PageKind) -> io::Result<Self> {
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
        // madvise(2): unlike MAP_POPULATE it reports a lack of memory, also where a control group
        // limits huge pages, which would cause a SIGBUS later.
        match pages.advise(Advice::LinuxPopulateWrite) {
            // Kernels before 5.14 populate pages at first use.
            Ok(()) | Err(Errno::INVAL) => Ok(pages),
            Err(errno) => Err(errno.into()),
        }
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
        // SAFETY: no advice that is given here changes the contents of the pages, which are ours.
        unsafe { madvise(self.start.as_ptr().cast(), self.length(), advice) }
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
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `map_as` or `of_file`, and every holder of a pointer to
        // it holds this value too. The call cannot fail for a whole mapping; if it did, the pages
        // would stay mapped and unused.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.length()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_there_at_once() {
        let length = NonZeroUsize::new(8 << 20).unwrap();
        let pages = Pages::map(length).unwrap();
        assert_eq!(pages.length(), length.get());
        if pages.kind() == PageKind::Huge {
            // mincore(2) counts no pages of hugetlbfs.
            return;
        }
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
        assert!(resident.iter().all(|byte| byte & 1 == 1));
    }
}
