//! The process that listens and talks to clients until they have logged in.
//!
//! It opens no file and makes no connection. It accepts connections at sockets that were there before, and asks other
//! processes over sockets that it was started with.

use libc::{SYS_accept, SYS_accept4};

use crate::calls::{Call, Filter, Group};
use crate::files::Files;
use crate::groups::{
    DESCRIPTORS, EVENTS, FACTS, MEMORY, MESSAGES, NEW_THREADS, SENDING_TO_PEERS, THREADS,
};
use crate::{Confinement, SandboxError};

/// Connections of clients.
const ACCEPTING: Group = &[Call::Any(SYS_accept), Call::Any(SYS_accept4)];

/// Confines this process, which must have one thread. No file is open to it.
///
/// # Errors
///
/// When there is a second thread, or the kernel refuses. A kernel that has no filters or no Landlock is no
/// error: the result says what holds.
pub fn confine() -> Result<Confinement, SandboxError> {
    crate::confine(&filter()?, Files::at([]).without_network())
}

/// The calls that it needs.
///
/// # Errors
///
/// When this processor is not known.
pub fn filter() -> Result<Filter, SandboxError> {
    const GROUPS: &[Group] = &[
        MEMORY,
        THREADS,
        NEW_THREADS,
        FACTS,
        DESCRIPTORS,
        EVENTS,
        MESSAGES,
        SENDING_TO_PEERS,
        ACCEPTING,
    ];
    Filter::allow(GROUPS)
}
