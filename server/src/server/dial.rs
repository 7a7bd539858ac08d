//! Connections to data nodes: for sessions, and for `check`.

use std::io::{self, Cursor};
use std::net::SocketAddr;
use std::time::Duration;

use gridhaul_dial::{alternating, race};
use gridhaul_nodes::DialError;
use gridhaul_security::tls::{HostSettings, PeerFault, PeerIdentity};
use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncReadExt as _, Chain, Join, ReadHalf, WriteHalf, join, split};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;

use super::accept::keep_alive;
use crate::data_nodes::Target;
use crate::mutual_tls;

/// The time for a connection, again for its handshake, and for the first bytes of the node.
const TIME: Duration = Duration::from_secs(5);

/// A connection to a node, whose ends have authenticated each other.
pub(crate) type NodeStream = Join<Chain<Cursor<Vec<u8>>, ReadHalf<Tls>>, WriteHalf<Tls>>;

type Tls = TlsStream<TcpStream>;

/// A connection, and the node at its other end.
pub(crate) struct Connected {
    pub(crate) stream: NodeStream,
    pub(crate) node: PeerIdentity,
    /// The chain of the node, leaf first.
    pub(crate) presented: Vec<CertificateDer<'static>>,
}

/// Connects to a node. It must have a certificate for the host of `target`, and accept that of this host.
///
/// # Errors
///
/// The reason in words, with the remedy, when the node cannot be reached or one end refuses the other.
pub(crate) async fn dial_node(
    target: &Target,
    settings: &HostSettings,
) -> Result<Connected, DialError> {
    let addresses = target.addresses.as_ref().map_err(|error| {
        DialError(format!(
            "its name cannot be looked up ({error}): correct it in nodes, in DNS or in /etc/hosts"
        ))
    })?;
    let stream = connect(addresses).await?;
    let connected =
        mutual_tls::connect(stream, &target.name, target.host.clone(), settings, TIME).await;
    let (stream, node) = connected.map_err(|error| DialError(error.to_string()))?;
    let presented = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let presented = presented.to_vec();
    let stream = accepted(stream, settings).await?;
    Ok(Connected {
        stream,
        node,
        presented,
    })
}

/// A connection to the address that answers first: one that does not answer must not take the time of the others, each time.
async fn connect(addresses: &[SocketAddr]) -> Result<TcpStream, DialError> {
    let addresses = alternating(addresses.iter().copied());
    match timeout(TIME, race(&addresses)).await {
        Ok(Ok(stream)) => {
            // A peer that is gone already shows with the handshake.
            let _ = keep_alive(&stream);
            Ok(stream)
        }
        Ok(Err(error)) => Err(DialError(format!("{}: {error}", listed(&addresses)))),
        Err(_) => Err(DialError(format!(
            "{}: no answer within {} s",
            listed(&addresses),
            TIME.as_secs()
        ))),
    }
}

fn listed(addresses: &[SocketAddr]) -> String {
    let addresses = addresses.iter().map(SocketAddr::to_string);
    addresses.collect::<Vec<_>>().join(", ")
}

/// Waits for the node to accept the certificate of this host: with TLS 1.3 the handshake is complete here before the node has seen it.
/// A node that has accepted it begins with its settings (RFC 9113 3.4).
async fn accepted(mut stream: Tls, settings: &HostSettings) -> Result<NodeStream, DialError> {
    let mut first = vec![0; 1024];
    let read = match timeout(TIME, stream.read(&mut first)).await {
        Ok(Ok(0)) => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(read) => read,
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    };
    let own = settings.certificate.certificate().subject();
    let length = read.map_err(|error| match PeerFault::in_error(&error, own) {
        Some(fault) => DialError(format!("it {fault}")),
        None => DialError(format!(
            "it does not serve this connection ({error}): its log may have the reason"
        )),
    })?;
    first.truncate(length);
    let (reader, writer) = split(stream);
    Ok(join(Cursor::new(first).chain(reader), writer))
}
