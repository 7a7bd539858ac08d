//! Privileges that a process drops: gaining new ones by `execve`, capabilities, and being traced.

use rustix::io::Errno;
use rustix::process::DumpableBehavior;
use rustix::thread::{CapabilitySet, CapabilitySets};

use crate::error::SandboxError;

/// Sets `no_new_privs`, so that executing a program grants no privileges, and makes the process not dumpable, so that
/// other processes of its account cannot trace it. Neither can be undone by the process.
///
/// # Errors
///
/// When a system call fails.
pub fn give_up_new_rights() -> Result<(), SandboxError> {
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    Ok(rustix::thread::set_no_new_privs(true)?)
}

/// Removes all capabilities except `kept` from the bounding set, so that executing a program cannot grant them. The
/// process must have one thread.
///
/// # Errors
///
/// When a system call fails. A container that may not change its bounding set keeps it; `no_new_privs` has the same
/// effect there.
pub fn narrow_bounding_set(kept: CapabilitySet) -> Result<(), Errno> {
    for number in 0..u64::BITS {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        if kept.contains(capability) {
            continue;
        }
        match rustix::thread::remove_capability_from_bounding_set(capability) {
            Ok(()) => {}
            // INVAL: this kernel has no capability with this number or above. PERM: CAP_SETPCAP is missing.
            Err(Errno::INVAL | Errno::PERM) => break,
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Drops all capabilities except `kept`. The process must have one thread.
///
/// # Errors
///
/// When a system call fails.
pub fn keep_capabilities(kept: CapabilitySet) -> Result<(), Errno> {
    let permitted = rustix::thread::capabilities(None)?.permitted & kept;
    let sets = CapabilitySets {
        effective: permitted,
        permitted,
        inheritable: CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, sets)
}
