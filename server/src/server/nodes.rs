//! Connections to the data nodes of the server, with the certificate of this host.

use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use gridhaul_nodes::cluster::{Member, StateHandle};
use gridhaul_nodes::{Dial, DialError, Instances, RemoteConfig, RemoteNode};
use gridhaul_security::tls::{HostSettings, TlsVersions};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;
use tracing::error;

use super::accept::keep_alive;
use crate::config::Config;
use crate::data_nodes::{DataNodes, Target};
use crate::mutual_tls;
use crate::shared::Shared;

/// The time for a connection, and again for its handshake.
const TIME: Duration = Duration::from_secs(5);

/// Connects to the data nodes of the configuration from now on. Must be called in the runtime.
pub(super) fn start(shared: &Arc<Shared>) {
    let Some(DataNodes { cluster, targets }) = &shared.data_nodes else {
        return;
    };
    let config = shared.settings().config;
    let instances = cluster.instances();
    let members = targets
        .iter()
        .map(|target| member(shared, &config, target, &instances));
    if let Err(error) = cluster.set_members(members.collect()) {
        // The configuration has no node twice.
        error!(%error, "the data nodes cannot be used");
    }
}

fn member(shared: &Arc<Shared>, config: &Config, target: &Target, instances: &Instances) -> Member {
    let state = StateHandle::unknown();
    let (name, weak, target) = (
        target.node.to_string(),
        Arc::downgrade(shared),
        target.clone(),
    );
    let remote = RemoteNode::new(RemoteConfig {
        name: name.clone(),
        dial: Dial::new(move || dial(weak.clone(), target.clone())),
        runtime: Handle::current(),
        root: config.root.clone(),
        state: state.clone(),
        instances: instances.clone(),
        registry: shared.registry.clone(),
    });
    Member {
        name,
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
    let Target { node, addresses } = target;
    let addresses = addresses.map_err(|error| {
        DialError(format!(
            "its name could not be looked up when this server started ({error}): restart it"
        ))
    })?;
    let stream = connect(&addresses).await?;
    let connected = mutual_tls::connect(stream, &node, node.host.clone(), &settings, TIME).await;
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
