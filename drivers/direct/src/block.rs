//! The unit of direct I/O.

use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, StatxFlags, statx};

/// The unit of direct I/O in bytes: offsets in the file, lengths and addresses must be multiples of it. `None` if the file
/// system does not support direct I/O for this file, for example because it encrypts or compresses it.
///
/// It is at least a page, so that no page of the page cache has bytes that are also written past it.
pub fn block_bytes(direct: BorrowedFd<'_>) -> Option<usize> {
    let page_bytes = rustix::param::page_size();
    // statx(2): STATX_DIOALIGN came with Linux 6.1, and not every file system reports it.
    let facts = statx(direct, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok();
    let facts = facts.filter(|facts| {
        StatxFlags::from_bits_retain(facts.stx_mask).contains(StatxFlags::DIOALIGN)
    });
    let Some(facts) = facts else {
        return Some(page_bytes);
    };
    let bytes = facts.stx_dio_offset_align.max(facts.stx_dio_mem_align);
    let bytes = usize::try_from(bytes)
        .ok()
        .filter(|bytes| bytes.is_power_of_two())?;
    Some(bytes.max(page_bytes))
}
