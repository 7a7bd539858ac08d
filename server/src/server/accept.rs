//! Accepts control connections, and refuses those above the limits.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use gridhaul_protocol::reply::Reply;
use rustix::io::Errno;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream};
use tracing::warn;

use crate::session::Session;
use crate::shared::Shared;
use crate::shutdown::{Phase, PhaseWatch};
use crate::telemetry::{Event, tell};

/// Accepts until the server is shut down.
pub(super) async fn accept(listener: TcpListener, shared: Arc<Shared>, mut phase: PhaseWatch) {
    let listeners = [listener];
    while let Some(stream) = next(&listeners, &shared, &mut phase).await {
        welcome(stream, &shared, &phase);
    }
}

/// Accepts the first connection at one of these listeners, and closes them.
pub(super) async fn accept_first(
    listeners: Vec<TcpListener>,
    shared: Arc<Shared>,
    mut phase: PhaseWatch,
) {
    let first = next(&listeners, &shared, &mut phase).await;
    drop(listeners);
    if let Some(stream) = first {
        welcome(stream, &shared, &phase);
    }
}

/// The next connection; `None` when the server is shut down.
async fn next(
    listeners: &[TcpListener],
    shared: &Shared,
    phase: &mut PhaseWatch,
) -> Option<TcpStream> {
    /// Without free descriptors accept(2) fails at once, and a loop without a pause would use a whole processor.
    const PAUSE: Duration = Duration::from_millis(100);

    loop {
        let accepted = tokio::select! {
            accepted = poll_fn(|context| poll(listeners, context)) => accepted,
            () = phase.reached(Phase::Replaced) => return None,
        };
        match accepted {
            Ok(stream) => return Some(stream),
            Err(error) if is_shortage(&error) => {
                shared.connections.give_one_back();
                shared
                    .journal
                    .publish(&Event::NotAccepted { error: &error });
                tokio::time::sleep(PAUSE).await;
            }
            // The connection ended before it was accepted (accept(2)). Others may be waiting.
            Err(error) => shared
                .journal
                .publish(&Event::NotAccepted { error: &error }),
        }
    }
}

fn poll(listeners: &[TcpListener], context: &mut Context<'_>) -> Poll<io::Result<TcpStream>> {
    for listener in listeners {
        if let Poll::Ready(accepted) = listener.poll_accept(context) {
            return Poll::Ready(accepted.map(|(stream, _)| stream));
        }
    }
    Poll::Pending
}

/// Whether the process or the machine is out of descriptors or memory for sockets.
pub(crate) fn is_shortage(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM]
        .iter()
        .any(|shortage| errno == Some(*shortage))
}

/// Starts a session, or refuses the connection.
pub(super) fn welcome(stream: TcpStream, shared: &Arc<Shared>, phase: &PhaseWatch) {
    // A socket without addresses has lost its client already.
    let (Ok(peer), Ok(local)) = (stream.peer_addr(), stream.local_addr()) else {
        return;
    };
    // A socket that accepts both families (of xinetd) has IPv4 addresses as parts of IPv6.
    let address = peer.ip().to_canonical();
    match shared.connections.admit(address, Instant::now()) {
        Ok(place) => {
            if let Err(error) = prepare(&stream)
                && let Some(untold) = tell("socket options")
            {
                warn!(%peer, %error, untold, "a control connection could not be prepared");
            }
            let session = Session::new(Arc::clone(shared), phase.clone(), peer, local).at(place);
            tokio::spawn(session.run(stream));
        }
        Err(refusal) => {
            let reason = refusal.to_string();
            shared.journal.publish(&Event::ConnectionRefused {
                peer,
                reason: &reason,
            });
            let reply = Reply::new(
                421,
                format!(
                    "Service busy: {reason}. Please try again later. Closing control connection."
                ),
            );
            // A client whose receive buffer is full already gets no reply.
            let _ = stream.try_write(&reply.encode());
        }
    }
}

/// Sets the options of a control connection: also in-band delivery of the urgent byte that telnet clients send with ABOR
/// (RFC 959 4.1.3).
fn prepare(stream: &TcpStream) -> io::Result<()> {
    keep_alive(stream)?;
    SockRef::from(stream).set_out_of_band_inline(true)
}

/// No delay for replies, and keepalives that detect lost clients.
pub(crate) fn keep_alive(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    SockRef::from(stream).set_tcp_keepalive(
        &TcpKeepalive::new()
            .with_time(Duration::from_secs(60))
            .with_interval(Duration::from_secs(30))
            .with_retries(5),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortage_is_waited_for_and_a_lost_connection_is_not() {
        let shortage = |errno: Errno| is_shortage(&errno.into());
        assert!(shortage(Errno::MFILE) && shortage(Errno::NFILE));
        assert!(!shortage(Errno::CONNABORTED) && !shortage(Errno::PROTO));
    }
}
