//! Publishes events: writes them to the log and the transfer log, and counts them.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use gridhaul_security::voms::Fqan;
use gridhaul_shares::Network;
use gridhaul_stack::Detail;
use tracing::{debug, info, warn};

use super::event::{Event, Transfer, source_name};
use super::front_counts::FrontCounts;
use super::metrics::Metrics;
use super::notices::Notices;
use super::transfer_log::TransferLog;

/// The destination of events.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    pub(crate) transfer_log: Option<TransferLog>,
    pub(crate) metrics: Metrics,
    refused: Refused,
    notices: Notices,
}

/// Counters of refusals since the start. Each log line about a refusal has the count, so that any line shows a flood. A
/// network gets few lines ([`Notices`]); `untold` is the number of its refusals without a line since the last one.
#[derive(Debug, Default)]
struct Refused {
    connections: Counter,
    authentications: Counter,
    logins: Counter,
    commands: Counter,
}

#[derive(Debug, Default)]
struct Counter(AtomicU64);

impl Counter {
    /// Counts one more.
    fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }
}

impl Journal {
    /// `front` are the counters of the front process, if there is one.
    pub(crate) fn new(transfer_log: Option<TransferLog>, front: Option<FrontCounts>) -> Self {
        Self {
            transfer_log,
            metrics: Metrics::with_front(front),
            refused: Refused::default(),
            notices: Notices::default(),
        }
    }

    /// The journal of the front process, which counts for the serving process.
    pub(crate) fn of_front(counts: FrontCounts) -> Self {
        Self {
            transfer_log: None,
            metrics: Metrics::Front(counts),
            refused: Refused::default(),
            notices: Notices::default(),
        }
    }

    /// Counts and logs the event.
    pub(crate) fn publish(&self, event: &Event<'_>) {
        self.metrics.count(event);
        match *event {
            Event::SessionOpened { session, peer } => info!(session, %peer, "session opened"),
            Event::ConnectionRefused { peer, reason } => {
                let count = self.refused.connections.next();
                if let Some(untold) = self.untold(peer.ip()) {
                    warn!(%peer, reason, count, untold, "connection refused");
                }
            }
            Event::NotAccepted { error } => {
                // There is no peer address, so all of these count as one network.
                if let Some(untold) = self.untold(Ipv6Addr::UNSPECIFIED.into()) {
                    warn!(%error, untold, "a connection could not be accepted");
                }
            }
            Event::Authenticated {
                session,
                mechanism,
                protection,
                identity,
                delegated,
            } => {
                info!(
                    session,
                    mechanism, protection, identity, delegated, "authenticated"
                );
            }
            Event::AuthenticationFailed {
                session,
                peer,
                mechanism,
                reason,
            } => {
                let count = self.refused.authentications.next();
                if let Some(untold) = self.untold(peer) {
                    warn!(session, %peer, mechanism, reason, count, untold, "authentication failed");
                }
            }
            Event::SecurityUnusable { session, reason } => {
                warn!(session, reason, "a credential cannot be used");
            }
            Event::AttributeIgnored { session, reason } => {
                warn!(session, reason, "an attribute was ignored");
            }
            Event::LoggedIn {
                session,
                user,
                identity,
                attributes,
                read_only,
            } => {
                let attributes = joined(attributes);
                info!(session, user, identity, attributes, read_only, "logged in");
            }
            Event::LoginFailed {
                session,
                peer,
                user,
                identity,
                reason,
            } => {
                let count = self.refused.logins.next();
                if let Some(untold) = self.untold(peer) {
                    warn!(session, %peer, user, identity, reason, count, untold, "login failed");
                }
            }
            Event::ProtectionBroken {
                session,
                peer,
                identity,
                reason,
            } => {
                let count = self.refused.commands.next();
                if let Some(untold) = self.untold(peer) {
                    warn!(session, %peer, identity, reason, count, untold, "a command was refused");
                }
            }
            Event::ClientInfo { session, info } => debug!(session, info, "client"),
            Event::Command { session, command } => debug!(session, ?command, "command"),
            Event::Reply { session, reply } => debug!(session, ?reply, "reply"),
            Event::PortsExhausted {
                session,
                peer,
                reason,
            } => {
                if let Some(untold) = self.untold(peer) {
                    warn!(session, %peer, reason, untold, "no data port is free");
                }
            }
            Event::TransferFinished(transfer) => self.transfer_finished(transfer),
            Event::ChecksumFound {
                session,
                algorithm,
                found,
                took,
            } => {
                let (source, bytes) = (source_name(found.source), found.read_bytes);
                let seconds = took.as_secs_f64();
                debug!(session, %algorithm, source, bytes, seconds, "checksum");
            }
            Event::SessionClosed { session, reason } => info!(session, reason, "session closed"),
        }
    }

    /// Whether a refusal of this peer gets a line; then the number of refusals without a line before.
    fn untold(&self, peer: IpAddr) -> Option<u64> {
        self.notices.tell(Network::of(peer), Instant::now())
    }

    fn transfer_finished(&self, transfer: &Transfer<'_>) {
        info!(
            session = transfer.session,
            user = transfer.user,
            verb = transfer.verb.name(),
            path = transfer.path,
            bytes = transfer.bytes,
            seconds = transfer.seconds(),
            channels = transfer.channels,
            stripes = transfer.stripes,
            peers = ?transfer.peers,
            way = transfer.movement.map(|movement| movement.way),
            why = transfer.movement.map(|movement| &*movement.reason),
            details = listed(transfer.details),
            refused = transfer.refused,
            last_refusal = transfer.last_refusal.map(ToString::to_string),
            code = transfer.code,
            error = transfer.error,
            "transfer finished"
        );
        if let Some(Err(error)) = self.transfer_log.as_ref().map(|log| log.record(transfer)) {
            self.metrics.count_lost_transfer_line();
            warn!(%error, "the transfer log cannot be written");
        }
    }
}

/// `None` for an empty list, so that the log has no field for what most sessions lack.
fn joined(attributes: &[Fqan]) -> Option<String> {
    let names: Vec<&str> = attributes.iter().map(Fqan::as_str).collect();
    (!names.is_empty()).then(|| names.join(" "))
}

/// `None` for an empty list.
fn listed(details: &[Detail]) -> Option<String> {
    let details: Vec<String> = details.iter().map(Detail::to_string).collect();
    (!details.is_empty()).then(|| details.join(" "))
}
