//! The listeners of the administration interface and of the page of metrics.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use hyper::header::{ALLOW, HeaderValue};
use hyper::{Method, StatusCode};

use super::document::Facts;
use super::site::{AdminSite, metrics};
use crate::http::{self, Answer, Limits, Listener, Peer, Request, Site, Standing, text};
use crate::shared::Shared;
use crate::shutdown::PhaseView;

/// The limits of administrators.
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

/// The listeners, which accept no connections yet.
#[derive(Debug)]
pub(crate) struct Doors {
    pub(crate) tcp: Option<(TcpListener, SocketAddr)>,
}

impl Doors {
    /// Begins to accept. Must be called in a runtime.
    ///
    /// # Errors
    ///
    /// When a listener cannot be handed to the runtime.
    pub(crate) fn open(
        self,
        shared: &Arc<Shared>,
        facts: Facts,
        phase: PhaseView,
    ) -> io::Result<()> {
        let site = Arc::new(AdminSite {
            shared: Arc::clone(shared),
            facts,
            phase,
        });
        if let Some((listener, _)) = self.tcp {
            let listener = Listener::Tcp(in_runtime(listener)?);
            tokio::spawn(http::serve(listener, site, ADMINISTRATORS));
        }
        Ok(())
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
    pub(crate) fn open(listener: TcpListener, shared: &Arc<Shared>) -> io::Result<()> {
        let site = Arc::new(Self(Arc::clone(shared)));
        let listener = Listener::Tcp(in_runtime(listener)?);
        tokio::spawn(http::serve(listener, site, SCRAPERS));
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
