//! Memory that is registered with io_uring (`IORING_REGISTER_BUFFERS`). The kernel pins its pages once, and not for each request.
//!
//! Long memory is registered in pieces, one before each queue, since the caller waits while the kernel pins pages. The kernel's table
//! has a place for each piece, and places can be filled and cleared one by one (`IORING_REGISTER_BUFFERS_UPDATE`). Requests whose bytes
//! are not all in one piece name addresses.
//!
//! A registration refers to pages, not to addresses: it holds the memory, so that its address is not mapped to other pages before
//! the registration ends.

use std::io;
use std::ops::Range;
use std::time::Duration;

use crate::target::LastingMemory;

/// The length of a piece in bytes. The kernel pins that many in about a millisecond.
pub(crate) const PIECE_BYTES: usize = 32 << 20;

/// The most pieces of a memory. What is longer, of which there are 32 GiB, is registered up to there.
const MAX_PIECES: usize = 1024;

/// A channel has a ring to send from and one to receive into.
const MAX_MEMORIES: usize = 2;

/// Once a piece takes longer than this, no further one is registered. Before Linux 6.12, the kernel compares each huge page with all
/// pages that are registered already.
const LONGEST_REGISTRATION: Duration = Duration::from_millis(10);

/// The longest memory that kernels register whose tables cannot be changed, in bytes.
const LONGEST_WHOLE: usize = 256 << 20;

/// The kernel's table of registered buffers. Tests have another one, which fails.
pub(crate) trait BufferTable {
    /// Makes a table of places without buffers.
    ///
    /// # Errors
    ///
    /// Kernels before 5.13 cannot.
    fn open(&mut self, places: usize) -> io::Result<()>;

    /// Registers a buffer for a place without one, and returns the processor time that it took.
    ///
    /// # Errors
    ///
    /// When the kernel refuses it, because of the limit on locked memory for example. The place has no buffer then.
    ///
    /// # Safety
    ///
    /// The buffer stays mapped until its place is cleared, or the ring is closed.
    unsafe fn fill(&mut self, place: usize, buffer: &Range<usize>) -> io::Result<Duration>;

    /// Clears a place with a buffer.
    ///
    /// # Errors
    ///
    /// When the kernel has no memory. The place stays as it was then.
    fn clear(&mut self, place: usize) -> io::Result<()>;

    /// Makes a table of one buffer.
    ///
    /// # Errors
    ///
    /// As [`BufferTable::fill`]. There is no table then.
    ///
    /// # Safety
    ///
    /// The buffer stays mapped until the table is closed, or the ring is.
    unsafe fn open_whole(&mut self, buffer: &Range<usize>) -> io::Result<()>;

    /// Closes the table of one buffer.
    ///
    /// # Errors
    ///
    /// When a signal interrupts it. The table stays as it was then.
    fn close_whole(&mut self) -> io::Result<()>;
}

/// What the kernel can do.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Ability {
    /// It was not tried.
    #[default]
    Unknown,
    /// The table has places, which can be filled and cleared.
    Places,
    /// A table cannot be changed, so that there is one memory, in one piece.
    Whole,
}

/// The registered memory of one ring.
#[derive(Debug, Default)]
pub(crate) struct FixedBuffers {
    ability: Ability,
    /// The one that was added last is at the end.
    memories: Vec<Registered>,
    /// The bytes of all queues so far.
    bytes: u64,
    /// The kernel has refused further memory, or takes long for it.
    is_refused: bool,
}

/// A memory of which pieces are registered.
#[derive(Debug)]
struct Registered {
    memory: LastingMemory,
    piece_bytes: usize,
    /// The place of the first piece. The others follow.
    first: usize,
    /// So many pieces are registered, from the first on.
    pieces: usize,
}

impl FixedBuffers {
    /// Registers a piece of the memory for a queue that will move so many bytes. To pin all pages costs about as much as one request
    /// for each, so memory is registered only if what was moved and what will be is as long. No request may be in flight.
    ///
    /// If the kernel refuses it, what was registered before stays, and nothing further is tried.
    pub(crate) fn prepare(
        &mut self,
        table: &mut impl BufferTable,
        memory: &LastingMemory,
        bytes: u64,
    ) {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.is_refused || self.bytes < memory.length() as u64 {
            return;
        }
        let known = self.memories.iter().position(|known| known.is(memory));
        let Some(at) = known.or_else(|| self.add(table, memory)) else {
            return;
        };
        let added = &mut self.memories[at];
        if added.has_all() {
            return;
        }
        let piece = added.piece(added.pieces);
        let took = match self.ability {
            // SAFETY: the memory stays mapped while `self` holds it, which is until its pieces are cleared or the ring is closed.
            Ability::Whole => unsafe { table.open_whole(&piece) }.map(|()| Duration::ZERO),
            // SAFETY: as above.
            _ => unsafe { table.fill(added.first + added.pieces, &piece) },
        };
        added.pieces += usize::from(took.is_ok());
        self.is_refused = !took.is_ok_and(|took| took <= LONGEST_REGISTRATION);
        self.memories.retain(|memory| memory.pieces > 0);
    }

    /// Adds a memory, in place of the oldest one if there are enough. `None` if it is not to be registered.
    fn add(&mut self, table: &mut impl BufferTable, memory: &LastingMemory) -> Option<usize> {
        if self.ability == Ability::Unknown {
            let opened = table.open(MAX_PIECES * MAX_MEMORIES);
            self.ability = opened.map_or(Ability::Whole, |()| Ability::Places);
        }
        let piece_bytes = match self.ability {
            Ability::Whole if memory.length() > LONGEST_WHOLE || !self.memories.is_empty() => {
                return None;
            }
            Ability::Whole => memory.length(),
            _ => PIECE_BYTES,
        };
        if self.memories.len() == MAX_MEMORIES {
            self.give_up(table, 0).ok()?;
        }
        let is_used = self.memories.iter().any(|known| known.first == 0);
        self.memories.push(Registered {
            memory: memory.clone(),
            piece_bytes,
            first: if is_used { MAX_PIECES } else { 0 },
            pieces: 0,
        });
        Some(self.memories.len() - 1)
    }

    /// Ends the registration of memory that nothing else keeps any more. No request may be in flight.
    pub(crate) fn release(&mut self, table: &mut impl BufferTable) {
        for at in (0..self.memories.len()).rev() {
            if self.memories[at].memory.is_abandoned() {
                // If it fails, the kernel still has the pages.
                let _ = self.give_up(table, at);
            }
        }
    }

    /// Ends the registration of a memory, the last piece first, and then drops it.
    fn give_up(&mut self, table: &mut impl BufferTable, at: usize) -> io::Result<()> {
        let given_up = &mut self.memories[at];
        while given_up.pieces > 0 {
            match self.ability {
                Ability::Whole => table.close_whole(),
                _ => table.clear(given_up.first + given_up.pieces - 1),
            }?;
            given_up.pieces -= 1;
        }
        self.memories.remove(at);
        Ok(())
    }

    /// How a ring with this memory moves files past the page cache, for the log.
    pub(crate) fn way(&self) -> &'static str {
        match (self.is_refused, self.memories.is_empty()) {
            (true, true) => "direct (io_uring, memory not registered)",
            (true, false) => "direct (io_uring, memory registered in part)",
            (false, false) => "direct (io_uring, registered memory)",
            (false, true) => "direct (io_uring)",
        }
    }

    /// The place in the kernel's table of the buffer that has all of these bytes.
    pub(crate) fn index(&self, start: *mut u8, length: usize) -> Option<u16> {
        let mut places = self.memories.iter();
        let place = places.find_map(|memory| memory.place(start.addr(), length))?;
        u16::try_from(place).ok()
    }
}

impl Registered {
    fn is(&self, memory: &LastingMemory) -> bool {
        self.memory.is(memory)
    }

    fn has_all(&self) -> bool {
        let pieces = self.memory.length().div_ceil(self.piece_bytes.max(1));
        self.pieces == pieces.min(MAX_PIECES)
    }

    /// The addresses of a piece.
    fn piece(&self, number: usize) -> Range<usize> {
        let all = self.memory.addresses();
        let start = all.start + number * self.piece_bytes;
        start..all.end.min(start + self.piece_bytes)
    }

    /// The place of the registered piece that has all of these bytes.
    fn place(&self, start: usize, length: usize) -> Option<usize> {
        let number = start
            .checked_sub(self.memory.addresses().start)?
            .checked_div(self.piece_bytes)?;
        let is_registered = number < self.pieces;
        let left = is_registered.then(|| self.piece(number).end.checked_sub(start))??;
        (length <= left).then_some(self.first + number)
    }
}

#[cfg(test)]
mod tests;
