//! Lends our memory to async-rdma, which registers only memory that it has allocated itself.
//!
//! Its *raw* strategy allocates a region with Rust's allocator and registers it. Therefore this crate is the program's
//! allocator: after a call of `lend`, the next allocation of that size on the same thread returns the lent memory. All other
//! allocations come from the system's allocator.
//!
//! Otherwise rings would be in async-rdma's memory, outside of the pool that bounds the rings of the process and has huge
//! pages, and files could not be registered.

use std::alloc::{GlobalAlloc, Layout, System};
use std::any::Any;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The alignment of lent memory: that of pages. Few other allocations have it, so few pay for the lookup.
const ALIGNMENT: usize = 4096;

#[global_allocator]
static ALLOCATOR: Lending = Lending;

/// The system's allocator, and the lent memory.
struct Lending;

thread_local! {
    /// The memory for the next allocation.
    static OFFERED: Cell<Option<(*mut u8, usize)>> = const { Cell::new(None) };
}

/// Memory that is lent, by its start.
static LENT: Mutex<BTreeMap<usize, Lent>> = Mutex::new(BTreeMap::new());

#[derive(Default)]
struct Lent {
    /// The number of loans.
    times: usize,
    /// Keeps it from other channels. A failed request may keep a region registered for longer than the endpoint
    /// exists; async-rdma frees the memory only when the registration is unused.
    owner: Option<Arc<dyn Any + Send + Sync>>,
}

/// Calls `allocate`, whose allocation with the passed layout returns the `length` bytes from `start`.
///
/// # Errors
///
/// The errors of `allocate`; also if the memory is not page-aligned, or `allocate` did not allocate.
///
/// # Safety
///
/// The memory stays valid while `owner` lives, and all other users access it through raw pointers.
pub(crate) unsafe fn lend<T>(
    owner: Arc<dyn Any + Send + Sync>,
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
        None => {
            if let Some(lent) = lent().get_mut(&start.addr()) {
                lent.owner = Some(owner);
            }
            allocated.inspect_err(|_| {
                // async-rdma leaks memory that it cannot register.
                take_back(start.addr());
            })
        }
        Some(_) => Err(allocated.err().unwrap_or_else(|| {
            io::Error::other("async-rdma did not allocate where it was expected to")
        })),
    }
}

// SAFETY: lent memory has the requested size and alignment, and is used as `lend` requires; all other memory is the
// system's.
unsafe impl GlobalAlloc for Lending {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller upholds the contract.
        unsafe { System.alloc(layout) }
    }

    /// Lent memory is not zeroed. It is for devices, and async-rdma does not read it.
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.align() == ALIGNMENT
            && let Some((start, length)) = OFFERED.take()
        {
            if length == layout.size() {
                lent().entry(start.addr()).or_default().times += 1;
                return start;
            }
            OFFERED.set(Some((start, length)));
        }
        // SAFETY: the caller upholds the contract.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, length: usize) -> *mut u8 {
        debug_assert!(layout.align() != ALIGNMENT || !lent().contains_key(&start.addr()));
        // SAFETY: the caller upholds the contract; regions keep their size.
        unsafe { System.realloc(start, layout, length) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        if layout.align() == ALIGNMENT && take_back(start.addr()) {
            return;
        }
        // SAFETY: the caller upholds the contract; the memory is not lent, so the system allocated it.
        unsafe { System.dealloc(start, layout) }
    }
}

/// Counts the end of a loan; `false` if the memory was not lent.
fn take_back(start: usize) -> bool {
    let mut lent = lent();
    let Some(entry) = lent.get_mut(&start) else {
        return false;
    };
    entry.times -= 1;
    let is_last = entry.times == 0;
    let given_back = is_last.then(|| lent.remove(&start));
    // Dropping the owner may free memory, which must not happen under this lock.
    drop(lent);
    drop(given_back);
    true
}

/// Entries of the map have another alignment, so that it can allocate while it is locked.
fn lent() -> MutexGuard<'static, BTreeMap<usize, Lent>> {
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
        let owner = Arc::new(());
        // SAFETY: `own` is valid until the end, and not used elsewhere.
        let region = unsafe {
            lend(owner.clone(), own, layout.size(), |asked| {
                assert_eq!(asked, layout);
                drop(vec![0_u8; 100]);
                Ok(alloc_zeroed(asked))
            })
        };
        let region = region.unwrap();
        assert_eq!(region, own);
        // SAFETY: as above.
        let again = unsafe {
            lend(owner.clone(), own, layout.size(), |asked| {
                Ok(alloc_zeroed(asked))
            })
        };
        assert_eq!(again.unwrap(), own);
        assert_eq!(
            Arc::strong_count(&owner),
            2,
            "it is not kept while it is lent"
        );
        // SAFETY: it was allocated with this layout.
        unsafe { dealloc(own, layout) };
        // SAFETY: it was allocated with this layout.
        unsafe { dealloc(region, layout) };
        // SAFETY: as above.
        let unused = unsafe { lend(owner.clone(), own, layout.size(), |_| Ok(())) };
        assert!(unused.is_err());
        assert!(lent().is_empty());
        assert_eq!(Arc::strong_count(&owner), 1, "it is kept for nobody");
        // SAFETY: it is the system's, and given back once.
        unsafe { System.dealloc(own, layout) };
    }
}
