//! What a control server asks for, on a connection whose handshake is complete.

use std::sync::Arc;

use gridhaul_security::tls::PeerIdentity;
use gridhaul_transfer::{DataNode as _, LocalNode};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tracing::info;

use crate::config::Config;
use crate::shutdown::PhaseWatch;

/// What all connections share.
#[derive(Debug)]
pub(super) struct Served {
    pub(super) node: Arc<LocalNode>,
    pub(super) config: Arc<Config>,
}

/// Serves a control server until it goes, or `phase` ends its requests.
///
/// There are no requests yet, so the connection ends at once.
pub(super) async fn serve_connection(
    mut stream: TlsStream<TcpStream>,
    peer: PeerIdentity,
    served: Arc<Served>,
    phase: PhaseWatch,
) {
    let subject = peer.subject.one_line();
    info!(
        subject,
        hosts = peer.hosts.join(" "),
        root = %served.config.root.display(),
        workers = ?served.node.load(),
        "a control server has connected; this version serves no requests, so the connection is closed"
    );
    // The control server may be gone.
    let _ = stream.shutdown().await;
    drop(phase);
}
