//! Replaces pages that the kernel may still send from.
//!
//! A reset drops the unsent bytes of a connection, but packets that are already queued below TCP or at the device are still
//! sent, from the pages of zero-copy calls. The memory of a call is used by the next transfer, possibly of another session,
//! whose bytes must not get into those packets.

use rustix::mm::{Advice, madvise};

/// Replaces all whole pages of `memory` by new ones, which hold zeros. Packets that refer to the old pages are not affected.
pub(super) fn replace(memory: &mut [u8]) {
    let page = rustix::param::page_size();
    let skipped = memory.as_ptr().align_offset(page).min(memory.len());
    let pages = &mut memory[skipped..];
    let length = pages.len() - pages.len() % page;
    // madvise(2): MADV_DONTNEED of private anonymous memory. It fails for locked memory, which is the case only if an
    // administrator locks the whole process; then the pages stay.
    // SAFETY: these are whole pages of memory that is mutably borrowed as bytes, and zeros are valid bytes.
    let _ = unsafe { madvise(pages.as_mut_ptr().cast(), length, Advice::LinuxDontNeed) };
}

#[cfg(test)]
mod tests {
    use std::slice;

    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
    use rustix::pipe::{IoSliceRaw, SpliceFlags, pipe, vmsplice};

    use super::*;

    const BYTES: usize = 16 * 1024;

    /// A pipe refers to pages as a packet does.
    #[test]
    fn pages_in_flight_do_not_change_with_the_memory() {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let nowhere = std::ptr::null_mut();
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing else.
        let start = unsafe { mmap_anonymous(nowhere, BYTES, protection, MapFlags::PRIVATE) };
        let start = start.unwrap();
        // SAFETY: the mapping is that long, and used by this slice only until it is unmapped.
        let memory = unsafe { slice::from_raw_parts_mut(start.cast::<u8>(), BYTES) };
        memory.fill(1);
        let (reader, writer) = pipe().unwrap();
        let lent = [IoSliceRaw::from_slice(memory)];
        // SAFETY: the memory stays mapped until the pipe was read.
        let count = unsafe { vmsplice(&writer, &lent, SpliceFlags::empty()) };
        assert_eq!(count, Ok(BYTES));
        replace(memory);
        assert!(memory.iter().all(|byte| *byte == 0));
        memory.fill(2);
        let mut sent = vec![0; BYTES];
        assert_eq!(rustix::io::read(&reader, &mut sent[..]), Ok(BYTES));
        assert!(
            sent.iter().all(|byte| *byte == 1),
            "another's bytes are sent"
        );
        // SAFETY: nothing refers to the mapping any more.
        unsafe { munmap(start, BYTES) }.unwrap();
    }

    #[test]
    fn parts_of_pages_stay() {
        let page = rustix::param::page_size();
        let mut memory = vec![1_u8; 4 * page];
        let skipped = memory.as_ptr().align_offset(page);
        replace(&mut memory[skipped + 1..skipped + page - 1]);
        replace(&mut []);
        assert!(memory.iter().all(|byte| *byte == 1));
        replace(&mut memory[skipped + 1..skipped + 2 * page + 1]);
        let zeros = memory.iter().filter(|byte| **byte == 0).count();
        assert_eq!(zeros, page);
    }
}
