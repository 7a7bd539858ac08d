//! What each process of the server gives up before it works for others.
//!
//! | module | process |
//! |---|---|
//! | [`server`] | talks to the network and moves data, on many threads |
//! | [`login`] | holds the host key and decides who a client is |
//! | [`monitor`] | has root's rights and starts brokers |
//! | [`broker`] | opens the files of one account |
//!
//! Each of them says which groups of system calls the process may make, with a reason for each group (seccomp),
//! and what it may do with which files (Landlock). All of them lose the right to gain rights (`no_new_privs`).
//!
//! A forbidden system call fails with `EPERM` and does not end the process: a C library that one day uses
//! another call for the same work then costs one call, not every session. Calls that came with Linux 5.1 and
//! later fail with `ENOSYS` instead, as they do on an older kernel, so that libraries use the older call.

pub mod broker;
mod calls;
mod files;
pub mod front;
mod groups;
mod kernel;
pub mod login;
pub mod monitor;
pub mod server;

pub use calls::Filter;
pub use files::{Access, Files, Place};
pub use kernel::{has_seccomp_filters, landlock_abi};

use files::{Allowed, Enforced};
use rustix::io::Errno;
use rustix::process::DumpableBehavior;
use rustix::thread::{CapabilitySet, CapabilitySets};

/// What could not be given up.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// The filter of system calls.
    #[error("seccomp: {0}")]
    Calls(String),
    /// The rules about files.
    #[error("Landlock: {0}")]
    Files(String),
    /// `no_new_privs`, or the flag against being looked into.
    #[error("prctl: {0}")]
    Process(#[from] Errno),
    /// Landlock confines a thread and those that it starts, and there are others already.
    #[error("the process has more than one thread already")]
    Threads,
}

/// What holds for a process that has confined itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Confinement {
    /// Why there is no filter of system calls, if there is none.
    pub without_calls: Option<String>,
    /// The version of Landlock's interface that is enforced; `None` without Landlock.
    pub landlock: Option<i32>,
    allowed: Allowed,
}

impl Confinement {
    /// What this kernel does not enforce, in words; empty if everything holds.
    pub fn missing(&self) -> Vec<String> {
        let calls = self
            .without_calls
            .as_ref()
            .map(|reason| format!("no filter of system calls ({reason})"));
        let files = self.landlock.is_none().then(|| {
            "no rules about files (Landlock with Linux 5.19 or later, and landlock in lsm=)"
                .to_owned()
        });
        calls.into_iter().chain(files).collect()
    }

    /// Whether the process may use this place, which may be new to it. A restart takes in what it may not.
    pub fn covers(&self, place: &Place) -> bool {
        self.landlock.is_none() || self.allowed.covers(place)
    }
}

/// Forbids this process, for good, to gain rights by executing a program, and keeps other processes of its
/// account from looking into it.
///
/// # Errors
///
/// When the kernel refuses.
pub fn give_up_new_rights() -> Result<(), SandboxError> {
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    Ok(rustix::thread::set_no_new_privs(true)?)
}

/// Keeps this process, which must have one thread, from ever having other capabilities than these by executing a program.
///
/// # Errors
///
/// When the kernel refuses. In a container that may not change the bounding set it stays as it is; `no_new_privs` holds there too.
pub fn narrow_bounding_set(kept: CapabilitySet) -> Result<(), Errno> {
    for number in 0..u64::BITS {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        if kept.contains(capability) {
            continue;
        }
        match rustix::thread::remove_capability_from_bounding_set(capability) {
            Ok(()) => {}
            // Those above are not known to this kernel, or none may be removed.
            Err(Errno::INVAL | Errno::PERM) => break,
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Gives up the other capabilities of this process, which must have one thread.
///
/// # Errors
///
/// When the kernel refuses.
pub fn keep_capabilities(kept: CapabilitySet) -> Result<(), Errno> {
    let permitted = rustix::thread::capabilities(None)?.permitted & kept;
    let sets = CapabilitySets {
        effective: permitted,
        permitted,
        inheritable: CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, sets)
}

/// Confines a process that has one thread, and those threads that it starts.
fn confine(filter: &Filter, files: Files) -> Result<Confinement, SandboxError> {
    if !has_one_thread() {
        return Err(SandboxError::Threads);
    }
    give_up_new_rights()?;
    let Enforced { version, allowed } = files.enforce()?;
    let without_calls = match has_seccomp_filters() {
        true => {
            filter.enforce()?;
            None
        }
        false => Some("the kernel has none".to_owned()),
    };
    Ok(Confinement {
        without_calls,
        landlock: version,
        allowed,
    })
}

fn has_one_thread() -> bool {
    // Without /proc there is nothing to count by, and the server starts no thread before this.
    std::fs::read_dir("/proc/self/task").is_ok_and(|tasks| tasks.count() == 1)
}
