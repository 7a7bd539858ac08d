//! Lends memory of ours to async-rdma, which registers only what it has allocated itself.
//!
//! Its *raw* strategy asks Rust's allocator for a region and registers what it gets. So this crate is the allocator of the
//! program: memory that was lent before is what the next allocation of that size gets, on the same thread. Everything
//! else comes from the system's allocator.
//!
//! Without this, a ring would have to lie in memory of async-rdma's: beside the pool that bounds the rings of the process
//! and has huge pages for them, and registered files would be out of reach.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The alignment of what is lent: that of pages. Few others ask for it, so few pay for looking.
const ALIGNMENT: usize = 4096;

#[global_allocator]
static ALLOCATOR: Lending = Lending;

/// The system's allocator, and what was lent.
struct Lending;

thread_local! {
    /// What the next allocation gets.
    static OFFERED: Cell<Option<(*mut u8, usize)>> = const { Cell::new(None) };
}

/// Where memory begins that was lent and not given back, and how many times it was lent.
static LENT: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());

/// Has `allocate` get `length` bytes from `start` when it asks for memory with the layout that it is passed.
///
/// # Errors
///
/// Those of `allocate`, and when the memory does not begin with a page or was not asked for.
///
/// # Safety
///
/// The memory is there for as long as somebody uses `allocate`'s result, and whoever else uses it does so by raw pointers.
pub(crate) unsafe fn lend<T>(
    start: *mut u8,
    length: usize,
    allocate: impl FnOnce(Layout) -> io::Result<T>,
) -> io::Result<T> {
    let layout = Layout::from_size_align(length, ALIGNMENT).map_err(io::Error::other)?;
    if !start.addr().is_multiple_of(ALIGNMENT) {
        return Err(io::Error::other("memory that cannot be lent"));
    }
    OFFERED.set(Some((start, length)));
    let allocated = allocate(layout);
    match OFFERED.take() {
        None => allocated.inspect_err(|_| {
            // async-rdma forgets what it cannot register.
            take_back(start.addr());
        }),
        Some(_) => Err(allocated.err().unwrap_or_else(|| {
            io::Error::other("async-rdma did not allocate where it was expected to")
        })),
    }
}

// SAFETY: what is lent is memory of the size that was asked for, aligned as it was asked for, and used as `lend`
// demands; the rest is the system's.
unsafe impl GlobalAlloc for Lending {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    /// What is lent is not zeroed. It is for devices, and async-rdma does not look at it.
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.align() == ALIGNMENT
            && let Some((start, length)) = OFFERED.take()
        {
            if length == layout.size() {
                *lent().entry(start.addr()).or_default() += 1;
                return start;
            }
            OFFERED.set(Some((start, length)));
        }
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, length: usize) -> *mut u8 {
        debug_assert!(layout.align() != ALIGNMENT || !lent().contains_key(&start.addr()));
        // SAFETY: the caller's promise is passed on; regions keep their size.
        unsafe { System.realloc(start, layout, length) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        if layout.align() == ALIGNMENT && take_back(start.addr()) {
            return;
        }
        // SAFETY: the caller's promise is passed on: it is not lent, so the system allocated it.
        unsafe { System.dealloc(start, layout) }
    }
}

/// Counts that memory was given back; `false` if it was not lent.
fn take_back(start: usize) -> bool {
    let mut lent = lent();
    let Some(times) = lent.get_mut(&start) else {
        return false;
    };
    *times -= 1;
    if *times == 0 {
        lent.remove(&start);
    }
    true
}

/// Entries of the map have another alignment, so that it can allocate while it is locked.
fn lent() -> MutexGuard<'static, BTreeMap<usize, usize>> {
    LENT.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::alloc::{alloc_zeroed, dealloc};

    use super::*;

    #[test]
    fn what_is_lent_is_allocated_and_given_back() {
        let layout = Layout::from_size_align(2 * ALIGNMENT, ALIGNMENT).unwrap();
        // SAFETY: the layout is not empty.
        let own = unsafe { System.alloc(layout) };
        // SAFETY: `own` is there until the end, and nobody else uses it.
        let region = unsafe {
            lend(own, layout.size(), |asked| {
                assert_eq!(asked, layout);
                drop(vec![0_u8; 100]);
                Ok(alloc_zeroed(asked))
            })
        };
        let region = region.unwrap();
        assert_eq!(region, own);
        // SAFETY: as above.
        let again = unsafe { lend(own, layout.size(), |asked| Ok(alloc_zeroed(asked))) };
        assert_eq!(again.unwrap(), own);
        // SAFETY: it was allocated with this layout.
        unsafe { dealloc(own, layout) };
        // SAFETY: it was allocated with this layout.
        unsafe { dealloc(region, layout) };
        // SAFETY: as above.
        let unused = unsafe { lend(own, layout.size(), |_| Ok(())) };
        assert!(unused.is_err());
        assert!(lent().is_empty());
        // SAFETY: it is the system's, and given back once.
        unsafe { System.dealloc(own, layout) };
    }
}
