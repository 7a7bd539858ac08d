//! Connections to the data nodes of the server, with the certificate of this host.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::SystemTime;

use gridhaul_nodes::cluster::{Cluster, Member, StateHandle};
use gridhaul_nodes::{Dial, DialError, RemoteConfig, RemoteNode};
use gridhaul_security::node_authority::Role;
use gridhaul_security::tls::{HostSettings, PeerFault, TlsVersions, validate_node};
use rustls::pki_types::CertificateDer;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tracing::warn;

use super::dial::{Connected, NodeStream, dial_node};
use crate::data_nodes::Target;
use crate::rechecked::{Rechecked, refusal};
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

/// A connection to a node, after the handshake in which both ends have authenticated each other. It ends when the node would not
/// be accepted any more.
async fn dial(shared: Weak<Shared>, target: Target) -> Result<Rechecked<NodeStream>, DialError> {
    let present = shared
        .upgrade()
        .ok_or_else(|| DialError("this server ends".to_owned()))?;
    let is_enrolled = present.settings().config.node_authority.is_some();
    let settings = tokio::task::spawn_blocking(move || settings(&present)).await;
    let settings = settings.map_err(|error| DialError(error.to_string()))??;
    let Connected {
        stream,
        node,
        presented,
    } = dial_node(&target, &settings).await?;
    if is_enrolled
        && let Some(remedy) = ends_soon(Role::Node, node.expires, SystemTime::now())
        && let Some(untold) = tell("end of the certificate of a node")
    {
        warn!(node = target.name, untold, "{remedy}");
    }
    let (stream, refuse) = Rechecked::new(stream);
    tokio::spawn(recheck(shared, target, presented.into(), refuse));
    Ok(stream)
}

/// Validates the chain of a node again while its connection is open, and ends the connection when the node is refused.
async fn recheck(
    shared: Weak<Shared>,
    target: Target,
    presented: Arc<[CertificateDer<'static>]>,
    mut refuse: oneshot::Sender<PeerFault>,
) {
    let check = || {
        let (shared, host) = (shared.clone(), target.host.clone());
        let presented = Arc::clone(&presented);
        let checked = tokio::task::spawn_blocking(move || {
            let settings = shared.upgrade().and_then(|shared| settings(&shared).ok());
            // Without a certificate of its own this server cannot judge.
            settings.map_or(Ok(()), |settings| {
                validate_node(&settings, &host, &presented, SystemTime::now())
            })
        });
        async { checked.await.unwrap_or(Ok(())) }
    };
    let fault = tokio::select! {
        fault = refusal(check, || is_idle(&shared, &target.name)) => fault,
        () = refuse.closed() => return,
    };
    warn!(
        node = target.name,
        "the connection to a data node ends, which {fault}"
    );
    // It may have ended meanwhile.
    let _ = refuse.send(fault);
}

/// Whether this server has no transfers on a node, which may have another name in the configuration by now.
fn is_idle(shared: &Weak<Shared>, name: &str) -> bool {
    let Some(shared) = shared.upgrade() else {
        return true;
    };
    let nodes = shared.data_nodes.as_ref();
    nodes.is_none_or(|nodes| !nodes.cluster.has_transfers(name))
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
