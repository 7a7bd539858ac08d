//! The TCP connection of a control channel.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpStream, lookup_host};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout, timeout_at};

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

/// The time until the next address is tried beside those that have not answered (RFC 8305 8).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// The most addresses of a name that are tried.
const MAX_ADDRESSES: usize = 32;

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

/// RFC 8305 4: both families in turn, so that one that does not work costs little. The resolver's first one comes first.
fn alternating(addresses: impl Iterator<Item = SocketAddr>) -> Vec<SocketAddr> {
    let mut addresses = addresses.peekable();
    let first_is_ipv6 = addresses.peek().is_some_and(SocketAddr::is_ipv6);
    let (first, second): (Vec<_>, Vec<_>) =
        addresses.partition(|address| address.is_ipv6() == first_is_ipv6);
    let (mut first, mut second) = (first.into_iter(), second.into_iter());
    let pairs = std::iter::from_fn(|| {
        let pair = [first.next(), second.next()];
        pair.iter().any(Option::is_some).then_some(pair)
    });
    pairs.flatten().flatten().take(MAX_ADDRESSES).collect()
}

/// RFC 8305 5: the next address is tried when one has failed, or has not answered for a short time. The first connection
/// counts, and the others end.
async fn race(addresses: &[SocketAddr]) -> io::Result<TcpStream> {
    let mut waiting = addresses.iter().copied();
    let mut attempts = JoinSet::new();
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    loop {
        if let Some(address) = waiting.next() {
            attempts.spawn(TcpStream::connect(address));
        } else if attempts.is_empty() {
            return Err(last);
        }
        let has_more = waiting.len() > 0;
        tokio::select! {
            Some(ended) = attempts.join_next() => match ended.map_err(io::Error::other)? {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error,
            },
            () = sleep(ATTEMPT_DELAY), if has_more => {}
        }
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
    use socket2::{Domain, Socket, Type};
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn families_alternate_and_are_bounded() {
        let address = |text: &str| text.parse::<SocketAddr>().expect(text);
        let found = ["[::1]:1", "[::2]:1", "[::3]:1", "127.0.0.1:1"].map(address);
        let tried = alternating(found.into_iter());
        assert_eq!(
            tried,
            ["[::1]:1", "127.0.0.1:1", "[::2]:1", "[::3]:1"].map(address)
        );
        let many = (0..1000).map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        assert_eq!(alternating(many).len(), MAX_ADDRESSES);
    }

    #[tokio::test]
    async fn an_address_that_does_not_answer_does_not_hold_up_the_next() {
        // A full queue: the kernel drops further connections.
        let silent = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        silent.bind(&any.into()).expect("bound");
        silent.listen(0).expect("listening");
        let full = silent.local_addr().expect("bound").as_socket();
        let full = full.expect("an address");
        let _queued = TcpStream::connect(full).await.expect("the queue has room");
        let good = TcpListener::bind(any).await.expect("a listener");
        let good = good.local_addr().map(|address| (good, address));
        let (_listener, good) = good.expect("bound");
        let closed = {
            let closed = TcpListener::bind(any).await.expect("a listener");
            closed.local_addr().expect("bound")
        };
        let connected = race(&[full, closed, good]).await.expect("one answers");
        assert_eq!(connected.peer_addr().expect("connected"), good);
        let error = race(&[closed]).await.expect_err("refused");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        let given_up = timeout(Duration::from_millis(500), race(&[full])).await;
        assert!(given_up.is_err(), "it waits as long as it may");
    }

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
