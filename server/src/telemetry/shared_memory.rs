//! Memory that a process shares with the processes that it forks later, for counters. A compromised process can falsify the
//! numbers in it, and nothing else.

use std::fmt;
use std::io;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

/// A counter that several processes see.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add_one(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn set(&self, value: usize) {
        self.0.store(value as u64, Ordering::Relaxed);
    }

    pub(crate) fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counters that are valid when all their bytes are zero.
///
/// # Safety
///
/// Zeros must be a valid value of the type, and it must be changed through atomics only.
pub(crate) unsafe trait Counters: Sync {}

// SAFETY: an atomic integer, for which zero is valid.
unsafe impl Counters for Counter {}

/// A value in shared memory, which is never unmapped.
pub(crate) struct SharedMemory<T>(NonNull<T>);

impl<T> Clone for SharedMemory<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for SharedMemory<T> {}

// SAFETY: it points to atomics that are never unmapped.
unsafe impl<T: Counters> Send for SharedMemory<T> {}
// SAFETY: as above; atomics may be used by many threads.
unsafe impl<T: Counters> Sync for SharedMemory<T> {}

impl<T: Counters> SharedMemory<T> {
    /// Allocates counters with the value zero.
    ///
    /// # Errors
    ///
    /// When there is no memory.
    pub(crate) fn new() -> io::Result<Self> {
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing else.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), size_of::<T>(), access, flags) }?;
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self(start))
    }
}

impl<T: Counters> Deref for SharedMemory<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the mapping is as long as `T`, aligned to a page, zeroed by the kernel, which is valid for `Counters`, written
        // through atomics only, and never unmapped.
        unsafe { self.0.as_ref() }
    }
}

impl<T> fmt::Debug for SharedMemory<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedMemory").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_begin_with_zero_and_are_the_same_in_every_copy() {
        let counter = SharedMemory::<Counter>::new().expect("memory");
        let copy = counter;
        assert_eq!(copy.value(), 0);
        counter.set(3);
        counter.add_one();
        assert_eq!(copy.value(), 4);
    }
}
