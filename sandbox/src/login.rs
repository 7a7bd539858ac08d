//! The process that holds the host key and authenticates clients.
//!
//! It rereads its configured files while it runs, computes on several threads, and answers over sockets that it was
//! started with. It cannot create another socket, and writes no file except its log.

use crate::calls::{Filter, Group};
use crate::confinement::{self, Confinement};
use crate::error::SandboxError;
use crate::files::Files;
use crate::groups::{
    DESCRIPTORS, EVENTS, MEMORY, MESSAGES, NEW_THREADS, QUERIES, READING, SENDING_TO_PEERS, THREADS,
};

/// Confines this process, which must have one thread, beneath `files`; see [`Files::without_network`].
///
/// # Errors
///
/// When there is a second thread, or a system call fails. A kernel without seccomp filters or Landlock is not an error:
/// [`Confinement::missing`] lists what is not enforced.
pub fn confine(files: Files) -> Result<Confinement, SandboxError> {
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
        THREADS,
        NEW_THREADS,
        QUERIES,
        DESCRIPTORS,
        EVENTS,
        READING,
        MESSAGES,
        SENDING_TO_PEERS,
    ];
    Filter::allow(GROUPS)
}
