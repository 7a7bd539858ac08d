//! Listening.

use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, OwnedFd};

use gridhaul_stack::{
    AcceptError, Channel, ChannelError, ListenError, Listener, Operation, SocketOptions,
};
use rustix::io::Errno;
use rustix::net::{SocketFlags, sockopt};

use crate::channel::TcpChannel;
use crate::settings::{PortRange, Settings};

/// A listening socket.
#[derive(Debug)]
pub struct TcpListener {
    socket: OwnedFd,
    advertised: SocketAddr,
}

/// Connections that the kernel completes before they are accepted: enough for 64 parallel channels that connect at once.
const BACKLOG: i32 = 256;

impl TcpListener {
    /// The port that it listens on.
    pub fn port(&self) -> u16 {
        self.advertised.port()
    }

    /// Listens on `local`, unless the options set another address.
    ///
    /// # Errors
    ///
    /// When the address is not local or no port is free.
    pub fn open(
        settings: &Settings,
        local: IpAddr,
        options: &SocketOptions,
    ) -> Result<Self, ListenError> {
        let local = local.to_canonical();
        let ip = settings.bind.unwrap_or(local);
        let (socket, port) = match settings.ports {
            None => open_anywhere(settings, ip, options)?,
            Some(range) => open_within(range, settings, ip, options)?,
        };
        let ip = if ip.is_unspecified() { local } else { ip };
        let advertised = address(settings.advertise.unwrap_or(ip), port, options);
        Ok(Self { socket, advertised })
    }

    /// Waits for the next connection.
    ///
    /// # Errors
    ///
    /// As those of [`Listener::accept`].
    pub fn accept_channel(&mut self, operation: &Operation<'_>) -> Result<TcpChannel, AcceptError> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        loop {
            operation.check()?;
            match rustix::net::acceptfrom_with(&self.socket, flags) {
                Ok((socket, peer)) => {
                    let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
                    // A connection without an address was closed before it was accepted.
                    if let Some(peer) = peer {
                        return Ok(TcpChannel::new(socket, canonical(peer)));
                    }
                }
                Err(Errno::AGAIN) => operation.wait_readable(self.socket.as_fd())?,
                Err(error) if is_of_a_connection(error) => {}
                Err(error) => return Err(listener_error(error).into()),
            }
        }
    }
}

/// A link-local address is one of an interface, and cannot be used without it.
fn address(ip: IpAddr, port: u16, options: &SocketOptions) -> SocketAddr {
    match ip {
        IpAddr::V6(ip) if ip.is_unicast_link_local() => {
            SocketAddrV6::new(ip, port, 0, options.interface).into()
        }
        _ => SocketAddr::new(ip, port),
    }
}

/// Listens on a port that the kernel chooses. The kernel does not choose ports with connections that are open or in TIME_WAIT
/// (a minute, tcp(7)), so one connection per file can exhaust them. A listener may nevertheless use these ports, so they are
/// tried one by one then.
fn open_anywhere(
    settings: &Settings,
    ip: IpAddr,
    options: &SocketOptions,
) -> Result<(OwnedFd, u16), ListenError> {
    match open_at(settings, address(ip, 0, options), options) {
        Err(error) if is_taken(&error) => match ephemeral_range() {
            Some(range) => open_within(range, settings, ip, options),
            None => Err(error),
        },
        outcome => outcome,
    }
}

/// The range that the kernel chooses ports from.
fn ephemeral_range() -> Option<PortRange> {
    parse_range(&fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").ok()?)
}

fn parse_range(text: &str) -> Option<PortRange> {
    let (first, last) = text.trim().split_once(char::is_whitespace)?;
    let [first, last] = [first, last.trim()].map(|port| port.parse().ok());
    let range = PortRange {
        first: first?,
        last: last?,
    };
    (0 < range.first && range.first <= range.last).then_some(range)
}

/// Listens on a free port of the range. The search starts at a random port, so that sessions do not compete for the same
/// ports, and a port is not reused at once.
fn open_within(
    range: PortRange,
    settings: &Settings,
    ip: IpAddr,
    options: &SocketOptions,
) -> Result<(OwnedFd, u16), ListenError> {
    let [low, high, ..] = RandomState::new().hash_one(()).to_le_bytes();
    // At most 65535 ports, since none is 0.
    let count = range.last - range.first + 1;
    let start = range.first + u16::from_le_bytes([low, high]) % count;
    for port in (start..=range.last).chain(range.first..start) {
        match open_at(settings, address(ip, port, options), options) {
            Err(error) if is_taken(&error) => {}
            outcome => return outcome,
        }
    }
    Err(ListenError::PortRangeExhausted {
        first: range.first,
        last: range.last,
    })
}

fn is_taken(error: &ListenError) -> bool {
    matches!(error, ListenError::Network { error, .. } if error.kind() == io::ErrorKind::AddrInUse)
}

fn open_at(
    settings: &Settings,
    address: SocketAddr,
    options: &SocketOptions,
) -> Result<(OwnedFd, u16), ListenError> {
    let open = || -> io::Result<(OwnedFd, u16)> {
        let socket = settings.socket(&address, options)?;
        let reuse = || sockopt::set_socket_reuseaddr(&socket, true);
        if address.port() != 0 {
            // Old connections of the port may still be closing. Two listeners still cannot use the same port: the second
            // fails.
            reuse()?;
        }
        if address.ip() == Ipv6Addr::UNSPECIFIED {
            // Listen on IPv4 addresses too, independent of net.ipv6.bindv6only.
            sockopt::set_ipv6_v6only(&socket, false)?;
        }
        rustix::net::bind(&socket, &address)?;
        if address.port() == 0 {
            // Connections inherit the option, so that a later listener can use the port while they close. Before bind(2) it
            // would restrict the kernel's search to half of the ports first (inet_csk_find_open_port of Linux).
            reuse()?;
        }
        rustix::net::listen(&socket, BACKLOG)?;
        let bound = SocketAddr::try_from(rustix::net::getsockname(&socket)?)?;
        Ok((socket, bound.port()))
    };
    open().map_err(|error| ListenError::Network { address, error })
}

impl Listener for TcpListener {
    fn address(&self) -> SocketAddr {
        self.advertised
    }

    fn accept(&mut self, operation: &Operation<'_>) -> Result<Box<dyn Channel>, AcceptError> {
        Ok(Box::new(self.accept_channel(operation)?))
    }
}

/// Turns an IPv4-mapped address into an IPv4 address.
pub(crate) fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => SocketAddr::new(ip.into(), address.port()),
        IpAddr::V6(_) => address,
    }
}

/// Whether the error belongs to one pending connection. Linux reports those through accept, and the next call may succeed
/// (accept(2), "Error handling").
fn is_of_a_connection(error: Errno) -> bool {
    matches!(
        error,
        Errno::INTR
            | Errno::CONNABORTED
            | Errno::NETDOWN
            | Errno::PROTO
            | Errno::NOPROTOOPT
            | Errno::HOSTDOWN
            | Errno::NONET
            | Errno::HOSTUNREACH
            | Errno::OPNOTSUPP
            | Errno::NETUNREACH
    )
}

fn listener_error(error: Errno) -> ChannelError {
    let reason = match error {
        Errno::MFILE => "this process has no file descriptor left (ulimit -n)",
        Errno::NFILE => "this machine has no file descriptor left (fs.file-max)",
        _ => return ChannelError::Network(error.into()),
    };
    ChannelError::Network(io::Error::other(format!(
        "cannot accept data connections: {reason}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ephemeral_range_is_read() {
        let range = parse_range("32768\t60999\n").unwrap();
        assert_eq!((range.first, range.last), (32768, 60999));
        for text in ["", "1", "a b", "0 7", "9 8", "1 65536"] {
            assert!(parse_range(text).is_none(), "{text}");
        }
        assert!(ephemeral_range().is_some());
    }
}
