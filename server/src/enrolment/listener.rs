//! The connections of nodes that are invited. Any host may connect, so all of it is bounded.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use gridhaul_security::certificate::Certificate;
use gridhaul_security::host_name::HostName;
use rustls::ServerConfig;
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::invitations::{Invitations, Used};
use super::messages::{Answer, PROTOCOL, Request, decoded, receive, send};
use crate::admission::{Connections, Misconduct, Place, Room};
use crate::config::MaxStartups;
use crate::server::is_shortage;
use crate::telemetry::tell;

/// The time for a handshake and a request, and again for the answer.
const TIME: Duration = Duration::from_secs(10);

/// Connections at a time. Each is short.
const CONNECTIONS: usize = 256;

/// Connections of one network.
const PER_NETWORK: usize = 64;

/// Handshakes at a time: above the first number, new ones end waiting ones; there are never more than the last.
const HANDSHAKES: MaxStartups = MaxStartups {
    start: 32,
    rate: 30,
    full: 64,
};

/// What has become of a token.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) host: HostName,
    pub(super) peer: SocketAddr,
    /// The reason why the node is not enrolled, or may not be.
    pub(super) result: Result<(), String>,
}

/// Answers nodes at all listeners.
pub(super) struct Listener {
    invitations: Arc<Invitations>,
    tls: TlsAcceptor,
    connections: Arc<Connections>,
    /// One message for each token that was used.
    outcomes: mpsc::UnboundedSender<Outcome>,
}

type Stream = TlsStream<TcpStream>;

impl Listener {
    pub(super) fn new(
        invitations: Arc<Invitations>,
        tls: Arc<ServerConfig>,
        outcomes: mpsc::UnboundedSender<Outcome>,
    ) -> Arc<Self> {
        Arc::new(Self {
            invitations,
            tls: TlsAcceptor::from(tls),
            connections: Connections::new(Room {
                connections: CONNECTIONS,
                per_network: PER_NETWORK,
                startups: HANDSHAKES,
                exempt: Vec::new(),
            }),
            outcomes,
        })
    }

    /// Accepts connections without end.
    pub(super) async fn accept(self: Arc<Self>, listener: TcpListener) {
        /// The pause while the process has no free descriptors.
        const PAUSE: Duration = Duration::from_millis(100);

        loop {
            match listener.accept().await {
                Ok((stream, peer)) => match self.connections.admit(peer.ip(), Instant::now()) {
                    Ok(place) => {
                        tokio::spawn(Arc::clone(&self).serve(stream, peer, place));
                    }
                    Err(refusal) => warn("room", &format!("{peer} is refused: {refusal}")),
                },
                Err(error) => {
                    warn(
                        "accept",
                        &format!("a connection could not be accepted: {error}"),
                    );
                    if is_shortage(&error) {
                        self.connections.give_one_back();
                        tokio::time::sleep(PAUSE).await;
                    }
                }
            }
        }
    }

    async fn serve(self: Arc<Self>, stream: TcpStream, peer: SocketAddr, mut place: Place) {
        let displaced = place.displaced();
        let asked = async {
            match timeout(TIME, self.ask(stream, peer, &place)).await {
                Ok(asked) => asked,
                Err(_) => {
                    place.penalize(Misconduct::Timeout, Instant::now());
                    None
                }
            }
        };
        let asked = tokio::select! {
            asked = asked => asked,
            () = displaced => return,
        };
        // From here on the token is used, and its node gets an answer even if another connection has taken the place.
        let Some((stream, used)) = asked else {
            return;
        };
        let _ = place.logged_in(true, Instant::now());
        let answered = timeout(TIME, answer(stream, used.issued)).await;
        let result = answered.unwrap_or_else(|_| Err(UNCONFIRMED.to_owned()));
        let host = used.host;
        let _ = self.outcomes.send(Outcome { host, peer, result });
    }

    /// The token of a node. `None` after a refusal.
    async fn ask(
        &self,
        stream: TcpStream,
        peer: SocketAddr,
        place: &Place,
    ) -> Option<(Stream, Used)> {
        let asked = async {
            let mut stream = self.tls.accept(stream).await?;
            if stream.get_ref().1.alpn_protocol() != Some(PROTOCOL) {
                return Err(io::Error::other("it speaks another protocol"));
            }
            let message = receive(&mut stream).await?;
            let Request { secret, request } = decoded(&message)?;
            let used = self.invitations.redeem(secret, request, SystemTime::now());
            Ok((stream, used))
        };
        match asked.await {
            Ok((stream, Some(used))) => Some((stream, used)),
            Ok((mut stream, None)) => {
                warn(
                    "token",
                    &format!("{peer} has sent a wrong token, or one that was used"),
                );
                place.penalize(Misconduct::Refused, Instant::now());
                let refused = "the token is wrong, was used before, or is of an earlier invitation: invite the node again";
                let _ = send(&mut stream, &Answer::Refused(refused.to_owned())).await;
                // Until the node has read it.
                let _ = stream.read_u8().await;
                None
            }
            Err(error) => {
                warn(
                    "handshake",
                    &format!("{peer}: no node that enrols: {error}"),
                );
                place.penalize(Misconduct::Garbage, Instant::now());
                None
            }
        }
    }
}

const UNCONFIRMED: &str = "the certificate was issued, but the node has not said that it has written it; see its output, and \
                           invite it again if it is not enrolled";

/// Sends the certificate, and waits until the node has written it.
async fn answer(
    mut stream: Stream,
    issued: Result<Vec<Certificate>, gridhaul_security::node_authority::AuthorityError>,
) -> Result<(), String> {
    let (answer, refused) = match issued {
        Ok(chain) => {
            let chain = chain.iter().map(|one| one.der().to_vec()).collect();
            (Answer::Issued(chain), None)
        }
        Err(error) => {
            let reason = format!("{error}; the token is used: invite the node again");
            (Answer::Refused(reason.clone()), Some(reason))
        }
    };
    let sent = send(&mut stream, &answer).await;
    // The node confirms with one byte; without a certificate it closes the connection.
    let confirmed = stream.read_u8().await;
    match (refused, sent, confirmed) {
        (Some(reason), ..) => Err(reason),
        (None, Ok(()), Ok(_)) => Ok(()),
        (None, ..) => Err(UNCONFIRMED.to_owned()),
    }
}

/// Standard error, with at most one line of each kind in half a minute.
fn warn(kind: &'static str, text: &str) {
    if let Some(untold) = tell(kind) {
        let more = match untold {
            0 => String::new(),
            untold => format!(" (and {untold} times before without a line)"),
        };
        eprintln!("gridhaul-server: {text}{more}");
    }
}
