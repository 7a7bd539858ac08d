//! Prevents a virtual machine from returning free memory to its host during a benchmark.
//!
//! With free page reporting a virtual machine returns unused memory to its host, and gets it back slowly: writing a file in
//! memory then takes several times as long, in an unpredictable way. The kernel reports only whole huge pages, so one
//! small page in each of them is held and the rest of it stays free during the benchmark; the kernel allocates such
//! fragments before it splits a huge page.
//!
//! This is best effort: without enough memory the benchmark runs without a reserve.

use std::num::NonZeroUsize;
use std::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use rustix::param::page_size;

use super::machine;

/// The divisor of the available memory: at most half of it is touched.
const SHARE: u64 = 2;

/// The distance of held pages: half a huge page, because the mapping may start anywhere in one.
const PIECE: usize = 1 << 20;

/// Held pages, whose huge pages the kernel does not report to the host.
#[derive(Debug)]
pub struct Reserve {
    start: NonNull<u8>,
    length: NonZeroUsize,
}

impl Reserve {
    /// Touches `wanted` bytes, or less on a machine with little memory, and frees all but one page of each piece.
    pub fn of(wanted: u64) -> Option<Self> {
        let wanted = wanted.min(machine::memory("MemAvailable")? / SHARE);
        let length = usize::try_from(wanted).ok()? / PIECE * PIECE;
        let reserve = Self::map(NonZeroUsize::new(length)?)?;
        reserve.advise(0, length, Advice::LinuxNoHugepage);
        reserve.advise(0, length, Advice::LinuxPopulateWrite);
        let page = page_size();
        for piece in (0..length).step_by(PIECE) {
            reserve.advise(piece + page, PIECE - page, Advice::LinuxDontNeed);
        }
        Some(reserve)
    }

    fn map(length: NonZeroUsize) -> Option<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let anywhere = std::ptr::null_mut();
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing else.
        let start =
            unsafe { mmap_anonymous(anywhere, length.get(), protection, MapFlags::PRIVATE) };
        let start = NonNull::new(start.ok()?.cast())?;
        Some(Self { start, length })
    }

    /// Advises on a part of the mapping.
    fn advise(&self, offset: usize, length: usize, advice: Advice) {
        assert!(offset + length <= self.length.get());
        let part = self.start.as_ptr().wrapping_add(offset);
        // SAFETY: the part belongs to the mapping, whose content is never read.
        let _ = unsafe { madvise(part.cast(), length, advice) };
    }
}

impl Drop for Reserve {
    fn drop(&mut self) {
        // SAFETY: `map` made the mapping, and no other code has its address.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.length.get()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_each_piece_is_kept() {
        let reserve = Reserve::of(3 << 20).unwrap();
        // Because of the advice the kernel does not merge the mapping with adjacent ones.
        let mapping = format!("\n{:x}-", reserve.start.as_ptr().addr());
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let lines = maps.split(&mapping).nth(1).unwrap().lines();
        let mut resident = lines.filter_map(|line| line.strip_prefix("Rss:"));
        let kept = format!("{} kB", 3 * page_size() / 1024);
        assert_eq!(resident.next().map(str::trim), Some(kept.as_str()));
    }
}
