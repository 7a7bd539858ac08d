//! Requests in flight, in the order of the file.
//!
//! Requests complete in any order. Their bytes count in the order of the file, so that what is counted before a failure is a
//! prefix of the range.

use std::collections::VecDeque;

use gridhaul_direct::{IoQueue, Request, Way};
use rustix::io::Errno;

/// Requests in flight.
#[derive(Debug)]
pub(crate) struct Flights {
    /// Slots without a request.
    free: Vec<usize>,
    /// The others, in the order of the file.
    in_order: VecDeque<Flight>,
    /// The unit of direct I/O in bytes.
    block: Option<u64>,
    /// The error with which the file system refused direct I/O.
    refused: Option<Errno>,
    /// Any request went past the page cache.
    has_direct: bool,
    /// The most requests that were in flight at a time.
    #[cfg(test)]
    most: usize,
}

#[derive(Debug, Clone, Copy)]
struct Flight {
    slot: usize,
    /// What is left of it.
    request: Request,
    /// How many times it was repeated after an error of the moment.
    repeats: u32,
}

/// Why a range cannot be moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// A call moved no bytes at this offset of the file: a read at its end.
    Nothing {
        offset: u64,
    },
    File(Errno),
}

/// How many times a request is repeated that was interrupted, or for which the kernel had no memory.
const MOST_REPEATS: u32 = 100;

impl Flights {
    pub(crate) fn new(slots: usize, block: Option<u64>) -> Self {
        Self {
            free: (0..slots).collect(),
            in_order: VecDeque::new(),
            block,
            refused: None,
            has_direct: false,
            #[cfg(test)]
            most: 0,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.in_order.is_empty()
    }

    /// The unit of direct I/O in bytes; `None` once the file system has refused it.
    pub(crate) fn block(&self) -> Option<u64> {
        self.block
    }

    /// The error with which the file system refused direct I/O, if it did.
    pub(crate) fn refused(&self) -> Option<Errno> {
        self.refused
    }

    /// Whether any request went past the page cache.
    pub(crate) fn has_direct(&self) -> bool {
        self.has_direct
    }

    pub(crate) fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    /// Submits a request that follows the others in the file; there must be room.
    pub(crate) fn submit(&mut self, queue: &mut dyn IoQueue, request: Request) {
        let slot = self.free.pop().expect("the caller has asked for room");
        self.has_direct |= request.way == Way::Direct;
        queue.submit(slot, request);
        self.in_order.push_back(Flight {
            slot,
            request,
            repeats: 0,
        });
        #[cfg(test)]
        {
            self.most = self.most.max(self.in_order.len());
        }
    }

    /// The most requests that were in flight at a time.
    #[cfg(test)]
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// Waits until the oldest request has completed.
    pub(crate) fn wait(&self, queue: &mut dyn IoQueue) {
        if let Some(oldest) = self.in_order.front() {
            queue.wait(oldest.slot);
        }
    }

    /// The next bytes that were moved, in the order of the file: those of the oldest request. `None` while it is in flight. The
    /// rest of a short one is requested again.
    ///
    /// # Errors
    ///
    /// When the oldest request failed. Its bytes do not count, nor those of later ones.
    pub(crate) fn next(&mut self, queue: &mut dyn IoQueue) -> Result<Option<usize>, Failure> {
        let Some(oldest) = self.in_order.front_mut() else {
            return Ok(None);
        };
        let Some(result) = queue.result(oldest.slot) else {
            return Ok(None);
        };
        let offset = oldest.request.offset;
        let moved = match result {
            Ok(0) => return Err(Failure::Nothing { offset }),
            Ok(count) => count.min(oldest.request.length),
            Err(errno) => {
                oldest.repeat(errno)?;
                if is_refusal(errno) {
                    (self.block, self.refused) = (None, Some(errno));
                }
                0
            }
        };
        oldest.request = oldest.request.rest(moved);
        if oldest.request.length == 0 {
            self.free.push(oldest.slot);
            self.in_order.pop_front();
        } else {
            oldest.request.way = way_of(&oldest.request, self.block);
            queue.submit(oldest.slot, oldest.request);
        }
        Ok((moved > 0).then_some(moved))
    }
}

impl Flight {
    /// Whether to try again after an error: through the page cache, if the file system refused direct I/O.
    fn repeat(&mut self, errno: Errno) -> Result<(), Failure> {
        let is_direct = self.request.way == Way::Direct;
        let is_of_the_moment = matches!(errno, Errno::INTR | Errno::AGAIN);
        self.repeats += 1;
        if is_direct && (is_refusal(errno) || is_of_the_moment) {
            // Direct I/O takes memory for each request (EAGAIN), the page cache less.
            self.request.way = Way::Cached;
            return Ok(());
        }
        if is_of_the_moment && self.repeats < MOST_REPEATS {
            return Ok(());
        }
        Err(Failure::File(errno))
    }
}

/// Whether the file system does not support direct I/O for the file, or not in these units.
fn is_refusal(errno: Errno) -> bool {
    matches!(errno, Errno::INVAL | Errno::OPNOTSUPP)
}

/// The way of the rest of a request. A file that ends within a block, or a nearly full disk, leaves a part of one.
fn way_of(rest: &Request, block: Option<u64>) -> Way {
    let is_whole = |block: u64| {
        rest.offset.is_multiple_of(block) && (rest.length as u64).is_multiple_of(block)
    };
    match block {
        Some(block) if is_whole(block) => rest.way,
        _ => Way::Cached,
    }
}

#[cfg(test)]
mod tests;
