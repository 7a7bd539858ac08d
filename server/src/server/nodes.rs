//! Connections to the data nodes of the server, with the certificate of this host.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use gridhaul_nodes::cluster::{Cluster, Member, StateHandle};
use gridhaul_nodes::{Dial, DialError, RemoteConfig, RemoteNode};
use gridhaul_security::tls::{HostSettings, TlsVersions};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;

use super::accept::keep_alive;
use crate::data_nodes::Target;
use crate::mutual_tls;
use crate::shared::Shared;

/// The time for a connection, and again for its handshake.
const TIME: Duration = Duration::from_secs(5);

/// Where a node is at present; the connection to it reads this each time it dials.
pub(super) type Place = Arc<Mutex<Target>>;

/// A target has no state between its fields that a panic could break.
pub(super) fn locked(place: &Place) -> MutexGuard<'_, Target> {
    place.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A member of the cluster that is reached at a place.
pub(super) fn member(shared: &Arc<Shared>, name: &str, place: &Place, cluster: &Cluster) -> Member {
    let state = StateHandle::unknown();
    let (weak, place) = (Arc::downgrade(shared), Arc::clone(place));
    let remote = RemoteNode::new(RemoteConfig {
        name: name.to_owned(),
        dial: Dial::new(move || dial(weak.clone(), locked(&place).clone())),
        runtime: Handle::current(),
        root: shared.settings().config.root.clone(),
        state: state.clone(),
        instances: cluster.instances(),
        registry: shared.registry.clone(),
    });
    Member {
        name: name.to_owned(),
        node: Arc::new(remote),
        state,
    }
}

/// A connection to a node, after the handshake in which both ends have authenticated each other.
async fn dial(shared: Weak<Shared>, target: Target) -> Result<TlsStream<TcpStream>, DialError> {
    let shared = shared
        .upgrade()
        .ok_or_else(|| DialError("this server ends".to_owned()))?;
    let settings = tokio::task::spawn_blocking(move || settings(&shared)).await;
    let settings = settings.map_err(|error| DialError(error.to_string()))??;
    let addresses = target
        .addresses
        .map_err(|error| DialError(format!("its name cannot be looked up: {error}")))?;
    let stream = connect(&addresses).await?;
    let connected = mutual_tls::connect(stream, &target.name, target.host, &settings, TIME).await;
    connected
        .map(|(stream, _)| stream)
        .map_err(|error| DialError(error.to_string()))
}

/// The certificate and the trust of this host. Asks the login process.
fn settings(shared: &Shared) -> Result<HostSettings, DialError> {
    let settings = shared.settings();
    let certificate = settings.logins.host_certificate();
    let security = settings.security.as_ref();
    match (certificate, security) {
        (Some(certificate), Some(security)) => Ok(HostSettings {
            certificate,
            trust: security.trust(),
            // The login process signs for no other version: `login/host_key.rs`.
            versions: TlsVersions::Only13,
        }),
        _ => Err(DialError(
            "this server has no host certificate for data nodes: set cert and key".to_owned(),
        )),
    }
}

/// A connection to the first address that accepts one.
async fn connect(addresses: &[SocketAddr]) -> Result<TcpStream, DialError> {
    let mut last = "it has no address".to_owned();
    for address in addresses {
        match timeout(TIME, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                // A peer that is gone already shows with the handshake.
                let _ = keep_alive(&stream);
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Ok(Err(error)) => last = format!("{address}: {error}"),
            Err(_) => last = format!("{address}: no answer within {} s", TIME.as_secs()),
        }
    }
    Err(DialError(last))
}
