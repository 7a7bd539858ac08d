//! The process that holds the host key and decides who a client is.
//!
//! It reads the files that it was configured with again while it runs, computes on several threads, and answers
//! over sockets that it was started with. It cannot make another socket, and changes no file but its log.

use crate::calls::{Filter, Group};
use crate::files::Files;
use crate::groups::{
    DESCRIPTORS, EVENTS, FACTS, MEMORY, MESSAGES, NEW_THREADS, READING, SENDING_TO_PEERS, THREADS,
};
use crate::{Confinement, SandboxError};

/// Confines this process, which must have one thread, beneath `files`; see [`Files::without_network`].
///
/// # Errors
///
/// When there is a second thread, or the kernel refuses. A kernel that has no filters or no Landlock is no
/// error: the result says what holds.
pub fn confine(files: Files) -> Result<Confinement, SandboxError> {
    crate::confine(&filter()?, files)
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
        READING,
        MESSAGES,
        SENDING_TO_PEERS,
    ];
    Filter::allow(GROUPS)
}
