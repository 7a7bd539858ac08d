//! Long memory that is registered with the kernel piece by piece.

use std::ptr::NonNull;
use std::sync::Arc;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use super::*;
use crate::fixed::PIECE_BYTES;
use crate::target::Target;

/// A piece and two pages.
const LENGTH: usize = PIECE_BYTES + 8192;

/// Memory that requests and the test use through pointers only.
#[derive(Debug)]
struct Mapping(NonNull<u8>);

// SAFETY: all access is through pointers, by one thread.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new() -> Arc<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing else.
        let start =
            unsafe { mmap_anonymous(std::ptr::null_mut(), LENGTH, protection, MapFlags::PRIVATE) };
        Arc::new(Self(NonNull::new(start.unwrap().cast()).unwrap()))
    }

    /// Maps other pages, of zeros. Requests of registered memory still use the ones before.
    fn replace_pages(&self) {
        // SAFETY: no request is in flight, and no reference to the memory exists.
        unsafe { madvise(self.0.as_ptr().cast(), LENGTH, Advice::LinuxDontNeed) }.unwrap();
        for at in (0..LENGTH).step_by(4096) {
            // SAFETY: it is within the mapping, as above.
            unsafe { self.at(at).write_volatile(0) };
        }
    }

    fn at(&self, start: usize) -> NonNull<u8> {
        assert!(start <= LENGTH);
        // SAFETY: it is within the mapping, or at its end.
        unsafe { self.0.add(start) }
    }

    fn lasting(self: &Arc<Self>) -> LastingMemory {
        LastingMemory::new(self.0.as_ptr(), LENGTH, Arc::<Self>::clone(self))
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: no reference to the memory exists, and no request is in flight.
        unsafe { munmap(self.0.as_ptr().cast(), LENGTH) }.unwrap();
    }
}

// SAFETY: this keeps the memory, whose bounds are checked. Its pages are replaced only where a test wants to know which ones a request
// uses.
unsafe impl Target for Arc<Mapping> {
    fn pointer(&self, _: usize, request: &Request) -> *mut u8 {
        assert!(request.start + request.length <= LENGTH);
        self.at(request.start).as_ptr()
    }
}

/// Whether a request that reads to this place uses the pages that were registered, and not those that are mapped now.
fn uses_registered_pages(ring: &mut Ring, mapping: &Arc<Mapping>, start: usize) -> bool {
    let (file, request) = (file(), Request { start, ..REQUEST });
    // SAFETY: the bytes are within the mapping, and no request is in flight.
    unsafe { mapping.at(start).write_bytes(0, REQUEST.length) };
    let mut queue = Queue::new(ring, files(&file), Arc::clone(mapping), 1);
    queue.submit(0, request);
    assert_eq!(queue.complete(0), Ok(REQUEST.length));
    drop(queue);
    let mut read = [0; REQUEST.length];
    let destination = NonNull::from(&mut read).cast();
    // SAFETY: as above.
    unsafe { mapping.at(start).copy_to(destination, REQUEST.length) };
    assert!(read == *b"onte" || read == [0; REQUEST.length]);
    read == [0; REQUEST.length]
}

#[test]
fn requests_use_the_pieces_of_long_memory_that_are_registered() {
    let Ok(mut ring) =
        Ring::open().inspect_err(|error| gridhaul_skip::skipped(&format!("io_uring: {error}")))
    else {
        return;
    };
    let mapping = Mapping::new();
    mapping.replace_pages();
    for second_is_registered in [false, true] {
        ring.prepare(&mapping.lasting(), LENGTH as u64);
        if ring.way() != "direct (io_uring, registered memory)" {
            // Of a limit on locked memory (RLIMIT_MEMLOCK), or before Linux 5.13.
            gridhaul_skip::skipped(ring.way());
            return;
        }
        mapping.replace_pages();
        for (start, is_registered) in [
            (5000, true),
            (PIECE_BYTES - 4, true),
            (PIECE_BYTES - 3, false),
            (PIECE_BYTES, second_is_registered),
            (LENGTH - 4, second_is_registered),
        ] {
            let uses = uses_registered_pages(&mut ring, &mapping, start);
            assert_eq!(uses, is_registered, "{second_is_registered} {start}");
        }
    }
    drop(ring);
    assert_eq!(Arc::strong_count(&mapping), 1);
}
