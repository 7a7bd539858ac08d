//! Calls on sockets.

use libc::{
    SYS_accept, SYS_accept4, SYS_bind, SYS_connect, SYS_getpeername, SYS_getsockname,
    SYS_getsockopt, SYS_listen, SYS_recvfrom, SYS_recvmmsg, SYS_recvmsg, SYS_sendmmsg, SYS_sendmsg,
    SYS_sendto, SYS_setsockopt, SYS_shutdown, SYS_socket, SYS_socketpair,
};

use crate::calls::{Argument, Call, Group, flag};
use Call::{Any, If};

/// Sending to any address. Data channels send with these calls, so they are decided by number alone.
pub(crate) const SENDING: Group = &[Any(SYS_sendto), Any(SYS_sendmsg), Any(SYS_sendmmsg)];

/// Sending to the peer of a connected socket. `MSG_FASTOPEN` is refused: it connects, even a socket that was listening,
/// and Landlock does not check it.
pub(crate) const SENDING_TO_PEERS: Group = &[
    If(
        SYS_sendto,
        &[&[Argument::null(4), Argument::bits(3, FAST_OPEN, 0)]],
    ),
    If(SYS_sendmsg, &[&[Argument::bits(2, FAST_OPEN, 0)]]),
];

/// Sending on connections that exist, and to the kernel by netlink, whose address is given.
pub(crate) const SENDING_WITHOUT_CONNECTING: Group = &[
    If(SYS_sendto, &[&[Argument::bits(3, FAST_OPEN, 0)]]),
    If(SYS_sendmsg, &[&[Argument::bits(2, FAST_OPEN, 0)]]),
];

const FAST_OPEN: u64 = flag(libc::MSG_FASTOPEN);

/// Socket pairs in this process: tokio has one for signals. A datagram socket could send to any address, so that kind is
/// refused.
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

/// Receiving from existing sockets, their addresses and options.
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

/// Options of sockets, IP, TCP, TLS and netlink. BPF programs, which the kernel would run for every packet, cannot be
/// attached.
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

/// New sockets: TCP; UDP for resolver libraries; UNIX sockets to the daemons of the account database (nscd, sssd,
/// systemd-userdbd); netlink for the addresses of this machine.
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

/// New sockets that wait for TCP connections, and netlink for the addresses of this machine. None of the calls makes a connection.
pub(crate) const LISTENING: Group = &[
    If(
        SYS_socket,
        &[
            &[
                internet(libc::AF_INET),
                kind(libc::SOCK_STREAM),
                protocol(0),
            ],
            &[
                internet(libc::AF_INET),
                kind(libc::SOCK_STREAM),
                protocol(libc::IPPROTO_TCP),
            ],
            &[
                internet(libc::AF_INET6),
                kind(libc::SOCK_STREAM),
                protocol(0),
            ],
            &[
                internet(libc::AF_INET6),
                kind(libc::SOCK_STREAM),
                protocol(libc::IPPROTO_TCP),
            ],
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
];

const fn internet(family: i32) -> Argument {
    Argument::is(0, flag(family))
}

const fn protocol(number: i32) -> Argument {
    Argument::is(2, flag(number))
}
