//! The process of `doctor --rdma-listen`, which measures RDMA with a peer.
//!
//! Any host can connect to it. It moves bytes between memory and channels that peers open: it changes no file, and makes no connection. Memory
//! for RDMA is pinned beyond the limits of an account only with a capability of root, which it keeps.

use rustix::thread::CapabilitySet;

use crate::calls::{Filter, Group};
use crate::confinement::{self, Confinement};
use crate::error::SandboxError;
use crate::files::Files;
use crate::groups::{
    DESCRIPTORS, EVENTS, LIBRARIES, LISTENING, MEMORY, MESSAGES, NEW_THREADS, PACING, QUERIES,
    RDMA, READING, SENDING_WITHOUT_CONNECTING, THREADS,
};
use crate::privileges::keep_capabilities;

/// Confines this process, which must have one thread, beneath `files`. Of root's capabilities it keeps that to lock memory.
///
/// # Errors
///
/// When there is a second thread, or a system call fails. A kernel without seccomp filters or Landlock is not an error:
/// [`Confinement::missing`] lists what is not enforced.
pub fn confine(files: Files) -> Result<Confinement, SandboxError> {
    keep_capabilities(CapabilitySet::IPC_LOCK)?;
    confinement::confine(&filter()?, files)
}

/// The system calls that the process makes.
///
/// # Errors
///
/// When this processor is not supported.
pub fn filter() -> Result<Filter, SandboxError> {
    const GROUPS: &[Group] = &[
        MEMORY,
        LIBRARIES,
        THREADS,
        NEW_THREADS,
        QUERIES,
        DESCRIPTORS,
        EVENTS,
        READING,
        MESSAGES,
        SENDING_WITHOUT_CONNECTING,
        LISTENING,
        PACING,
        RDMA,
    ];
    Filter::allow(GROUPS)
}
