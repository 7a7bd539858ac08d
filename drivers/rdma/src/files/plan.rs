//! How a range is moved.

use std::os::fd::BorrowedFd;

use gridhaul_direct::{Call, Files, MAX_REQUESTS, block_bytes};
use gridhaul_stack::FileRange;

use super::cut::Cutter;
use super::{ALIGNMENT, LEAST_BYTES};

/// The longest request. Disks serve longer ones no faster.
const LONGEST_REQUEST: u64 = 1 << 20;

/// The least ring in bytes: it has several requests of [`LEAST_BYTES`].
pub(crate) const LEAST_RING_BYTES: u64 = 256 << 10;

/// A ring has room for this many requests.
const PART_OF_RING: u64 = 16;

/// Reads through the page cache that are in flight. What the page cache has is copied when a read is submitted, so with more of them
/// the network would wait for the first one.
const READS_OF_CACHE: usize = 4;

/// Writes to the page cache that are in flight: one has its turn at the file, and the next one waits for it.
const WRITES_OF_CACHE: usize = 2;

/// Shorter ranges are written to the page cache by one call at a time: threads are started for each range.
const LEAST_BYTES_FOR_THREADS: u64 = 4 << 20;

/// How a range is moved.
#[derive(Debug)]
pub(crate) struct Plan<'a> {
    pub(crate) files: Files<'a>,
    pub(super) cutter: Cutter,
    /// Requests in flight.
    pub(crate) requests: usize,
    call: Call,
}

/// What carries out the requests of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EngineKind {
    /// What the option asks for.
    Any,
    /// Helper threads, which take turns at the file ([`gridhaul_stack::WriteLock`]). The kernel would carry out writes to the page
    /// cache on threads of io_uring, which compete for the lock of the inode with those of other channels.
    Threads,
}

/// Whether the content of files is where direct I/O needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Alignment {
    None,
    Blocks,
}

impl<'a> Plan<'a> {
    /// Past the page cache if that is possible, and otherwise through it, with the reason. `None` if the range or the ring is too short for
    /// several requests.
    pub(super) fn new(
        range: &FileRange<'a>,
        call: Call,
        ring_bytes: u64,
        alignment: Alignment,
    ) -> Option<(Self, Option<&'static str>)> {
        if range.length < LEAST_BYTES || ring_bytes < LEAST_RING_BYTES {
            return None;
        }
        let part = (ring_bytes / PART_OF_RING).min(LONGEST_REQUEST);
        let request_bytes = part - part % ALIGNMENT;
        let direct = range
            .direct
            .filter(|_| ring_bytes.is_multiple_of(ALIGNMENT));
        let block = match (direct, alignment) {
            (None, _) => Err("the file could not be opened past the page cache"),
            (_, Alignment::None) => Err("the rings are not aligned"),
            (Some(file), Alignment::Blocks) => block_of(file, request_bytes),
        };
        let plan = Self {
            files: Files {
                direct: direct.unwrap_or(range.file),
                cached: range.file,
            },
            cutter: Cutter {
                block: block.ok(),
                request_bytes,
            },
            requests: usize::try_from(ring_bytes / request_bytes)
                .map_or(MAX_REQUESTS, |requests| requests.min(MAX_REQUESTS)),
            call,
        };
        Some((plan, block.err()))
    }

    /// The same through the page cache. `None` if one call at a time is better for a range of `length` bytes.
    pub(super) fn through_cache(self, length: u64) -> Option<Self> {
        let (requests, least_bytes) = match self.call {
            Call::Read => (READS_OF_CACHE, LEAST_BYTES),
            Call::Write => (WRITES_OF_CACHE, LEAST_BYTES_FOR_THREADS),
        };
        (length >= least_bytes).then_some(Self {
            cutter: Cutter {
                block: None,
                ..self.cutter
            },
            requests: self.requests.min(requests),
            ..self
        })
    }

    /// Whether its requests go past the page cache.
    pub(super) fn is_direct(&self) -> bool {
        self.cutter.block.is_some()
    }

    pub(super) fn request_bytes(&self) -> u64 {
        self.cutter.request_bytes
    }

    pub(crate) fn engine_kind(&self) -> EngineKind {
        match (self.call, self.is_direct()) {
            (Call::Write, false) => EngineKind::Threads,
            (Call::Read, _) | (Call::Write, true) => EngineKind::Any,
        }
    }
}

/// The block of a file for requests of this length.
fn block_of(file: BorrowedFd<'_>, request_bytes: u64) -> Result<u64, &'static str> {
    let block = block_bytes(file).ok_or("the file system has no direct I/O for this file")?;
    let block = block as u64;
    if request_bytes.is_multiple_of(block) {
        Ok(block)
    } else {
        Err("its blocks are longer than the requests")
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;
    use std::sync::atomic::AtomicU64;

    use super::*;

    const MIB: u64 = 1 << 20;

    /// The bytes and the number of requests for a long file and a ring of so many bytes, with requests past the page cache or through it.
    fn requests(ring_bytes: u64, call: Call, through_cache: bool) -> Option<(u64, usize)> {
        let file = tempfile::tempfile().unwrap();
        let moved = AtomicU64::new(0);
        let range = FileRange::new(file.as_fd(), 0, 1 << 40, &mut [], &moved);
        let (plan, _) = Plan::new(&range, call, ring_bytes, Alignment::Blocks)?;
        let plan = match through_cache {
            true => plan.through_cache(range.length)?,
            false => plan,
        };
        Some((plan.request_bytes(), plan.requests))
    }

    #[test]
    fn a_long_ring_has_many_requests_of_a_mebibyte() {
        for (ring_bytes, expected) in [
            (32 * MIB, (MIB, 32)),
            (1 << 30, (MIB, 32)),
            (20 * MIB, (MIB, 20)),
            (16 * MIB, (MIB, 16)),
        ] {
            let found = requests(ring_bytes, Call::Write, false);
            assert_eq!(found, Some(expected), "{ring_bytes}");
        }
    }

    #[test]
    fn a_short_ring_has_sixteen_shorter_requests() {
        for (ring_bytes, expected) in [
            (8 * MIB, (MIB / 2, 16)),
            (MIB, (64 << 10, 16)),
            (LEAST_RING_BYTES, (16 << 10, 16)),
            // Requests begin at a multiple of a block.
            (MIB + 40_000, (64 << 10, 16)),
        ] {
            let found = requests(ring_bytes, Call::Read, false);
            assert_eq!(found, Some(expected), "{ring_bytes}");
        }
        assert_eq!(requests(LEAST_RING_BYTES - 1, Call::Read, false), None);
    }

    #[test]
    fn few_requests_go_through_the_page_cache() {
        for (call, expected) in [(Call::Read, 4), (Call::Write, 2)] {
            let found = requests(64 * MIB, call, true);
            assert_eq!(found, Some((MIB, expected)));
        }
    }
}
