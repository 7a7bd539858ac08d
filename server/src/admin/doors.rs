//! The listeners of the administration interface, and of the page of metrics.
//!
//! They are opened, and the files about administrators are read, before the process gives up root and is confined.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;

use hyper::header::{ALLOW, HeaderValue};
use hyper::{Method, StatusCode};
use rustls::ServerConfig;
use tokio::sync::mpsc;
use tracing::{info, warn};

use super::access::{Access, AdminTokenError, Token};
use super::actions::Actions;
use super::document::Facts;
use super::orders::Order;
use super::site::{AdminSite, metrics};
use super::socket::{self, AdminSocketError};
use super::tls::{self, AdminTlsError};
use crate::config::{AdminSocket, Administration, Config};
use crate::http::{self, Answer, Limits, Listener, Peer, Request, Site, Standing, text};
use crate::shared::Shared;
use crate::shutdown::PhaseView;
use crate::telemetry::Notices;

/// The limits of administrators, at each listener.
const ADMINISTRATORS: Limits = Limits {
    connections: 64,
    head_bytes: 16 * 1024,
    keep_alive: true,
};

/// The limits of scrapers.
const SCRAPERS: Limits = Limits {
    connections: 16,
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
    unix: Option<UnixListener>,
    tls: Option<Arc<ServerConfig>>,
    token: Option<Token>,
    accounts: Vec<u32>,
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
                (Some(unix), _) => Some(unix),
                (None, AdminSocket::At(path)) => Some(socket::listen(path)?),
                (None, AdminSocket::Default | AdminSocket::None) => None,
            },
            tls: tls::server_config(admin)?,
            token: admin.token.as_deref().map(Token::read).transpose()?,
            accounts,
        })
    }

    /// Also listens at the default place of the Unix socket, if the configuration does not name or exclude one.
    pub(crate) fn and_default_socket(&mut self, config: &Config) {
        let is_default = config.admin.socket == AdminSocket::Default;
        let Some(path) = socket_path(config).filter(|_| is_default && self.unix.is_none()) else {
            return;
        };
        let opened = socket::make_directory(&path)
            .map_err(|error| AdminSocketError::System {
                path: path.clone(),
                error,
            })
            .and_then(|()| socket::listen(&path));
        match opened {
            Ok(listener) => {
                info!(path = %path.display(), "administration socket");
                self.unix = Some(listener);
            }
            // It is a convenience that the administrator has not asked for.
            Err(error) => {
                warn!(%error, "the commands status, top, kick, drain and reload do not reach this server")
            }
        }
    }

    /// The Unix socket.
    pub(crate) fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.unix.as_ref().map(|unix| unix.as_fd())
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
        let names = admin.names.iter().chain([&shared.host]);
        let names = names.map(|name| name.to_ascii_lowercase()).collect();
        let site = Arc::new(AdminSite {
            shared: Arc::clone(shared),
            facts,
            phase: phase.clone(),
            actions: Actions {
                live: Arc::clone(&shared.live),
                orders,
            },
            access: Access {
                accounts: self.accounts,
                token: self.token,
                has_clients: admin.clients.is_some(),
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
        if let Some(listener) = self.unix {
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

/// The path of the Unix socket of a server, if it has one.
pub(crate) fn socket_path(config: &Config) -> Option<PathBuf> {
    let port = config.listen.first().map_or(0, SocketAddr::port);
    match &config.admin.socket {
        AdminSocket::At(path) => Some(path.clone()),
        AdminSocket::Default => socket::default_path(port),
        AdminSocket::None => None,
    }
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

    fn welcome(&self, _peer: Peer, _standing: Standing) {}

    async fn answer(&self, (): &(), request: Request) -> Answer {
        if *request.method() != Method::GET {
            let mut answer = text(StatusCode::METHOD_NOT_ALLOWED, "There is only GET.");
            let get = HeaderValue::from_static("GET");
            answer.headers_mut().insert(ALLOW, get);
            return answer;
        }
        match request.uri().path() {
            "/metrics" => metrics(&self.0),
            _ => text(StatusCode::NOT_FOUND, "There is only /metrics."),
        }
    }
}

fn in_runtime(listener: TcpListener) -> io::Result<tokio::net::TcpListener> {
    listener.set_nonblocking(true)?;
    tokio::net::TcpListener::from_std(listener)
}
