//! The process that runs sessions: control channels, data channels and their files.
//!
//! Third-party copies connect to any host and port, so Landlock's rules about TCP ports are not used.

use crate::calls::{Argument, Call, Filter, Group, flag};
use crate::confinement::{self, Confinement};
use crate::error::SandboxError;
use crate::files::Files;
use crate::groups::{
    ATTRIBUTES, CHANGING, CONNECTIONS, DESCRIPTORS, EVENTS, LIBRARIES, MEMORY, MESSAGES, MOVING,
    NEW_THREADS, PACING, QUERIES, RDMA, READING, SENDING, THREADS,
};
use Call::{Any, If};

/// System calls that only some configurations need.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Needs {
    /// RDMA adapters.
    pub rdma: bool,
    /// File access past the page cache with io_uring. A filter of system calls does not see the operations of io_uring,
    /// so it is permitted only where the server's stack or an RDMA adapter uses it.
    pub io_uring: bool,
}

/// Confines this process, which must have one thread, to the calls of [`filter`] and to `files`.
///
/// # Errors
///
/// When there is a second thread, or a system call fails. A kernel without seccomp filters or Landlock is not an error:
/// [`Confinement::missing`] lists what is not enforced.
pub fn confine(needs: Needs, files: Files) -> Result<Confinement, SandboxError> {
    confinement::confine(&filter(needs)?, files)
}

/// The system calls that the process makes.
///
/// # Errors
///
/// When this processor is not supported.
pub fn filter(needs: Needs) -> Result<Filter, SandboxError> {
    let mut groups = vec![
        MEMORY,
        LIBRARIES,
        THREADS,
        NEW_THREADS,
        QUERIES,
        DESCRIPTORS,
        EVENTS,
        READING,
        MESSAGES,
        SENDING,
        CONNECTIONS,
        MOVING,
        CHANGING,
        ATTRIBUTES,
        WATCHING,
        PACING,
    ];
    if needs.rdma {
        groups.push(RDMA);
    }
    if needs.io_uring {
        groups.push(IO_URING);
    }
    Filter::allow(&groups)
}

/// How another process of the server has ended, which stays to be waited for.
const WATCHING: Group = &[If(
    libc::SYS_waitid,
    &[&[
        Argument::is(0, P_PIDFD),
        Argument::is(3, flag(libc::WEXITED | libc::WNOHANG | libc::WNOWAIT)),
    ]],
)];

/// waitid(2).
const P_PIDFD: u64 = 3;

/// For a stack with `direct=1` or `direct=auto`, which is the default of `rdma`, and where clients may use adapters.
const IO_URING: Group = &[
    Any(libc::SYS_io_uring_setup),
    Any(libc::SYS_io_uring_enter),
    Any(libc::SYS_io_uring_register),
];
