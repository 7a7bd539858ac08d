//! Memory that is registered with io_uring (`IORING_REGISTER_BUFFERS`). The kernel pins its pages once, and not for each request.
//!
//! A registration refers to pages, not to addresses: it holds the memory, so that its address is not mapped to other pages before
//! the registration ends.

use std::io;
use std::ops::Range;

use crate::target::LastingMemory;

/// The longest memory that is registered, in bytes. The kernel pins its pages while the caller waits, which takes about 0.1 s for each
/// GiB. Requests name the addresses of longer memory.
const LONGEST_MEMORY: usize = 256 << 20;

/// A channel has a ring to send from and one to receive into.
const MAX_MEMORIES: usize = 2;

/// The kernel's table of registered buffers. Tests have another one, which fails.
pub(crate) trait BufferTable {
    /// Fills the table, which is empty.
    ///
    /// # Errors
    ///
    /// When the kernel refuses it, because of the limit on locked memory for example. The table is empty then.
    ///
    /// # Safety
    ///
    /// The buffers stay mapped until they are unregistered, or the ring is closed.
    unsafe fn register(&mut self, buffers: &[libc::iovec]) -> io::Result<()>;

    /// Empties the table, which is not empty.
    ///
    /// # Errors
    ///
    /// When a signal interrupts it. The table stays as it was then.
    fn unregister(&mut self) -> io::Result<()>;
}

/// The registered memory of one ring.
#[derive(Debug, Default)]
pub(crate) struct FixedBuffers {
    memories: Vec<LastingMemory>,
    /// The addresses of the registered buffers, in the order of the kernel's table.
    buffers: Vec<Range<usize>>,
    /// The bytes of all queues so far.
    bytes: u64,
    /// The kernel has refused further memory.
    is_refused: bool,
}

impl FixedBuffers {
    /// Registers memory for a queue that will move so many bytes. To pin all pages costs about as much as one request for each, so
    /// memory is registered only if what was moved and what will be is as long. No request may be in flight.
    ///
    /// If the kernel refuses it, what was registered before is registered again, and nothing further is tried.
    pub(crate) fn prepare(
        &mut self,
        table: &mut impl BufferTable,
        memory: &LastingMemory,
        bytes: u64,
    ) {
        self.bytes = self.bytes.saturating_add(bytes);
        let is_known = self.memories.iter().any(|known| known.is(memory));
        let is_long = memory.length() > LONGEST_MEMORY;
        if is_known || is_long || self.is_refused || self.bytes < memory.length() as u64 {
            return;
        }
        if !self.buffers.is_empty() && table.unregister().is_err() {
            return;
        }
        // Dropped only when the table does not have it any more.
        let before = std::mem::take(&mut self.memories);
        self.buffers.clear();
        let surplus = (before.len() + 1).saturating_sub(MAX_MEMORIES);
        let kept = before.iter().skip(surplus);
        let with_it = kept.chain([memory]).cloned().collect();
        if self.fill(table, with_it).is_err() {
            self.is_refused = true;
            // If this fails as well, requests name addresses.
            let _ = self.fill(table, before);
        }
    }

    /// Ends the registration of memory that nothing else keeps any more. No request may be in flight.
    pub(crate) fn release(&mut self, table: &mut impl BufferTable) {
        if !self.memories.iter().any(LastingMemory::is_abandoned) {
            return;
        }
        // If it failed, the kernel would still have the pages.
        if !self.buffers.is_empty() && table.unregister().is_err() {
            return;
        }
        let before = std::mem::take(&mut self.memories);
        self.buffers.clear();
        let kept = before.iter().filter(|memory| !memory.is_abandoned());
        let kept = kept.cloned().collect();
        // If it fails, requests name addresses.
        let _ = self.fill(table, kept);
    }

    /// Registers memory where none is registered.
    fn fill(
        &mut self,
        table: &mut impl BufferTable,
        memories: Vec<LastingMemory>,
    ) -> io::Result<()> {
        let buffers: Vec<_> = memories.iter().map(LastingMemory::addresses).collect();
        if buffers.is_empty() {
            return Ok(());
        }
        let vectors: Vec<_> = buffers
            .iter()
            .map(|buffer| libc::iovec {
                iov_base: std::ptr::with_exposed_provenance_mut(buffer.start),
                iov_len: buffer.len(),
            })
            .collect();
        // SAFETY: the memories stay mapped while `self` holds them, which is until they are unregistered or the ring is closed.
        unsafe { table.register(&vectors) }?;
        (self.memories, self.buffers) = (memories, buffers);
        Ok(())
    }

    /// How a ring with this memory moves files past the page cache, for the log.
    pub(crate) fn way(&self) -> &'static str {
        match (self.is_refused, self.buffers.is_empty()) {
            (true, _) => "direct (io_uring, memory not registered)",
            (false, false) => "direct (io_uring, registered memory)",
            (false, true) => "direct (io_uring)",
        }
    }

    /// The place in the kernel's table of the buffer that has all of these bytes.
    pub(crate) fn index(&self, start: *mut u8, length: usize) -> Option<u16> {
        let start = start.addr();
        let has = |buffer: &Range<usize>| {
            buffer.start <= start && start <= buffer.end && length <= buffer.end - start
        };
        let place = self.buffers.iter().position(has)?;
        u16::try_from(place).ok()
    }
}

#[cfg(test)]
mod tests;
