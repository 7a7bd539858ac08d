//! Memory that is registered with io_uring (`IORING_REGISTER_BUFFERS`). The kernel pins its pages once, and not for each request.
//!
//! A registration refers to pages, not to addresses: it holds the memory, so that its address is not mapped to other pages before
//! the registration ends.

use std::ops::Range;

use io_uring::Submitter;

use crate::target::LastingMemory;

/// io_uring_register(2): the longest buffer in bytes.
const LONGEST_BUFFER: usize = 1 << 30;

/// A channel has a ring to send from and one to receive into.
const MAX_MEMORIES: usize = 2;

/// The registered memory of one ring.
#[derive(Debug, Default)]
pub(crate) struct FixedBuffers {
    memories: Vec<LastingMemory>,
    /// The addresses of the registered buffers, in the order of the kernel's table.
    buffers: Vec<Range<usize>>,
    /// The bytes of all queues so far.
    bytes: u64,
    /// The kernel has refused it, because of the limit on locked memory for example.
    is_refused: bool,
}

impl FixedBuffers {
    /// Registers memory for a queue that will move so many bytes. To pin all pages costs about as much as one request for each, so
    /// memory is registered only if what was moved and what will be is as long. No request may be in flight.
    pub(crate) fn prepare(
        &mut self,
        submitter: &Submitter<'_>,
        memory: &LastingMemory,
        bytes: u64,
    ) {
        self.bytes = self.bytes.saturating_add(bytes);
        let is_known = self.memories.iter().any(|known| known.is(memory));
        if is_known || self.is_refused || self.bytes < memory.length() as u64 {
            return;
        }
        if !self.memories.is_empty() {
            // If it failed, the next registration fails as well.
            let _ = submitter.unregister_buffers();
            self.buffers.clear();
        }
        if self.memories.len() == MAX_MEMORIES {
            self.memories.remove(0);
        }
        self.memories.push(memory.clone());
        let buffers: Vec<_> = self
            .memories
            .iter()
            .flat_map(|memory| parts(memory.addresses(), LONGEST_BUFFER))
            .collect();
        let vectors: Vec<_> = buffers
            .iter()
            .map(|buffer| libc::iovec {
                iov_base: std::ptr::with_exposed_provenance_mut(buffer.start),
                iov_len: buffer.len(),
            })
            .collect();
        // SAFETY: the memories stay mapped while `self` holds them, which is until they are unregistered or the ring is closed.
        match unsafe { submitter.register_buffers(&vectors) } {
            Ok(()) => self.buffers = buffers,
            Err(_) => {
                self.memories.clear();
                self.is_refused = true;
            }
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

/// Cuts addresses into parts of at most `longest` bytes.
fn parts(addresses: Range<usize>, longest: usize) -> impl Iterator<Item = Range<usize>> {
    let end = addresses.end;
    addresses
        .step_by(longest)
        .map(move |start| start..end.min(start.saturating_add(longest)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_use_the_buffer_that_has_all_of_their_bytes() {
        let buffers: Vec<_> = parts(100..125, 10).collect();
        assert_eq!(buffers, [100..110, 110..120, 120..125]);
        let fixed = FixedBuffers {
            buffers,
            ..FixedBuffers::default()
        };
        let index =
            |start: usize, length| fixed.index(std::ptr::without_provenance_mut(start), length);
        assert_eq!(index(100, 10), Some(0));
        assert_eq!(index(119, 1), Some(1));
        assert_eq!(index(120, 5), Some(2));
        for (start, length) in [(99, 1), (105, 10), (120, 6), (126, 0), (100, usize::MAX)] {
            assert_eq!(index(start, length), None, "{start} {length}");
        }
    }
}
