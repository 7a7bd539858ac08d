//! The bytes of a region, moved without references to them.

use std::io;
use std::num::NonZeroUsize;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use gridhaul_iwarp::{Buffer, Span};

use super::pages::{PageKind, Pages};
use super::recycled::{Cleared, Reclaim, Used};
use super::release::release_later;

/// Mapped pages that may be registered with a device.
#[derive(Debug)]
pub struct Memory {
    /// `None` only while it is dropped.
    pages: Option<Pages>,
    /// No byte from this offset on was ever written.
    used_bytes: AtomicUsize,
    /// Takes the pages back; released after them. `None` outside of any pool, and while it is dropped.
    owner: Option<Arc<dyn Reclaim>>,
    is_file: bool,
}

impl Memory {
    /// Maps `length` bytes of zeros outside of any pool.
    ///
    /// # Errors
    ///
    /// When there is no memory.
    pub(crate) fn new(length: NonZeroUsize) -> io::Result<Self> {
        Ok(Self {
            pages: Some(Pages::map(length, &|| true)?),
            used_bytes: AtomicUsize::new(0),
            owner: None,
            is_file: false,
        })
    }

    /// Pages that go back to their owner.
    pub(super) fn shared(pages: Cleared, owner: Arc<dyn Reclaim>) -> Self {
        Self {
            pages: Some(pages.into_pages()),
            used_bytes: AtomicUsize::new(0),
            owner: Some(owner),
            is_file: false,
        }
    }

    /// A part of a file, as a source for requests. The processor must not copy out of it: see
    /// [`Memory::is_file`].
    ///
    /// # Errors
    ///
    /// When it cannot be mapped, or the file is too short.
    pub(crate) fn of_file(
        file: BorrowedFd<'_>,
        offset: u64,
        length: NonZeroUsize,
        is_private: bool,
    ) -> io::Result<Self> {
        Ok(Self {
            pages: Some(Pages::of_file(file, offset, length, is_private)?),
            used_bytes: AtomicUsize::new(0),
            owner: None,
            is_file: true,
        })
    }

    /// Whether its pages are a file's. Truncating the file removes them, so only the kernel and
    /// devices, which report that, may read them.
    pub fn is_file(&self) -> bool {
        self.is_file
    }

    /// Whether it counts against the bound on all rings until it is dropped.
    pub(crate) fn counts(&self) -> bool {
        self.owner.is_some()
    }

    /// A device did not end its registration, and may access the pages until the process ends: they stay mapped, and count as before.
    pub(crate) fn keep_pinned(self: &Arc<Self>) {
        if let Some(owner) = &self.owner {
            owner.stay_pinned();
        }
        std::mem::forget(Arc::clone(self));
    }

    /// In bytes.
    pub fn length(&self) -> usize {
        self.pages().length()
    }

    /// The kind of its pages.
    pub(crate) fn page_kind(&self) -> PageKind {
        self.pages().kind()
    }

    fn pages(&self) -> &Pages {
        self.pages.as_ref().expect("pages, until it is dropped")
    }

    /// Its address for peers.
    pub fn address(&self) -> u64 {
        self.pages().start().as_ptr().expose_provenance() as u64
    }

    /// For a system call or a device that writes to the span now or later: its bytes count as used.
    ///
    /// # Panics
    ///
    /// When the span is outside the memory: every span comes from a check against its length.
    pub fn pointer(&self, span: Span) -> *mut u8 {
        let start = self.pointer_to_read(span).cast_mut();
        let end = span.offset + span.length;
        // The thread that drops the memory last has seen all that others did with it (Arc), so no
        // ordering is needed here.
        if self.used_bytes.load(Ordering::Relaxed) < end {
            self.used_bytes.fetch_max(end, Ordering::Relaxed);
        }
        start
    }

    /// For a system call or a device that only reads the span. Data written through this pointer
    /// would reach the next channel.
    ///
    /// # Panics
    ///
    /// As [`Memory::pointer`].
    pub fn pointer_to_read(&self, span: Span) -> *const u8 {
        let end = span.offset.checked_add(span.length);
        assert!(
            end.is_some_and(|end| end <= self.length()),
            "a span lies in its memory"
        );
        // SAFETY: the offset is within the mapping, or at its end for an empty span.
        unsafe { self.pages().start().as_ptr().add(span.offset) }
    }

    /// Reads from a file at `file_offset` into a span; returns the count.
    pub(crate) fn read_from(
        &self,
        file: BorrowedFd<'_>,
        file_offset: u64,
        span: Span,
    ) -> io::Result<usize> {
        let to = self.pointer(span);
        let offset = file_position(file_offset)?;
        // SAFETY: the kernel writes at most `span.length` bytes, which `pointer` has checked, and
        // the descriptor is open while it is borrowed.
        let count = unsafe { libc::pread(file.as_raw_fd(), to.cast(), span.length, offset) };
        usize::try_from(count).map_err(|_| io::Error::last_os_error())
    }

    /// Writes a span to a file at `file_offset`; returns the count.
    pub(crate) fn write_to(
        &self,
        file: BorrowedFd<'_>,
        file_offset: u64,
        span: Span,
    ) -> io::Result<usize> {
        let from = self.pointer_to_read(span);
        let offset = file_position(file_offset)?;
        // SAFETY: the kernel reads `span.length` bytes, which `pointer` has checked, and the
        // descriptor is open while it is borrowed.
        let count = unsafe { libc::pwrite(file.as_raw_fd(), from.cast(), span.length, offset) };
        usize::try_from(count).map_err(|_| io::Error::last_os_error())
    }
}

// SAFETY: the pages stay mapped while the value lives, no slice of them exists, and `Memory` checks
// every span.
unsafe impl Buffer for Memory {
    fn length(&self) -> usize {
        Self::length(self)
    }

    fn address(&self) -> u64 {
        Self::address(self)
    }

    fn pointer(&self, span: Span) -> *mut u8 {
        Self::pointer(self, span)
    }

    fn pointer_to_read(&self, span: Span) -> *const u8 {
        Self::pointer_to_read(self, span)
    }

    fn is_for_system_calls(&self) -> bool {
        self.is_file()
    }
}

fn file_position(offset: u64) -> io::Result<libc::off_t> {
    libc::off_t::try_from(offset).map_err(|_| io::Error::from_raw_os_error(libc::EFBIG))
}

impl Drop for Memory {
    fn drop(&mut self) {
        let (Some(pages), Some(owner)) = (self.pages.take(), self.owner.take()) else {
            return;
        };
        let used = Used::new(pages, *self.used_bytes.get_mut());
        if let Err(unwanted) = owner.reclaim(used) {
            // They count until they are unmapped: a tuple drops the owner last.
            release_later(unwanted.length(), (unwanted, owner));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    fn memory(length: usize) -> Memory {
        Memory::new(NonZeroUsize::new(length).unwrap()).unwrap()
    }

    #[test]
    fn bytes_go_in_and_out() {
        let memory = memory(4096);
        memory.copy_in(4090, b"abcdef");
        let mut bytes = [0; 4];
        memory.copy_out(4091, &mut bytes);
        assert_eq!(&bytes, b"bcde");
        let file = tempfile::tempfile().unwrap();
        let written = memory.write_to(file.as_fd(), 7, Span::new(4090, 6));
        assert_eq!(written.unwrap(), 6);
        let read = memory.read_from(file.as_fd(), 9, Span::new(0, 100));
        assert_eq!(read.unwrap(), 4);
        memory.copy_out(0, &mut bytes);
        assert_eq!(&bytes, b"cdef");
    }

    #[test]
    #[should_panic(expected = "a span lies in its memory")]
    fn a_span_past_the_end_is_a_mistake() {
        memory(4096).copy_in(4095, b"ab");
    }
}
