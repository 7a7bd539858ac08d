//! Calls of data channels, beside those on sockets.

use crate::calls::{Argument, Call, Group, flag};
use Call::{Any, If};

/// Exact timers for threads that send at a configured rate. It concerns the calling thread only.
pub(crate) const PACING: Group = &[If(
    libc::SYS_prctl,
    &[&[Argument::is(0, flag(libc::PR_SET_TIMERSLACK))]],
)];

/// RDMA adapters, by libibverbs and librdmacm: the devices of `/dev/infiniband` take commands by `write` and by ioctls of
/// one type (RDMA_IOCTL_MAGIC of rdma/rdma_user_ioctl_cmds.h), and a netlink socket lists the devices. Memory and the calling
/// thread are moved to the NUMA node of an adapter.
pub(crate) const RDMA: Group = &[
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
