//! Memory that a process shares with the processes that it forks later.

use std::io;
use std::sync::atomic::AtomicU64;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

/// A number, zero at first. Its memory is never unmapped.
pub(crate) fn shared_number() -> io::Result<&'static AtomicU64> {
    let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
    // SAFETY: a new mapping at an address of the kernel's choice touches nothing else.
    let start =
        unsafe { mmap_anonymous(std::ptr::null_mut(), size_of::<AtomicU64>(), access, flags) }?;
    // SAFETY: the mapping is large enough, aligned to a page, zeroed by the kernel, which is valid for an atomic, used
    // through this reference only, and never unmapped.
    Ok(unsafe { &*start.cast::<AtomicU64>() })
}
