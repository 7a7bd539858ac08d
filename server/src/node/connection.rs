//! What a control server asks for, on a connection whose handshake is complete.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use gridhaul_nodes::{
    Arrival, MachineSample, OwnStack, REPLY_TIME, ReachRule, Service, ServiceConfig, Traffic,
};
use gridhaul_security::tls::PeerIdentity;
use gridhaul_stack::Registry;
use gridhaul_transfer::{LocalNode, Reach};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tracing::{debug, info, warn};

use super::security::NodeSecurity;
use crate::config::Config;
use crate::drivers;
use crate::machine;
use crate::own_addresses::OwnAddresses;
use crate::rechecked::refusal;
use crate::session_drivers;
use crate::shutdown::{Phase, PhaseWatch};
use crate::version;

/// What all connections share.
pub(super) struct Served {
    service: Service,
}

impl Served {
    pub(super) fn new(node: LocalNode, config: &Config, security: Arc<NodeSecurity>) -> Self {
        let registry = drivers::registry();
        let restore = move |value: &_| {
            session_drivers::restore(value, || security.trust(), || security.host_tls())
        };
        Self {
            service: Service::new(ServiceConfig {
                node: Arc::new(node),
                restore: Box::new(restore),
                root: config.root.clone(),
                host: machine::host_name(),
                program: version::VERSION_NUMBER.to_owned(),
                stack: config.data.stack.to_string(),
                drivers: registry
                    .drivers()
                    .map(|driver| driver.name().to_owned())
                    .collect(),
                own_stack: own_stack(config, registry),
                reach: reach_rule(config.data.advertise),
                data_addresses: config
                    .node
                    .as_ref()
                    .map_or(Vec::new(), |node| node.data_addresses.clone()),
                advertised: config.data.advertise,
                file_threads: config.limits.file_threads,
                reply_time: REPLY_TIME,
            }),
        }
    }

    /// The number of sessions of all control servers.
    pub(super) fn sessions(&self) -> usize {
        self.service.sessions()
    }

    /// The bytes of the transfers of all control servers.
    pub(super) fn transferred(&self) -> Traffic {
        self.service.transferred()
    }

    /// Tells control servers how busy the machine is.
    pub(super) fn set_machine(&self, sample: MachineSample) {
        self.service.set_machine(sample);
    }

    /// Tells control servers that this node wants no new sessions and transfers.
    pub(super) async fn drain(&self) {
        self.service.drain().await;
    }
}

/// The ports, addresses and devices of this node hold for every stack, where it has some.
fn own_stack(config: &Config, registry: Registry) -> Box<OwnStack> {
    let ports = config.data.port_range;
    // It was built once as a check.
    let own = config.data.stack.parse().ok();
    Box::new(move |stack| {
        let stack = match &own {
            Some(own) => registry.with_administrators_options(stack, own),
            None => stack,
        };
        drivers::with_ports(&registry, stack, ports)
    })
}

/// A client must not have this node connect to services that only its machine reaches.
fn reach_rule(advertised: Option<IpAddr>) -> Box<ReachRule> {
    let own = OwnAddresses::default();
    let advertised: Vec<_> = advertised.into_iter().collect();
    Box::new(move |client, host| {
        let machine = own
            .now()
            .map_err(|error| format!("this node cannot look up its own addresses: {error}"))?;
        let reach = Reach {
            client,
            machine: &machine,
            advertised: &advertised,
            named: &[],
        };
        reach.check(host).map_err(|refusal| refusal.to_string())
    })
}

impl fmt::Debug for Served {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Served").finish_non_exhaustive()
    }
}

/// A control server at the other end of a connection.
pub(super) struct ControlServer {
    pub(super) peer: SocketAddr,
    pub(super) identity: PeerIdentity,
    /// Says whether it is still accepted.
    pub(super) security: Arc<NodeSecurity>,
}

/// Serves a control server until it goes, it is not accepted any more, or `phase` ends its requests.
pub(super) async fn serve_connection(
    connection: TlsStream<TcpStream>,
    control_server: ControlServer,
    served: Arc<Served>,
    mut phase: PhaseWatch,
) {
    let ControlServer {
        peer,
        identity,
        security,
    } = control_server;
    let subject = identity.subject.one_line();
    let presented = connection.get_ref().1.peer_certificates();
    let presented: Arc<[_]> = presented.unwrap_or_default().into();
    let Ok(local) = connection.get_ref().0.local_addr() else {
        // The control server is gone already.
        return;
    };
    info!(
        %peer,
        subject,
        hosts = identity.hosts.join(" "),
        "a control server has connected"
    );
    let mut draining = phase.clone();
    let finished = async {
        draining.reached(Phase::Draining).await;
        served.service.no_transfer().await;
    };
    let check = || {
        let (security, presented) = (Arc::clone(&security), Arc::clone(&presented));
        let checked = tokio::task::spawn_blocking(move || security.validate(&presented));
        async { checked.await.unwrap_or(Ok(())) }
    };
    let ended = tokio::select! {
        fault = refusal(check, || !served.service.has_transfers()) => {
            warn!(%peer, "a control server is not accepted any more: it {fault}");
            return;
        }
        ended = served.service.serve(Arrival { connection, local }) => ended,
        // A control server keeps its connection for as long as there is a node.
        () = finished => Ok(()),
        () = phase.reached(Phase::Cancelling) => Ok(()),
    };
    match ended {
        Ok(()) => info!(subject, "the connection of a control server has ended"),
        Err(error) => debug!(subject, %error, "the connection of a control server has failed"),
    }
}
