//! The listeners of the administration interface, and of the page of metrics.
//!
//! They are opened, and the files about administrators are read, before the process gives up root and is confined.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;

use gridhaul_security::certificate::Certificate;
use gridhaul_shares::Network;
use hyper::header::{ALLOW, HeaderValue};
use hyper::{Method, StatusCode};
use rustls::ServerConfig;
use tokio::sync::mpsc;
use tracing::{info, warn};

use super::access::{Access, AdminTokenError, Owners, Revocation, Token};
use super::actions::Actions;
use super::document::Facts;
use super::orders::Order;
use super::site::{AdminSite, metrics};
use super::socket::{self, AdminSocketError};
use super::tls::{self, AdminTlsError};
use crate::config::{AdminSocket, Administration, Config};
use crate::http::{
    self, Answer, Caller, Holder, Limits, Listener, Paced, Peer, Places, Request, Site, Standing,
    text,
};
use crate::shared::Shared;
use crate::shutdown::PhaseView;
use crate::telemetry::Notices;

/// The limits of administrators, at each listener.
const ADMINISTRATORS: Limits = Limits {
    places: Places {
        connections: 48,
        root: 16,
        guests: 16,
        per_holder: 16,
        per_guest: 4,
    },
    head_bytes: 16 * 1024,
    keep_alive: true,
};

/// The limits of scrapers.
const SCRAPERS: Limits = Limits {
    places: Places {
        connections: 16,
        root: 0,
        guests: 0,
        per_holder: 8,
        per_guest: 0,
    },
    head_bytes: 8 * 1024,
    keep_alive: false,
};

/// Orders that wait.
const ORDERS: usize = 16;

/// An administration interface that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// The secret is wrong.
    #[error(transparent)]
    Token(#[from] AdminTokenError),
    /// A certificate or a key is wrong.
    #[error(transparent)]
    Tls(#[from] AdminTlsError),
    /// The Unix socket cannot be used.
    #[error(transparent)]
    Socket(#[from] AdminSocketError),
}

/// Reads the files about administrators, as at the start.
///
/// # Errors
///
/// When a file cannot be used.
pub(crate) fn examine(admin: &Administration) -> Result<(), AdminError> {
    tls::server_config(admin)?;
    admin.token.as_deref().map(Token::read).transpose()?;
    Ok(())
}

/// The listeners, which accept no connections yet.
#[derive(Debug, Default)]
pub(crate) struct Doors {
    tcp: Option<(TcpListener, SocketAddr)>,
    unix: Option<(UnixListener, PathBuf)>,
    tls: Option<Arc<ServerConfig>>,
    token: Option<Token>,
    /// The authorities of administrators' certificates, if there are any.
    authorities: Option<Arc<[Certificate]>>,
    owners: Option<Owners>,
}

impl Doors {
    /// Reads what the configuration names, and takes over the listener of `admin-listen`, and the Unix socket if the server
    /// was started with it.
    ///
    /// # Errors
    ///
    /// When a file cannot be used.
    pub(crate) fn prepare(
        admin: &Administration,
        tcp: Option<(TcpListener, SocketAddr)>,
        unix: Option<UnixListener>,
    ) -> Result<Self, AdminError> {
        let mut accounts = vec![0, rustix::process::getuid().as_raw()];
        accounts.dedup();
        Ok(Self {
            tcp,
            unix: match (unix, &admin.socket) {
                (Some(unix), _) => {
                    let path = path_of_listener(&unix);
                    Some((unix, path))
                }
                (None, AdminSocket::At(path)) => Some((socket::listen(path)?, path.clone())),
                (None, AdminSocket::Default | AdminSocket::None) => None,
            },
            tls: tls::server_config(admin)?,
            token: admin.token.as_deref().map(Token::read).transpose()?,
            authorities: tls::authorities(admin)?,
            owners: Some(Owners::new(accounts)),
        })
    }

    /// Also listens at the default place of the Unix socket, if the configuration does not name or exclude one.
    pub(crate) fn and_default_socket(&mut self, config: &Config) {
        let is_default = config.admin.socket == AdminSocket::Default;
        let Some(path) = socket::path_of(config).filter(|_| is_default && self.unix.is_none())
        else {
            return;
        };
        let opened = socket::make_directory(&path)
            .map_err(|error| AdminSocketError::System {
                path: path.clone(),
                error,
            })
            .and_then(|()| socket::listen(&path));
        match opened {
            Ok(listener) => self.unix = Some((listener, path)),
            // It is a convenience that the administrator has not asked for.
            Err(error) => {
                warn!(%error, "the commands status, top, kick, drain and reload do not reach this server")
            }
        }
    }

    /// The Unix socket.
    pub(crate) fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.unix.as_ref().map(|(unix, _)| unix.as_fd())
    }

    /// The address of the page.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.tcp.as_ref().map(|(_, address)| *address)
    }

    /// Begins to accept, and returns the orders of administrators. Must be called in a runtime.
    ///
    /// # Errors
    ///
    /// When a listener cannot be handed to the runtime.
    pub(crate) fn open(
        self,
        shared: &Arc<Shared>,
        facts: Facts,
        phase: PhaseView,
    ) -> io::Result<mpsc::Receiver<Order>> {
        let (orders, ordered) = mpsc::channel(ORDERS);
        if self.tcp.is_none() && self.unix.is_none() {
            return Ok(ordered);
        }
        let config = shared.settings().config;
        let admin = &config.admin;
        if self.authorities.is_some() && config.security.gsi.is_none() {
            warn!(
                "certificates of administrators are not checked for revocation: without GSI there is no trust directory"
            );
        }
        let names = admin.names.iter().chain([&shared.host]);
        let names = names.map(|name| name.to_ascii_lowercase()).collect();
        let site = Arc::new(AdminSite {
            shared: Arc::clone(shared),
            facts: Arc::new(facts),
            phase: phase.clone(),
            status: Paced::default(),
            actions: Actions {
                live: Arc::clone(&shared.live),
                nodes: shared
                    .data_nodes
                    .as_ref()
                    .map(|nodes| Arc::clone(&nodes.cluster)),
                orders,
            },
            access: Access {
                owners: self.owners.unwrap_or_else(|| Owners::new(vec![0])),
                token: self.token,
                clients: self
                    .authorities
                    .map(|all| Revocation::new(Arc::clone(shared), all)),
                subjects: admin.subjects.clone(),
                names,
            },
            notices: Notices::default(),
        });
        tokio::spawn(Arc::clone(&shared.live).watch());
        if let Some((listener, _)) = self.tcp {
            let listener = in_runtime(listener)?;
            let listener = match self.tls {
                Some(tls) => Listener::Tls(listener, tls),
                None => Listener::Tcp(listener),
            };
            let serve = http::serve(listener, Arc::clone(&site), ADMINISTRATORS);
            tokio::spawn(until_replaced(serve, phase.clone()));
        }
        if let Some((listener, path)) = self.unix {
            info!(path = %path.display(), "administration socket");
            listener.set_nonblocking(true)?;
            let listener = Listener::Unix(tokio::net::UnixListener::from_std(listener)?);
            tokio::spawn(until_replaced(
                http::serve(listener, site, ADMINISTRATORS),
                phase,
            ));
        }
        Ok(ordered)
    }
}

/// Accepts connections until a new version of the program does. Those that were accepted go on.
async fn until_replaced(serve: impl Future<Output = ()>, mut phase: PhaseView) {
    tokio::select! {
        () = serve => {}
        () = phase.replaced() => {}
    }
}

/// For the log.
fn path_of_listener(listener: &UnixListener) -> PathBuf {
    let address = listener.local_addr().ok();
    let path = address.as_ref().and_then(|address| address.as_pathname());
    path.map(PathBuf::from).unwrap_or_default()
}

/// The page of metrics, for all clients that reach it.
#[derive(Debug)]
pub(crate) struct MetricsSite(Arc<Shared>);

impl MetricsSite {
    /// Begins to answer scrapers. Must be called in a runtime.
    ///
    /// # Errors
    ///
    /// When the listener cannot be handed to the runtime.
    pub(crate) fn open(
        listener: TcpListener,
        shared: &Arc<Shared>,
        phase: PhaseView,
    ) -> io::Result<()> {
        let site = Arc::new(Self(Arc::clone(shared)));
        let listener = Listener::Tcp(in_runtime(listener)?);
        tokio::spawn(until_replaced(http::serve(listener, site, SCRAPERS), phase));
        Ok(())
    }
}

impl Site for MetricsSite {
    type Visitor = ();

    /// Each network has its share of the places.
    async fn identify(&self, peer: &Peer) -> Caller {
        let holder = match peer {
            Peer::Tcp { peer, .. } => Holder::Network(Network::of(peer.ip())),
            Peer::Unix { uid } => Holder::Account(*uid),
        };
        Caller {
            holder,
            is_eligible: true,
        }
    }

    fn welcome(&self, _peer: Peer, _caller: Caller, _standing: Standing) {}

    async fn answer(&self, (): &(), request: Request) -> Answer {
        if *request.method() != Method::GET {
            let mut answer = text(StatusCode::METHOD_NOT_ALLOWED, "There is only GET.");
            let get = HeaderValue::from_static("GET");
            answer.headers_mut().insert(ALLOW, get);
            return answer;
        }
        match request.uri().path() {
            "/metrics" => metrics(&self.0).await,
            _ => text(StatusCode::NOT_FOUND, "There is only /metrics."),
        }
    }
}

fn in_runtime(listener: TcpListener) -> io::Result<tokio::net::TcpListener> {
    listener.set_nonblocking(true)?;
    tokio::net::TcpListener::from_std(listener)
}
