//! The TCP connection of a control channel.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use gridhaul_dial::{alternating, race};
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::{Instant, timeout, timeout_at};

use super::error::ControlError;
use crate::location::Server;

/// Which addresses of a server are tried.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AddressFamily {
    /// All, in the order of the resolver (RFC 6724).
    #[default]
    Any,
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

/// An idle connection is probed after this time, ...
const IDLE: Duration = Duration::from_secs(60);

/// ... and then at this interval, ...
const PROBE_INTERVAL: Duration = Duration::from_secs(30);

/// ... so often. With [`USER_TIMEOUT`] the time decides, and not the number.
const PROBES: u32 = 5;

/// A connection whose peer acknowledges nothing for so long is lost: what the probes take in all.
const USER_TIMEOUT: Duration = Duration::from_secs(60 + 5 * 30);

impl AddressFamily {
    fn has(self, address: IpAddr) -> bool {
        match self {
            Self::Any => true,
            Self::Ipv4 => address.is_ipv4(),
            Self::Ipv6 => address.is_ipv6(),
        }
    }
}

/// Connects to the address of the server that answers first. Look-up and connection take at most `within`.
pub(super) async fn connect(
    server: &Server,
    family: AddressFamily,
    within: Duration,
) -> Result<TcpStream, ControlError> {
    let deadline = Instant::now() + within;
    let addresses = look_up(server, family, within).await?;
    let failed = |error| ControlError::Connect {
        server: server.to_string(),
        error,
    };
    let connected = timeout_at(deadline, race(&addresses)).await;
    let stream = connected
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
        .map_err(failed)?;
    prepare(&stream).map_err(ControlError::Connection)?;
    Ok(stream)
}

/// The addresses of the server, in the order in which they are tried; at least one.
pub(super) async fn look_up(
    server: &Server,
    family: AddressFamily,
    within: Duration,
) -> Result<Vec<SocketAddr>, ControlError> {
    let failed = |error| ControlError::LookUp {
        host: server.host.clone(),
        error,
    };
    let found = timeout(within, lookup_host((server.host.as_str(), server.port))).await;
    let found = found
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
        .map_err(failed)?;
    let addresses = alternating(found.filter(|address| family.has(address.ip())));
    match addresses.is_empty() {
        true => Err(failed(io::Error::other(
            "it has no address of the wanted family",
        ))),
        false => Ok(addresses),
    }
}

/// Commands are short and wait for replies. A server that has vanished is noticed also while no limit runs, as during transfers.
fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    let keepalive = TcpKeepalive::new()
        .with_time(IDLE)
        .with_interval(PROBE_INTERVAL)
        .with_retries(PROBES);
    socket.set_tcp_keepalive(&keepalive)?;
    socket.set_tcp_user_timeout(Some(USER_TIMEOUT))
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_vanished_server_is_noticed() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("bound");
        let address = listener.local_addr().expect("bound");
        let stream = TcpStream::connect(address).await.expect("it listens");
        prepare(&stream).expect("options of every Linux");
        let socket = SockRef::from(&stream);
        assert!(socket.keepalive().expect("an option"));
        let limit = socket.tcp_user_timeout().expect("an option");
        assert_eq!(limit, Some(USER_TIMEOUT));
    }
}
