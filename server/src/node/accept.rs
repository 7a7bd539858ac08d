//! Accepts connections of control servers, within limits.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gridhaul_security::tls::{PeerFault, PeerIdentity};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::server::TlsStream;
use tracing::{debug, error, warn};

use super::connection::{ControlServer, Served, serve_connection};
use super::expiry::warn_of_end;
use super::measure::measure;
use super::security::NodeSecurity;
use crate::admission::{Connections, Place, Room};
use crate::config::MaxStartups;
use crate::mutual_tls::{self, MutualTlsError};
use crate::server::{is_shortage, keep_alive};
use crate::shutdown::{Phase, PhaseWatch};
use crate::telemetry::tell;

/// The time for a handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// The connections of all control servers. Each has a few.
const CONNECTIONS: usize = 1024;

/// The connections of one control server.
const PER_NETWORK: usize = 256;

/// Handshakes at a time: above the first number, new ones end waiting ones; there are never more than the last.
const HANDSHAKES: MaxStartups = MaxStartups {
    start: 32,
    rate: 30,
    full: 64,
};

/// The state of all listeners.
#[derive(Debug)]
pub(super) struct Acceptor {
    security: Arc<NodeSecurity>,
    connections: Arc<Connections>,
    served: Arc<Served>,
}

impl Acceptor {
    pub(super) fn new(security: Arc<NodeSecurity>, served: Served) -> Arc<Self> {
        Arc::new(Self {
            security,
            connections: Connections::new(Room {
                connections: CONNECTIONS,
                per_network: PER_NETWORK,
                startups: HANDSHAKES,
                exempt: Vec::new(),
            }),
            served: Arc::new(served),
        })
    }

    /// For the service manager.
    pub(super) fn summary(&self) -> String {
        let all = self.connections.total();
        let shaking = self.connections.startups();
        format!(
            "connections of control servers: {}, sessions: {}",
            all.saturating_sub(shaking),
            self.served.sessions()
        )
    }

    /// Warns before the certificate of an enrolled node ends.
    pub(super) async fn warn_of_end(self: Arc<Self>) {
        warn_of_end(Arc::clone(&self.security)).await;
    }

    /// Measures the machine for control servers.
    pub(super) async fn measure(self: Arc<Self>) {
        measure(Arc::clone(&self.served)).await;
    }

    /// Tells control servers that the node ends.
    pub(super) async fn drain(&self) {
        self.served.drain().await;
    }

    /// Accepts connections until the node ends.
    pub(super) async fn accept(self: Arc<Self>, listener: TcpListener, mut phase: PhaseWatch) {
        /// The pause while the process has no free descriptors.
        const PAUSE: Duration = Duration::from_millis(100);

        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = phase.reached(Phase::Draining) => return,
            };
            match accepted {
                Ok((stream, peer)) => self.admit(stream, peer, &phase),
                Err(error) => {
                    if let Some(untold) = tell("accept at a node") {
                        warn!(%error, untold, "a connection could not be accepted");
                    }
                    if is_shortage(&error) {
                        self.connections.give_one_back();
                        tokio::time::sleep(PAUSE).await;
                    }
                }
            }
        }
    }

    /// Begins a handshake, if there is room for it.
    fn admit(self: &Arc<Self>, stream: TcpStream, peer: SocketAddr, phase: &PhaseWatch) {
        match self.connections.admit(peer.ip(), Instant::now()) {
            Ok(place) => {
                let (acceptor, phase) = (Arc::clone(self), phase.clone());
                tokio::spawn(acceptor.serve(stream, peer, place, phase));
            }
            Err(refusal) => {
                if let Some(untold) = tell("room at a node") {
                    warn!(%peer, %refusal, untold, "a connection is refused: there are too many");
                }
            }
        }
    }

    async fn serve(
        self: Arc<Self>,
        stream: TcpStream,
        peer: SocketAddr,
        mut place: Place,
        mut phase: PhaseWatch,
    ) {
        let displaced = place.displaced();
        let done = tokio::select! {
            done = self.handshake(stream, peer) => done,
            () = displaced => return,
            () = phase.reached(Phase::Draining) => return,
        };
        let Some((stream, identity)) = done else {
            return;
        };
        if place.logged_in(true, Instant::now()).is_err() {
            // Another connection has just taken the place.
            return;
        }
        let control_server = ControlServer {
            peer,
            identity,
            security: Arc::clone(&self.security),
        };
        serve_connection(stream, control_server, Arc::clone(&self.served), phase).await;
        drop(place);
    }

    /// `None` after a refusal, which is logged.
    async fn handshake(
        &self,
        stream: TcpStream,
        peer: SocketAddr,
    ) -> Option<(TlsStream<TcpStream>, PeerIdentity)> {
        if let Err(error) = keep_alive(&stream) {
            // Its peer is gone already.
            debug!(%peer, %error, "a connection could not be prepared");
        }
        let security = Arc::clone(&self.security);
        let current = tokio::task::spawn_blocking(move || security.current()).await;
        let current = match current {
            Ok(Ok(current)) => current,
            Ok(Err(error)) => {
                if let Some(untold) = tell("own certificate") {
                    error!(%error, untold, "connections are refused: the certificate of this node cannot be used");
                }
                return None;
            }
            // The node ends.
            Err(_) => return None,
        };
        let listed = &current.control_servers;
        match mutual_tls::accept(stream, &peer, &current.settings, listed, HANDSHAKE).await {
            Ok(accepted) => Some(accepted),
            Err(error) => {
                if let Some(untold) = tell(kind(&error)) {
                    warn!(%error, untold, "a connection is refused");
                }
                None
            }
        }
    }
}

/// Refusals of each kind get a line in an interval, so that scans of ports do not hide a control server that is refused.
fn kind(error: &MutualTlsError) -> &'static str {
    match error {
        MutualTlsError::Refused { fault, .. } => match **fault {
            PeerFault::Chain(_) | PeerFault::Proxy { .. } => "peer of a node: chain",
            PeerFault::NotListed { .. } => "peer of a node: not listed",
            PeerFault::NoCertificate => "peer of a node: no certificate",
            PeerFault::RefusesOurs { .. } => "peer of a node: refuses",
            PeerFault::Versions { .. } => "peer of a node: versions",
            PeerFault::OtherProtocol => "peer of a node: protocol",
            PeerFault::OtherHost { .. } | PeerFault::NoTls | PeerFault::Protocol(_) => {
                "peer of a node: other"
            }
        },
        MutualTlsError::Ended { .. } | MutualTlsError::TooSlow { .. } => "peer of a node: ended",
        MutualTlsError::Settings { .. } => "peer of a node: settings",
    }
}
