//! The process that listens and talks to clients until they have logged in.
//!
//! It opens no file and makes no connection. It accepts connections on listening sockets that were opened before it was
//! confined, and communicates with other processes over sockets that it was started with.

use libc::{SYS_accept, SYS_accept4};

use crate::calls::{Call, Filter, Group};
use crate::confinement::{self, Confinement};
use crate::error::SandboxError;
use crate::files::Files;
use crate::groups::{
    DESCRIPTORS, EVENTS, MEMORY, MESSAGES, NEW_THREADS, QUERIES, SENDING_TO_PEERS, THREADS,
};

/// Connections of clients.
const ACCEPTING: Group = &[Call::Any(SYS_accept), Call::Any(SYS_accept4)];

/// Confines this process, which must have one thread. It can open no file.
///
/// # Errors
///
/// When there is a second thread, or a system call fails. A kernel without seccomp filters or Landlock is not an error:
/// [`Confinement::missing`] lists what is not enforced.
pub fn confine() -> Result<Confinement, SandboxError> {
    confinement::confine(&filter()?, Files::at([]).without_network())
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
        MESSAGES,
        SENDING_TO_PEERS,
        ACCEPTING,
    ];
    Filter::allow(GROUPS)
}
