//! The process that talks to the network: control channels, data channels and their files.
//!
//! It connects to any host, as third-party copies want, and so Landlock's rules about ports are not used.

use crate::calls::{Argument, Call, Filter, Group};
use crate::files::Files;
use crate::groups::{
    ATTRIBUTES, CHANGING, CONNECTIONS, DESCRIPTORS, EVENTS, FACTS, LIBRARIES, MEMORY, MESSAGES,
    MOVING, NEW_THREADS, READING, SENDING, THREADS,
};
use crate::{Confinement, SandboxError};
use Call::{Any, If};

/// What not every server needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Needs {
    /// Adapters for RDMA.
    pub rdma: bool,
    /// Files past the page cache over io_uring. What is asked of io_uring is not seen by a filter of
    /// system calls, so it is for servers whose administrator named it.
    pub io_uring: bool,
}

/// Confines this process, which must have one thread, to what serving needs, beneath `files`.
///
/// # Errors
///
/// When there is a second thread, or the kernel refuses. A kernel that has no filters or no Landlock is no
/// error: the result says what holds.
pub fn confine(needs: Needs, files: Files) -> Result<Confinement, SandboxError> {
    crate::confine(&filter(needs)?, files)
}

/// The calls that serving needs.
///
/// # Errors
///
/// When this processor is not known.
pub fn filter(needs: Needs) -> Result<Filter, SandboxError> {
    let mut groups = vec![
        MEMORY,
        LIBRARIES,
        THREADS,
        NEW_THREADS,
        FACTS,
        DESCRIPTORS,
        EVENTS,
        READING,
        MESSAGES,
        SENDING,
        CONNECTIONS,
        MOVING,
        CHANGING,
        ATTRIBUTES,
    ];
    if needs.rdma {
        groups.push(RDMA);
    }
    if needs.io_uring {
        groups.push(IO_URING);
    }
    Filter::allow(&groups)
}

/// Adapters, by libibverbs and librdmacm: the devices of `/dev/infiniband` take commands by `write` and by ioctls
/// of one type (RDMA_IOCTL_MAGIC of rdma/rdma_user_ioctl_cmds.h), and a netlink socket tells which there are.
const RDMA: Group = &[
    If(libc::SYS_ioctl, &[&[Argument::bits(1, 0xff00, 0x1b00)]]),
    If(
        libc::SYS_socket,
        &[&[Argument::is(0, NETLINK), Argument::is(2, NETLINK_RDMA)]],
    ),
];

const NETLINK: u64 = 16;
/// linux/netlink.h.
const NETLINK_RDMA: u64 = 20;

/// The driver `splice` with `direct=1`.
const IO_URING: Group = &[
    Any(libc::SYS_io_uring_setup),
    Any(libc::SYS_io_uring_enter),
    Any(libc::SYS_io_uring_register),
];
