//! A ring as the memory of requests of a disk.

use std::sync::Arc;

use gridhaul_direct::{Call, LastingMemory, Request, Target};
use gridhaul_iwarp::Span;

use super::limits::pins_without_limit;
use super::region::Memory;

/// A ring that a disk reads from or writes to. It lives as long as requests are in flight.
#[derive(Debug)]
pub(crate) struct RingMemory(Arc<Memory>);

impl RingMemory {
    pub(crate) fn of(memory: &Arc<Memory>) -> Self {
        Self(Arc::clone(memory))
    }
}

// SAFETY: the pages stay mapped while this, or the owner of the lasting memory, holds the memory, which checks every span, and no
// reference to them exists at any time. No page of a ring is replaced before the memory is dropped.
unsafe impl Target for RingMemory {
    fn pointer(&self, _: usize, request: &Request) -> *mut u8 {
        let span = Span::new(request.start, request.length);
        match request.call {
            Call::Read => self.0.pointer(span),
            // Writing to a file reads the memory.
            Call::Write => self.0.pointer_to_read(span).cast_mut(),
        }
    }

    fn lasting(&self) -> Option<LastingMemory> {
        if !pins_without_limit() {
            // The kernel would count the pages a second time against the limit, which the rings of other channels may use up to.
            return None;
        }
        let length = self.0.length();
        // The bytes that requests will write to are noted by `pointer`.
        let start = self.0.pointer_to_read(Span::new(0, length)).cast_mut();
        let owner = Arc::clone(&self.0);
        Some(LastingMemory::new(start, length, owner))
    }
}
