//! Accepts connections, within limits, and passes their requests to a site.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio_rustls::TlsAcceptor;
use tracing::warn;

use crate::telemetry::tell;

use super::answers::{Answer, Request};
use super::patience::Patient;
use super::room::{Caller, Places, Room, Standing};

/// The time in which a client must send the head of a request, also of the next one on the same connection, and complete a
/// handshake.
const HEAD_TIME: Duration = Duration::from_secs(15);

/// The pause while the process has no free descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// The resources of the clients of one listener.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Connections at a time.
    pub(crate) places: Places,
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
        /// The certificate that the client has proved, and those above it that it sent, as DER; empty without one.
        certificates: Vec<Vec<u8>>,
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

/// Answers requests.
pub(crate) trait Site: Send + Sync + 'static {
    /// What is known about the client of a connection.
    type Visitor: Send + Sync;

    /// Who is at the other end of a new connection, before TLS and before its first request.
    fn identify(&self, peer: &Peer) -> impl Future<Output = Caller> + Send;

    /// Looks at the client of a connection that has a place.
    fn welcome(&self, peer: Peer, caller: Caller, standing: Standing) -> Self::Visitor;

    /// Answers a request.
    fn answer(
        &self,
        visitor: &Self::Visitor,
        request: Request,
    ) -> impl Future<Output = Answer> + Send;
}

/// Serves a site. The future never ends.
pub(crate) async fn serve<S: Site>(listener: Listener, site: Arc<S>, limits: Limits) {
    let mut room = Room::new(limits.places);
    loop {
        match accept(&listener).await {
            // The client has disconnected already.
            Ok(None) => {}
            Ok(Some(Accepted::Tcp(stream, peer, local, tls))) => {
                let seen = tcp((peer, local), Vec::new());
                let caller = site.identify(&seen).await;
                let site = Arc::clone(&site);
                room.begin(caller, move |standing| async move {
                    let Some(tls) = tls else {
                        return converse(stream, site, seen, (caller, standing), limits).await;
                    };
                    let handshake = tokio::time::timeout(HEAD_TIME, tls.accept(stream));
                    // A client that cannot speak TLS gets no response.
                    let Ok(Ok(stream)) = handshake.await else {
                        return;
                    };
                    let certificates = stream.get_ref().1.peer_certificates();
                    let certificates = certificates.unwrap_or_default().iter();
                    let certificates = certificates.map(|one| one.to_vec()).collect();
                    let seen = tcp((peer, local), certificates);
                    converse(stream, site, seen, (caller, standing), limits).await;
                });
            }
            Ok(Some(Accepted::Unix(stream, uid))) => {
                let seen = Peer::Unix { uid };
                let caller = site.identify(&seen).await;
                let site = Arc::clone(&site);
                room.begin(caller, move |standing| {
                    converse(stream, site, seen, (caller, standing), limits)
                });
            }
            Err(error) => {
                if let Some(untold) = tell("accept for administration or metrics") {
                    warn!(%error, untold, "a connection for administration or metrics could not be accepted");
                }
                tokio::time::sleep(PAUSE).await;
            }
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

fn tcp((peer, local): (SocketAddr, SocketAddr), certificates: Vec<Vec<u8>>) -> Peer {
    Peer::Tcp {
        peer,
        local,
        certificates,
    }
}

/// Answers the requests of one connection. Errors of the client end it.
async fn converse<S: Site>(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send,
    site: Arc<S>,
    peer: Peer,
    (caller, standing): (Caller, Standing),
    limits: Limits,
) {
    let visitor = Arc::new(site.welcome(peer, caller, standing));
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
