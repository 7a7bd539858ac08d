//! Control connections to hosts with several addresses: the address that answers first is used (RFC 8305).

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// The time until the next address is tried beside those that have not answered (RFC 8305 8).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// The most addresses of a name that are tried.
const MAX_ADDRESSES: usize = 32;

/// The order in which the addresses of a name are tried: both families in turn, so that one that does not work costs little (RFC
/// 8305 4). The resolver's first one comes first. At most 32 are kept.
pub fn alternating(addresses: impl Iterator<Item = SocketAddr>) -> Vec<SocketAddr> {
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

/// Connects to the address that answers first. The next one is tried when one has failed, or has not answered for 250 ms (RFC
/// 8305 5). There is no time limit for all of them: drop the future.
///
/// # Errors
///
/// The last failure, when all addresses have failed; `AddrNotAvailable` if there are none.
pub async fn race(addresses: &[SocketAddr]) -> io::Result<TcpStream> {
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

#[cfg(test)]
mod tests {
    use socket2::{Domain, Socket, Type};
    use tokio::net::TcpListener;
    use tokio::time::timeout;

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
}
