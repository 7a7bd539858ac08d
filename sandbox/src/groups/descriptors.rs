//! Calls on open descriptors, and waiting for them.

use libc::{
    SYS_close, SYS_dup, SYS_dup3, SYS_epoll_create1, SYS_epoll_ctl, SYS_epoll_pwait,
    SYS_epoll_pwait2, SYS_eventfd2, SYS_fcntl, SYS_ioctl, SYS_pipe2, SYS_ppoll, SYS_pselect6,
    SYS_read, SYS_readv, SYS_timerfd_create, SYS_timerfd_settime, SYS_write, SYS_writev,
};

use crate::calls::{Argument, Call, Group, flag};
use Call::{Any, If};

/// Operations on open descriptors.
pub(crate) const DESCRIPTORS: Group = &[
    Any(SYS_read),
    Any(SYS_readv),
    Any(SYS_write),
    Any(SYS_writev),
    Any(SYS_close),
    If(SYS_fcntl, DESCRIPTOR_COMMANDS),
    Any(SYS_dup),
    Any(SYS_dup3),
    If(SYS_ioctl, DESCRIPTOR_CONTROLS),
];

/// Copies of descriptors, the close-on-exec flag, and non-blocking mode. `F_SETOWN`, `F_SETSIG` and `O_ASYNC` are not
/// permitted: with them the kernel sends any signal to any process of the account, which Landlock prevents only since
/// Linux 6.12 (`LANDLOCK_SCOPE_SIGNAL`). Leases (`F_SETLEASE`), which keep other processes from opening a file, and record
/// locks are not permitted either.
const DESCRIPTOR_COMMANDS: &[&[Argument]] = &[
    &[command(libc::F_DUPFD)],
    &[command(libc::F_DUPFD_CLOEXEC)],
    &[command(libc::F_GETFD)],
    &[command(libc::F_SETFD)],
    &[command(libc::F_GETFL)],
    &[
        command(libc::F_SETFL),
        Argument::bits(2, flag(libc::O_ASYNC), 0),
    ],
];

pub(super) const fn command(number: i32) -> Argument {
    Argument::is(1, flag(number))
}

/// The number of queued bytes, non-blocking mode, and whether a descriptor is a terminal. `TIOCSTI`, which inserts input
/// into a terminal, is not permitted, nor is any other request.
const DESCRIPTOR_CONTROLS: &[&[Argument]] = &[
    &[Argument::is(1, libc::FIONBIO)],
    &[Argument::is(1, libc::FIOCLEX)],
    &[Argument::is(1, libc::FIONREAD)],
    &[Argument::is(1, libc::TIOCOUTQ)],
    &[Argument::is(1, libc::TCGETS)],
];

/// Waiting for descriptors, timers and other threads (tokio, and libraries for the account database).
pub(crate) const EVENTS: Group = &[
    Any(SYS_epoll_create1),
    Any(SYS_epoll_ctl),
    Any(SYS_epoll_pwait),
    Any(SYS_epoll_pwait2),
    Any(SYS_eventfd2),
    Any(SYS_timerfd_create),
    Any(SYS_timerfd_settime),
    Any(SYS_ppoll),
    Any(SYS_pselect6),
    Any(SYS_pipe2),
    #[cfg(target_arch = "x86_64")]
    Any(libc::SYS_epoll_wait),
    #[cfg(target_arch = "x86_64")]
    Any(libc::SYS_poll),
    #[cfg(target_arch = "x86_64")]
    Any(libc::SYS_select),
    #[cfg(target_arch = "x86_64")]
    Any(libc::SYS_pipe),
];
