//! The memory of the machine and the kernel's limit on pinned memory.

use rustix::process::{Resource, getrlimit};
use rustix::thread::{CapabilitySet, capabilities};

/// The default bound of all rings: a quarter of the machine's memory.
pub(super) fn default_bytes() -> u64 {
    const UNKNOWN: u64 = 1 << 30;
    // SAFETY: it only reads a constant of the system.
    let pages = unsafe { libc::sysconf(libc::_SC_PHYS_PAGES) };
    let page = rustix::param::page_size() as u64;
    let total = u64::try_from(pages)
        .ok()
        .and_then(|pages| pages.checked_mul(page));
    total.unwrap_or(UNKNOWN) / 4
}

/// The bound of rings that the kernel pins for a device.
pub(crate) fn pinned_bytes() -> u64 {
    // capabilities(7): CAP_IPC_LOCK lifts the limit.
    let is_free =
        capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::IPC_LOCK));
    match getrlimit(Resource::Memlock).current {
        // The queues of a device are pinned as well.
        Some(limit) if !is_free => limit - limit / 8,
        _ => u64::MAX,
    }
}
