//! Memory that a process shares with the processes that it forks later.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// A number, zero at first. Dropping it unmaps it in this process, and in no other.
#[derive(Debug)]
pub(crate) struct SharedNumber(NonNull<AtomicU64>);

impl SharedNumber {
    pub(crate) fn new() -> io::Result<Self> {
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing else.
        let start =
            unsafe { mmap_anonymous(std::ptr::null_mut(), size_of::<AtomicU64>(), access, flags) }?;
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self(start))
    }

    pub(crate) fn get(&self) -> &AtomicU64 {
        // SAFETY: the mapping is large enough, aligned to a page, zeroed by the kernel, which is valid for an atomic, used
        // through such references only, and unmapped when this is dropped.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for SharedNumber {
    fn drop(&mut self) {
        // SAFETY: `new` has mapped it, and no reference is left. An error would leave it mapped, which is no fault of memory.
        let _ = unsafe { munmap(self.0.as_ptr().cast(), size_of::<AtomicU64>()) };
    }
}
