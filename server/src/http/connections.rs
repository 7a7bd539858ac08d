//! Accepts connections, within limits, and passes their requests to a site.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tracing::warn;

use crate::telemetry::tell;

use super::answers::{Answer, Request};
use super::patience::Patient;

/// The time in which a client must send the head of a request, also of the next one on the same connection, and complete a
/// handshake.
const HEAD_TIME: Duration = Duration::from_secs(15);

/// The pause while the process has no free descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// The resources of the clients of one listener.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Connections at a time.
    pub(crate) connections: usize,
    /// Bytes of a request without its body; at least 8192.
    pub(crate) head_bytes: usize,
    /// Whether a connection may have several requests.
    pub(crate) keep_alive: bool,
}

/// Where clients come from.
#[derive(Debug)]
pub(crate) enum Listener {
    Tcp(TcpListener),
    Tls(TcpListener, Arc<ServerConfig>),
    Unix(UnixListener),
}

/// The other end of a connection.
#[derive(Debug, Clone)]
pub(crate) enum Peer {
    Tcp {
        peer: SocketAddr,
        local: SocketAddr,
        /// The certificate that the client has proved, as DER.
        certificate: Option<Vec<u8>>,
        is_tls: bool,
    },
    /// A process of this account.
    Unix { uid: u32 },
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { peer, .. } => peer.fmt(f),
            Self::Unix { uid } => write!(f, "account {uid}"),
        }
    }
}

/// Whether the site knows who is at the other end. Strangers make room when there are too many connections.
#[derive(Debug, Clone, Default)]
pub(crate) struct Standing(Arc<AtomicBool>);

impl Standing {
    /// From now on the connection is not closed for another one.
    pub(crate) fn trust(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_trusted(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Answers requests.
pub(crate) trait Site: Send + Sync + 'static {
    /// What is known about the client of a connection.
    type Visitor: Send + Sync;

    /// Looks at the client of a new connection.
    fn welcome(&self, peer: Peer, standing: Standing) -> Self::Visitor;

    /// Answers a request.
    fn answer(
        &self,
        visitor: &Self::Visitor,
        request: Request,
    ) -> impl Future<Output = Answer> + Send;
}

/// Serves a site. The future never ends.
pub(crate) async fn serve<S: Site>(listener: Listener, site: Arc<S>, limits: Limits) {
    let mut room = Room::default();
    loop {
        let begun = match accept(&listener).await {
            // The client has disconnected already.
            Ok(None) => continue,
            Ok(Some(Accepted::Tcp(stream, peer, local, tls))) => {
                let site = Arc::clone(&site);
                room.begin(limits.connections, move |standing| async move {
                    let (peer, is_tls) = ((peer, local), tls.is_some());
                    match tls {
                        Some(tls) => {
                            let handshake = tokio::time::timeout(HEAD_TIME, tls.accept(stream));
                            // A client that cannot speak TLS gets no response.
                            let Ok(Ok(stream)) = handshake.await else {
                                return;
                            };
                            let certificates = stream.get_ref().1.peer_certificates();
                            let first = certificates.and_then(|all| all.first());
                            let certificate = first.map(|first| first.to_vec());
                            let peer = tcp(peer, certificate, is_tls);
                            converse(stream, site, peer, standing, limits).await;
                        }
                        None => {
                            let peer = tcp(peer, None, is_tls);
                            converse(stream, site, peer, standing, limits).await;
                        }
                    }
                })
            }
            Ok(Some(Accepted::Unix(stream, uid))) => {
                let site = Arc::clone(&site);
                room.begin(limits.connections, move |standing| {
                    converse(stream, site, Peer::Unix { uid }, standing, limits)
                })
            }
            Err(error) => {
                if let Some(untold) = tell("accept for administration or metrics") {
                    warn!(%error, untold, "a connection for administration or metrics could not be accepted");
                }
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        if !begun {
            // All clients are known. The next one gets a place when one of them leaves.
            tokio::time::sleep(PAUSE).await;
        }
    }
}

enum Accepted {
    Tcp(
        tokio::net::TcpStream,
        SocketAddr,
        SocketAddr,
        Option<TlsAcceptor>,
    ),
    Unix(tokio::net::UnixStream, u32),
}

/// The next connection; `None` if it is gone.
async fn accept(listener: &Listener) -> io::Result<Option<Accepted>> {
    let (listener, tls) = match listener {
        Listener::Tcp(listener) => (listener, None),
        Listener::Tls(listener, tls) => (listener, Some(TlsAcceptor::from(Arc::clone(tls)))),
        Listener::Unix(listener) => {
            let (stream, _) = listener.accept().await?;
            let uid = stream.peer_cred().map(|peer| peer.uid());
            return Ok(uid.ok().map(|uid| Accepted::Unix(stream, uid)));
        }
    };
    let (stream, peer) = listener.accept().await?;
    let local = stream.set_nodelay(true).and_then(|()| stream.local_addr());
    let local = local.ok();
    Ok(local.map(|local| Accepted::Tcp(stream, peer, local, tls)))
}

fn tcp(
    (peer, local): (SocketAddr, SocketAddr),
    certificate: Option<Vec<u8>>,
    is_tls: bool,
) -> Peer {
    Peer::Tcp {
        peer,
        local,
        certificate,
        is_tls,
    }
}

/// The open connections, oldest first.
#[derive(Debug, Default)]
struct Room(VecDeque<(JoinHandle<()>, Standing)>);

impl Room {
    /// Begins a connection. If there are too many, the oldest one of a stranger ends. If all are of known clients, the new
    /// one ends; the result is then `false`.
    fn begin<F: Future<Output = ()> + Send + 'static>(
        &mut self,
        most: usize,
        connection: impl FnOnce(Standing) -> F,
    ) -> bool {
        self.0.retain(|(task, _)| !task.is_finished());
        if self.0.len() >= most {
            let stranger = self.0.iter().position(|(_, known)| !known.is_trusted());
            let Some((task, _)) = stranger.and_then(|place| self.0.remove(place)) else {
                return false;
            };
            task.abort();
        }
        let standing = Standing::default();
        let task = tokio::spawn(connection(standing.clone()));
        self.0.push_back((task, standing));
        true
    }
}

/// Answers the requests of one connection. Errors of the client end it.
async fn converse<S: Site>(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send,
    site: Arc<S>,
    peer: Peer,
    standing: Standing,
    limits: Limits,
) {
    let visitor = Arc::new(site.welcome(peer, standing));
    let service = service_fn(|request| {
        let (site, visitor) = (Arc::clone(&site), Arc::clone(&visitor));
        async move { Ok::<_, std::convert::Infallible>(site.answer(&visitor, request).await) }
    });
    // A client that has disconnected, is too slow or speaks no HTTP is no concern of the administrator.
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .keep_alive(limits.keep_alive)
        .max_buf_size(limits.head_bytes)
        .title_case_headers(true)
        .serve_connection(TokioIo::new(Patient::new(stream)), service)
        .await;
}
