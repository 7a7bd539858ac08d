//! Connections to the data nodes of the server, with the certificate of this host.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::SystemTime;

use gridhaul_nodes::cluster::{Cluster, Member, StateHandle};
use gridhaul_nodes::{Dial, DialError, RemoteConfig, RemoteNode};
use gridhaul_security::node_authority::Role;
use gridhaul_security::tls::{HostSettings, TlsVersions};
use tokio::runtime::Handle;
use tracing::warn;

use super::dial::{NodeStream, dial_node};
use crate::data_nodes::Target;
use crate::security::ends_soon;
use crate::shared::Shared;
use crate::telemetry::tell;

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
async fn dial(shared: Weak<Shared>, target: Target) -> Result<NodeStream, DialError> {
    let shared = shared
        .upgrade()
        .ok_or_else(|| DialError("this server ends".to_owned()))?;
    let is_enrolled = shared.settings().config.node_authority.is_some();
    let settings = tokio::task::spawn_blocking(move || settings(&shared)).await;
    let settings = settings.map_err(|error| DialError(error.to_string()))??;
    let (stream, node) = dial_node(&target, &settings).await?;
    if is_enrolled
        && let Some(remedy) = ends_soon(Role::Node, node.expires, SystemTime::now())
        && let Some(untold) = tell("end of the certificate of a node")
    {
        warn!(node = target.name, untold, "{remedy}");
    }
    Ok(stream)
}

/// The certificate and the trust of this host. Asks the login process.
fn settings(shared: &Shared) -> Result<HostSettings, DialError> {
    let settings = shared.settings();
    if settings.config.node_authority.is_some() {
        return settings.logins.for_nodes().ok_or_else(|| {
            DialError(
                "the file of node-authority is not the identity of a control server now: the log of this server has the reason"
                    .to_owned(),
            )
        });
    }
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
