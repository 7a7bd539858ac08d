//! Lends memory of ours to async-rdma, which registers only what it has allocated itself.
//!
//! Its *raw* strategy asks Rust's allocator for a region and registers what it gets. So this crate is the allocator of the
//! program: memory that was lent before is what the next allocation of that size gets, on the same thread. Everything
//! else comes from the system's allocator.
//!
//! Without this, a ring would have to lie in memory of async-rdma's: beside the pool that bounds the rings of the process
//! and has huge pages for them, and registered files would be out of reach.

use std::alloc::{GlobalAlloc, Layout, System};
use std::any::Any;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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

/// Memory that was lent and not given back, by where it begins.
static LENT: Mutex<BTreeMap<usize, Lent>> = Mutex::new(BTreeMap::new());

#[derive(Default)]
struct Lent {
    /// How many times it was lent.
    times: usize,
    /// Keeps it from going to another channel. A request that failed may keep a region registered for longer than the endpoint
    /// lives; async-rdma gives the memory back only when nothing uses the registration.
    owner: Option<Arc<dyn Any + Send + Sync>>,
}

/// Has `allocate` get `length` bytes from `start` when it asks for memory with the layout that it is passed.
///
/// # Errors
///
/// Those of `allocate`, and when the memory does not begin with a page or was not asked for.
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
                // async-rdma forgets what it cannot register.
                take_back(start.addr());
            })
        }
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
                lent().entry(start.addr()).or_default().times += 1;
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
    let Some(entry) = lent.get_mut(&start) else {
        return false;
    };
    entry.times -= 1;
    let is_last = entry.times == 0;
    let given_back = is_last.then(|| lent.remove(&start));
    // The owner may go with it, and gives memory back to others: not while this is locked.
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
