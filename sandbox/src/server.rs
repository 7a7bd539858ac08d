//! The process that runs sessions: control channels, data channels and their files.
//!
//! Third-party copies connect to any host and port, so Landlock's rules about TCP ports are not used.

use crate::calls::{Argument, Call, Filter, Group, flag};
use crate::confinement::{self, Confinement};
use crate::error::SandboxError;
use crate::files::Files;
use crate::groups::{
    ATTRIBUTES, CHANGING, CONNECTIONS, DESCRIPTORS, EVENTS, LIBRARIES, MEMORY, MESSAGES, MOVING,
    NEW_THREADS, QUERIES, READING, SENDING, THREADS,
};
use Call::{Any, If};

/// System calls that only some configurations need.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Needs {
    /// RDMA adapters.
    pub rdma: bool,
    /// File access past the page cache with io_uring. A filter of system calls does not see the operations of io_uring,
    /// so it is permitted only if the administrator has enabled it.
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

/// Exact timers for threads that send at a configured rate. It concerns the calling thread only.
const PACING: Group = &[If(
    libc::SYS_prctl,
    &[&[Argument::is(0, flag(libc::PR_SET_TIMERSLACK))]],
)];

/// RDMA adapters, by libibverbs and librdmacm: the devices of `/dev/infiniband` take commands by `write` and by ioctls of
/// one type (RDMA_IOCTL_MAGIC of rdma/rdma_user_ioctl_cmds.h), and a netlink socket lists the devices. Memory and the calling
/// thread are moved to the NUMA node of an adapter.
const RDMA: Group = &[
    Any(libc::SYS_mbind),
    If(libc::SYS_sched_setaffinity, &[&[Argument::is(0, 0)]]),
    If(libc::SYS_ioctl, &[&[Argument::bits(1, 0xff00, 0x1b00)]]),
    If(
        libc::SYS_socket,
        &[&[Argument::is(0, NETLINK), Argument::is(2, NETLINK_RDMA)]],
    ),
];

const NETLINK: u64 = 16;
/// linux/netlink.h.
const NETLINK_RDMA: u64 = 20;

/// The drivers `splice` and `rdma` with `direct=1`.
const IO_URING: Group = &[
    Any(libc::SYS_io_uring_setup),
    Any(libc::SYS_io_uring_enter),
    Any(libc::SYS_io_uring_register),
];
