//! Groups of system calls that several processes make, each with its reason.
//!
//! Lists name what the C libraries of EL 9 and 10, Debian 12 and 13 and Ubuntu 24.04 use for the same work, and
//! calls that x86-64 has and later processors have not (`open` beside `openat`).

use libc::{
    SYS_accept, SYS_accept4, SYS_bind, SYS_brk, SYS_capget, SYS_clock_getres, SYS_clock_gettime,
    SYS_clock_nanosleep, SYS_clone, SYS_close, SYS_connect, SYS_copy_file_range, SYS_dup, SYS_dup3,
    SYS_epoll_create1, SYS_epoll_ctl, SYS_epoll_pwait, SYS_epoll_pwait2, SYS_eventfd2, SYS_exit,
    SYS_exit_group, SYS_faccessat, SYS_faccessat2, SYS_fadvise64, SYS_fallocate, SYS_fchmod,
    SYS_fchmodat, SYS_fchmodat2, SYS_fchown, SYS_fchownat, SYS_fcntl, SYS_fdatasync, SYS_fgetxattr,
    SYS_flock, SYS_fremovexattr, SYS_fsetxattr, SYS_fstat, SYS_fstatfs, SYS_fsync, SYS_ftruncate,
    SYS_futex, SYS_getcpu, SYS_getcwd, SYS_getdents64, SYS_getegid, SYS_geteuid, SYS_getgid,
    SYS_getgroups, SYS_getpeername, SYS_getpid, SYS_getppid, SYS_getpriority, SYS_getrandom,
    SYS_getresgid, SYS_getresuid, SYS_getrusage, SYS_getsockname, SYS_getsockopt, SYS_gettid,
    SYS_gettimeofday, SYS_getuid, SYS_getxattr, SYS_ioctl, SYS_linkat, SYS_listen, SYS_lseek,
    SYS_madvise, SYS_membarrier, SYS_mincore, SYS_mkdirat, SYS_mmap, SYS_mprotect, SYS_mremap,
    SYS_munmap, SYS_nanosleep, SYS_newfstatat, SYS_openat, SYS_openat2, SYS_pipe2, SYS_ppoll,
    SYS_prctl, SYS_pread64, SYS_preadv, SYS_preadv2, SYS_prlimit64, SYS_pselect6, SYS_pwrite64,
    SYS_pwritev, SYS_pwritev2, SYS_read, SYS_readahead, SYS_readlinkat, SYS_readv, SYS_recvfrom,
    SYS_recvmmsg, SYS_recvmsg, SYS_removexattr, SYS_renameat2, SYS_restart_syscall, SYS_rseq,
    SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_sched_getaffinity, SYS_sched_yield,
    SYS_sendfile, SYS_sendmmsg, SYS_sendmsg, SYS_sendto, SYS_set_robust_list, SYS_setpriority,
    SYS_setsockopt, SYS_setxattr, SYS_shutdown, SYS_sigaltstack, SYS_socket, SYS_socketpair,
    SYS_splice, SYS_statfs, SYS_statx, SYS_symlinkat, SYS_sync_file_range, SYS_sysinfo, SYS_tgkill,
    SYS_timerfd_create, SYS_timerfd_settime, SYS_umask, SYS_uname, SYS_unlinkat, SYS_utimensat,
    SYS_write, SYS_writev,
};

use crate::calls::{Argument, Call, Group};
use Call::{Any, If, OnSelf};

const fn flag(bits: i32) -> u64 {
    #[expect(clippy::cast_sign_loss, reason = "flags are bits")]
    let bits = bits as u32 as u64;
    bits
}

const EXECUTE: u64 = flag(libc::PROT_EXEC);
const WRITE: u64 = flag(libc::PROT_WRITE);

/// Memory for data. None of it is executed, now or later, so code that an attacker writes into memory cannot be run.
pub(crate) const MEMORY: Group = &[
    Any(SYS_brk),
    Any(SYS_munmap),
    Any(SYS_mremap),
    Any(SYS_madvise),
    If(SYS_mmap, &[&[Argument::bits(2, EXECUTE, 0)]]),
    If(SYS_mprotect, &[&[Argument::bits(2, EXECUTE, 0)]]),
];

/// Libraries that are loaded while the process works (dlopen(3)): those of name services, which tell the names of accounts,
/// and those for adapters. Their code is mapped from a file and never written.
pub(crate) const LIBRARIES: Group = &[If(
    SYS_mmap,
    &[&[
        Argument::bits(2, WRITE | EXECUTE, EXECUTE),
        Argument::bits(3, flag(libc::MAP_ANONYMOUS), 0),
    ]],
)];

/// Threads that wait for each other, and end.
pub(crate) const THREADS: Group = &[
    Any(SYS_futex),
    Any(SYS_sched_yield),
    Any(SYS_gettid),
    Any(SYS_getpid),
    Any(SYS_sigaltstack),
    Any(SYS_rt_sigprocmask),
    Any(SYS_rt_sigreturn),
    Any(SYS_restart_syscall),
    Any(SYS_exit),
    Any(SYS_exit_group),
    // abort(3) of a process that cannot go on. No other process can be signalled.
    OnSelf(SYS_tgkill),
];

/// The flags of `clone` that make another thread of this process, in namespaces that are there.
const NEW_THREAD: &[&[Argument]] = &[&[Argument::bits(
    0,
    flag(libc::CLONE_THREAD) | NEW_NAMESPACES,
    flag(libc::CLONE_THREAD),
)]];

const NEW_NAMESPACES: u64 = flag(libc::CLONE_NEWNS)
    | flag(libc::CLONE_NEWCGROUP)
    | flag(libc::CLONE_NEWUTS)
    | flag(libc::CLONE_NEWIPC)
    | flag(libc::CLONE_NEWUSER)
    | flag(libc::CLONE_NEWPID)
    | flag(libc::CLONE_NEWNET);

/// Threads that are started while the process works, what the C library does in a new one, and how long it sleeps.
pub(crate) const NEW_THREADS: Group = &[
    If(SYS_clone, NEW_THREAD),
    Any(SYS_set_robust_list),
    Any(SYS_rseq),
    Any(SYS_membarrier),
    Any(SYS_sched_getaffinity),
    Any(SYS_getcpu),
    Any(SYS_rt_sigaction),
    Any(SYS_nanosleep),
    Any(SYS_clock_nanosleep),
    // Names of threads and, in newer C libraries, of memory.
    If(
        SYS_prctl,
        &[
            &[Argument::is(0, flag(libc::PR_SET_NAME))],
            &[Argument::is(0, flag(libc::PR_GET_NAME))],
            &[Argument::is(0, flag(libc::PR_SET_VMA))],
        ],
    ),
    // Threads that make keys in advance are nice.
    If(
        SYS_getpriority,
        &[&[Argument::is(0, 0), Argument::is(1, 0)]],
    ),
    If(
        SYS_setpriority,
        &[&[Argument::is(0, 0), Argument::is(1, 0)]],
    ),
];

/// What a process asks about itself and the machine. Limits can be read, and not set.
pub(crate) const FACTS: Group = &[
    Any(SYS_clock_gettime),
    Any(SYS_clock_getres),
    Any(SYS_gettimeofday),
    #[cfg(target_arch = "x86_64")]
    Any(libc::SYS_time),
    Any(SYS_getrandom),
    Any(SYS_uname),
    Any(SYS_sysinfo),
    Any(SYS_getrusage),
    Any(SYS_getuid),
    Any(SYS_geteuid),
    Any(SYS_getgid),
    Any(SYS_getegid),
    Any(SYS_getresuid),
    Any(SYS_getresgid),
    Any(SYS_getgroups),
    Any(SYS_getppid),
    Any(SYS_capget),
    Any(SYS_getcwd),
    If(SYS_prlimit64, &[&[Argument::null(2)]]),
    #[cfg(not(target_arch = "riscv64"))]
    Any(libc::SYS_getrlimit),
];

/// Reading and writing descriptors that are open.
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

/// Copies of descriptors, whether they are closed by `execve`, whether calls block. `F_SETOWN`, `F_SETSIG` and `O_ASYNC` are left out:
/// with them the kernel sends any signal to any process of the account, which Landlock prevents only since Linux 6.12
/// (`LANDLOCK_SCOPE_SIGNAL`). So are leases (`F_SETLEASE`), which keep others from opening a file, and locks of records.
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

const fn command(number: i32) -> Argument {
    Argument::is(1, flag(number))
}

/// How many bytes wait, whether calls block, whether it is a terminal. `TIOCSTI`, which types for the user of a
/// terminal, is one of those that are left out.
const DESCRIPTOR_CONTROLS: &[&[Argument]] = &[
    &[Argument::is(1, libc::FIONBIO)],
    &[Argument::is(1, libc::FIOCLEX)],
    &[Argument::is(1, libc::FIONREAD)],
    &[Argument::is(1, libc::TIOCOUTQ)],
    &[Argument::is(1, libc::TCGETS)],
];

/// Waiting for descriptors, clocks and other threads (tokio, and libraries for the account database).
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

/// Opening and reading files.
pub(crate) const READING: Group = &[
    Any(SYS_openat),
    Any(SYS_openat2),
    Any(SYS_fstat),
    Any(SYS_newfstatat),
    Any(SYS_statx),
    Any(SYS_statfs),
    Any(SYS_fstatfs),
    Any(SYS_faccessat),
    Any(SYS_faccessat2),
    Any(SYS_readlinkat),
    Any(SYS_getdents64),
    Any(SYS_lseek),
    Any(SYS_pread64),
    Any(SYS_preadv),
    Any(SYS_preadv2),
    Any(SYS_fadvise64),
    Any(SYS_flock),
    #[cfg(target_arch = "x86_64")]
    Any(libc::SYS_open),
    #[cfg(target_arch = "x86_64")]
    Any(libc::SYS_stat),
    #[cfg(target_arch = "x86_64")]
    Any(libc::SYS_lstat),
    #[cfg(target_arch = "x86_64")]
    Any(libc::SYS_access),
    #[cfg(target_arch = "x86_64")]
    Any(libc::SYS_readlink),
];

/// Messages to any address. Data channels send with them, so that nothing is looked at but the number.
pub(crate) const SENDING: Group = &[Any(SYS_sendto), Any(SYS_sendmsg), Any(SYS_sendmmsg)];

/// Messages to the other end of a socket that is connected already. `MSG_FASTOPEN` connects, even a socket that
/// listened until then, and Landlock does not see it.
pub(crate) const SENDING_TO_PEERS: Group = &[
    If(
        SYS_sendto,
        &[&[Argument::null(4), Argument::bits(3, FAST_OPEN, 0)]],
    ),
    If(SYS_sendmsg, &[&[Argument::bits(2, FAST_OPEN, 0)]]),
];

const FAST_OPEN: u64 = flag(libc::MSG_FASTOPEN);

/// Two connected ends in this process, as tokio has for signals. Datagrams could go to any address.
const PAIRS: &[&[Argument]] = &[
    &[
        Argument::is(0, flag(libc::AF_UNIX)),
        kind(libc::SOCK_STREAM),
    ],
    &[
        Argument::is(0, flag(libc::AF_UNIX)),
        kind(libc::SOCK_SEQPACKET),
    ],
];

const fn kind(kind: i32) -> Argument {
    const KINDS: u64 = 0xf;
    Argument::bits(1, KINDS, flag(kind))
}

/// Receiving over sockets that are there, and what is known of them.
pub(crate) const MESSAGES: Group = &[
    Any(SYS_recvfrom),
    Any(SYS_recvmsg),
    Any(SYS_recvmmsg),
    Any(SYS_shutdown),
    Any(SYS_getsockname),
    Any(SYS_getpeername),
    Any(SYS_getsockopt),
    If(SYS_setsockopt, SOCKET_OPTIONS),
    If(SYS_socketpair, PAIRS),
];

/// Options of sockets, of IP, TCP, TLS and netlink. Programs in BPF, which the kernel would run for every packet, are left out.
const SOCKET_OPTIONS: &[&[Argument]] = &[
    &[
        level(libc::SOL_SOCKET),
        Argument::is_not(2, flag(libc::SO_ATTACH_FILTER)),
        Argument::is_not(2, flag(libc::SO_ATTACH_BPF)),
        Argument::is_not(2, flag(libc::SO_ATTACH_REUSEPORT_CBPF)),
        Argument::is_not(2, flag(libc::SO_ATTACH_REUSEPORT_EBPF)),
    ],
    &[level(libc::SOL_IP)],
    &[level(libc::SOL_IPV6)],
    &[level(libc::SOL_TCP)],
    &[level(libc::SOL_TLS)],
    &[level(libc::SOL_NETLINK)],
];

const fn level(number: i32) -> Argument {
    Argument::is(1, flag(number))
}

/// Connections: TCP, and UDP for libraries that ask a name service; UNIX sockets of daemons that know accounts
/// (nscd, sssd, systemd-userdbd); the addresses of this machine.
pub(crate) const CONNECTIONS: Group = &[
    If(
        SYS_socket,
        &[
            &[internet(libc::AF_INET), protocol(0)],
            &[internet(libc::AF_INET), protocol(libc::IPPROTO_TCP)],
            &[internet(libc::AF_INET), protocol(libc::IPPROTO_UDP)],
            &[internet(libc::AF_INET6), protocol(0)],
            &[internet(libc::AF_INET6), protocol(libc::IPPROTO_TCP)],
            &[internet(libc::AF_INET6), protocol(libc::IPPROTO_UDP)],
            &[Argument::is(0, flag(libc::AF_UNIX))],
            &[
                Argument::is(0, flag(libc::AF_NETLINK)),
                protocol(libc::NETLINK_ROUTE),
            ],
        ],
    ),
    Any(SYS_bind),
    Any(SYS_listen),
    Any(SYS_accept),
    Any(SYS_accept4),
    Any(SYS_connect),
];

const fn internet(family: i32) -> Argument {
    Argument::is(0, flag(family))
}

const fn protocol(number: i32) -> Argument {
    Argument::is(2, flag(number))
}

/// Data between files and sockets, in the kernel and through memory.
pub(crate) const MOVING: Group = &[
    Any(SYS_sendfile),
    Any(SYS_splice),
    Any(SYS_copy_file_range),
    Any(SYS_pwrite64),
    Any(SYS_pwritev),
    Any(SYS_pwritev2),
    Any(SYS_readahead),
    Any(SYS_mincore),
    Any(SYS_fallocate),
    Any(SYS_ftruncate),
    Any(SYS_fsync),
    Any(SYS_fdatasync),
    Any(SYS_sync_file_range),
    // How much a pipe holds.
    If(
        SYS_fcntl,
        &[
            &[command(libc::F_SETPIPE_SZ)],
            &[command(libc::F_GETPIPE_SZ)],
        ],
    ),
];

/// Changes to names and what belongs to them. Devices, sockets and pipes cannot be made.
pub(crate) const CHANGING: Group = &[
    Any(SYS_unlinkat),
    Any(SYS_mkdirat),
    #[cfg(not(target_arch = "riscv64"))]
    Any(libc::SYS_renameat),
    Any(SYS_renameat2),
    Any(SYS_symlinkat),
    Any(SYS_linkat),
    Any(SYS_fchmod),
    Any(SYS_fchmodat),
    Any(SYS_fchmodat2),
    Any(SYS_fchown),
    Any(SYS_fchownat),
    Any(SYS_utimensat),
    Any(SYS_umask),
    #[cfg(target_arch = "x86_64")]
    Any(libc::SYS_unlink),
    #[cfg(target_arch = "x86_64")]
    Any(libc::SYS_rmdir),
    #[cfg(target_arch = "x86_64")]
    Any(libc::SYS_mkdir),
    #[cfg(target_arch = "x86_64")]
    Any(libc::SYS_rename),
    #[cfg(target_arch = "x86_64")]
    Any(libc::SYS_symlink),
    #[cfg(target_arch = "x86_64")]
    Any(libc::SYS_link),
    #[cfg(target_arch = "x86_64")]
    Any(libc::SYS_chmod),
];

/// Checksums that are kept with their files.
pub(crate) const ATTRIBUTES: Group = &[
    Any(SYS_getxattr),
    Any(SYS_fgetxattr),
    Any(SYS_setxattr),
    Any(SYS_fsetxattr),
    Any(SYS_removexattr),
    Any(SYS_fremovexattr),
];
