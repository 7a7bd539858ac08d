//! The memory of the machine and the kernel's limit on pinned memory.

use std::sync::LazyLock;

use rustix::process::{Resource, getrlimit};
use rustix::thread::{CapabilitySet, capabilities};

/// The default bound of all rings on a machine with this much memory, in bytes: a quarter of it.
pub(crate) fn default_part(memory: u64) -> u64 {
    memory / 4
}

/// The default bound of all rings on this machine.
pub(super) fn default_bytes() -> u64 {
    const UNKNOWN: u64 = 1 << 30;
    // SAFETY: it only reads a constant of the system.
    let pages = unsafe { libc::sysconf(libc::_SC_PHYS_PAGES) };
    let page = rustix::param::page_size() as u64;
    let total = u64::try_from(pages)
        .ok()
        .and_then(|pages| pages.checked_mul(page));
    default_part(total.unwrap_or(UNKNOWN))
}

/// Whether this process may pin any amount of memory, as far as was known when it was first asked.
pub(super) fn pins_without_limit() -> bool {
    static IS_FREE: LazyLock<bool> = LazyLock::new(|| pinned_bytes() == u64::MAX);
    *IS_FREE
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
