//! Asks the kernel for one TCP socket (sock_diag(7)), which does not depend on the number of sockets as reading
//! `/proc/net/tcp` does.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr};

use rustix::io::Errno;
use socket2::{Domain, Protocol, Socket, Type};

/// `AF_NETLINK` and `NETLINK_SOCK_DIAG` in Linux.
const NETLINK: i32 = 16;
const NETLINK_SOCK_DIAG: i32 = 4;

/// `NLMSG_ERROR`, `SOCK_DIAG_BY_FAMILY`, and `NLM_F_REQUEST`.
const ERROR: u16 = 2;
const BY_FAMILY: u16 = 20;
const REQUEST: u16 = 1;

/// `AF_INET`, `AF_INET6`, `IPPROTO_TCP`.
const INET: u8 = 2;
const INET6: u8 = 10;
const TCP: u8 = 6;

/// `TCP_ESTABLISHED` and `TCP_LISTEN`.
const ESTABLISHED: u8 = 1;
const LISTEN: u8 = 10;

/// The bytes of `struct nlmsghdr`, `struct inet_diag_req_v2` and `struct inet_diag_msg`.
const HEADER: usize = 16;
const QUESTION: usize = 56;
const ANSWER: usize = 72;

/// A socket for questions. It works after the process has been confined.
#[derive(Debug)]
pub(super) struct KernelList(Socket);

impl KernelList {
    /// # Errors
    ///
    /// When the kernel has no such sockets.
    pub(super) fn open() -> io::Result<Self> {
        let protocol = Protocol::from(NETLINK_SOCK_DIAG);
        let socket = Socket::new(Domain::from(NETLINK), Type::DGRAM, Some(protocol))?;
        // The kernel has answered when the question is sent.
        socket.set_nonblocking(true)?;
        Ok(Self(socket))
    }

    /// The owner of the established socket at `peer` that is connected to `local`; `None` if there is none. Questions must
    /// not overlap.
    ///
    /// # Errors
    ///
    /// When the kernel does not answer, which is also the case if it lacks the module `tcp_diag`.
    pub(super) fn find(&self, peer: SocketAddr, local: SocketAddr) -> io::Result<Option<Owner>> {
        if let Some(found) = self.ask(peer, local)? {
            return Ok(found.owner_if_established());
        }
        // Without the module the answer is the same as without the socket. Our own end is there, in some state.
        match self.ask(local, peer)? {
            Some(_) => Ok(None),
            None => Err(Errno::NOENT.into()),
        }
    }

    fn ask(&self, from: SocketAddr, to: SocketAddr) -> io::Result<Option<Found>> {
        (&self.0).write_all(&question(from, to))?;
        let mut answer = [0; 1024];
        let length = (&self.0).read(&mut answer)?;
        parse(&answer[..length], from.port())
    }
}

/// Whose socket it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) uid: u32,
    pub(super) inode: u64,
}

/// A socket in any state.
#[derive(Debug, PartialEq, Eq)]
struct Found {
    state: u8,
    owner: Owner,
}

impl Found {
    /// A socket that no process holds has no inode.
    fn owner_if_established(self) -> Option<Owner> {
        let is_held = self.state == ESTABLISHED && self.owner.inode > 0;
        is_held.then_some(self.owner)
    }
}

fn question(from: SocketAddr, to: SocketAddr) -> Vec<u8> {
    let (from_ip, to_ip) = (from.ip().to_canonical(), to.ip().to_canonical());
    let length = u32::try_from(HEADER + QUESTION).unwrap_or(0);
    let mut message = Vec::with_capacity(HEADER + QUESTION);
    message.extend(length.to_ne_bytes());
    message.extend(BY_FAMILY.to_ne_bytes());
    message.extend(REQUEST.to_ne_bytes());
    // Sequence number and port: answers are not told apart, since questions do not overlap.
    message.extend([0; 8]);
    let family = if from_ip.is_ipv4() { INET } else { INET6 };
    message.extend([family, TCP, 0, 0]);
    // All states; the answer has the state.
    message.extend(u32::MAX.to_ne_bytes());
    message.extend(from.port().to_be_bytes());
    message.extend(to.port().to_be_bytes());
    for address in [from_ip, to_ip] {
        let mut octets = [0; 16];
        match address {
            IpAddr::V4(address) => octets[..4].copy_from_slice(&address.octets()),
            IpAddr::V6(address) => octets = address.octets(),
        }
        message.extend(octets);
    }
    // Any interface, and INET_DIAG_NOCOOKIE.
    message.extend([0; 4]);
    message.extend([0xff; 8]);
    message
}

fn parse(answer: &[u8], port: u16) -> io::Result<Option<Found>> {
    let short = || io::Error::from(io::ErrorKind::InvalidData);
    let number = |at: usize| -> io::Result<u32> {
        let bytes = answer.get(at..at + 4).ok_or_else(short)?;
        Ok(u32::from_ne_bytes(bytes.try_into().map_err(|_| short())?))
    };
    let kind = answer.get(4..6).ok_or_else(short)?;
    if kind == ERROR.to_ne_bytes() {
        let errno = number(HEADER)?.cast_signed().saturating_neg();
        return match Errno::from_raw_os_error(errno) {
            Errno::NOENT => Ok(None),
            errno => Err(errno.into()),
        };
    }
    if kind != BY_FAMILY.to_ne_bytes() || answer.len() < HEADER + ANSWER {
        return Err(short());
    }
    let (state, found) = (answer[HEADER + 1], &answer[HEADER + 4..HEADER + 6]);
    let (uid, inode) = (number(HEADER + 64)?, u64::from(number(HEADER + 68)?));
    let owner = Owner { uid, inode };
    // A listening socket answers for connections that are not there.
    let is_it = state != LISTEN && found == port.to_be_bytes();
    Ok(is_it.then_some(Found { state, owner }))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn the_kernel_names_the_owner_of_a_connection() {
        let ours = rustix::process::getuid().as_raw();
        let Ok(list) = KernelList::open() else {
            eprintln!("SKIPPED: the kernel has no sockets for sock_diag");
            return;
        };
        for (listening, host) in [
            ("127.0.0.1:0", "127.0.0.1"),
            ("[::1]:0", "::1"),
            ("[::]:0", "::ffff:127.0.0.1"),
        ] {
            let Ok(listener) = TcpListener::bind(listening) else {
                eprintln!("SKIPPED: there is no {listening} here");
                continue;
            };
            let port = listener.local_addr().expect("bound").port();
            let host: IpAddr = host.parse().expect("an address");
            let client = TcpStream::connect((host, port)).expect("connected");
            let (accepted, peer) = listener.accept().expect("accepted");
            let local = accepted.local_addr().expect("connected");
            if list.ask(local, peer).expect("an answer").is_none() {
                eprintln!("SKIPPED: the kernel has no tcp_diag");
                return;
            }
            let found = list.find(peer, local).expect("an answer");
            assert_eq!(found.expect("a socket").uid, ours, "{listening}");
            drop(client);
            assert_eq!(list.find(peer, local).expect("an answer"), None);
        }
        let none = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
        list.find(none(1), none(2))
            .expect_err("neither end is there");
    }

    #[test]
    fn answers_that_are_too_short_or_of_another_kind_are_refused() {
        let mut answer = question(
            "127.0.0.1:1".parse().expect("valid"),
            "127.0.0.1:2".parse().expect("valid"),
        );
        parse(&answer, 1).expect_err("too short");
        parse(&answer[..3], 1).expect_err("too short");
        answer[4..6].copy_from_slice(&ERROR.to_ne_bytes());
        answer[HEADER..HEADER + 4].copy_from_slice(&(-2_i32).to_ne_bytes());
        assert_eq!(parse(&answer, 1).expect("ENOENT"), None);
        answer[HEADER..HEADER + 4].copy_from_slice(&(-1_i32).to_ne_bytes());
        let error = parse(&answer, 1).expect_err("EPERM");
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    }
}
