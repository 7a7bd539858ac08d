//! The process that writes the log files.
//!
//! It was started with the files, and with sockets to the processes that send lines. It appends, and can do nothing else to a
//! file: no call that cuts a file, writes elsewhere in it, or clears `O_APPEND` is permitted. `pwrite64` is not permitted
//! either, although the kernel appends with it to such a file.

use crate::calls::{Argument, Call, Filter, Group};
use crate::confinement::{self, Confinement};
use crate::error::SandboxError;
use crate::files::Files;
use crate::groups::{MEMORY, NEW_THREADS, QUERIES, SENDING_TO_PEERS, THREADS};
use Call::{Any, If};

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
    Filter::allow(&[
        MEMORY,
        THREADS,
        NEW_THREADS,
        QUERIES,
        SENDING_TO_PEERS,
        APPENDING,
    ])
}

/// Lines from sockets to files.
const APPENDING: Group = &[
    Any(libc::SYS_recvmsg),
    Any(libc::SYS_write),
    Any(libc::SYS_close),
    // In debug builds std checks whether descriptors are open. No other command is used.
    If(libc::SYS_fcntl, &[&[Argument::is(1, GET_FLAGS)]]),
];

const GET_FLAGS: u64 = 1;
