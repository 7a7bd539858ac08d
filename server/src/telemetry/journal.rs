//! Publishes events: writes them to the log and the transfer log, and counts them.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime};

use gridhaul_nodes::cluster::NODE_DETAIL;
use gridhaul_security::voms::Fqan;
use gridhaul_shares::Network;
use gridhaul_stack::{Detail, DetailValue};
use rustix::io::Errno;
use tracing::{debug, info, warn};

use super::event::{Event, FailureCause, FileOperation, Transfer, source_name};
use super::front_counts::FrontCounts;
use super::history::History;
use super::list::List;
use super::logging::AUDIT;
use super::metrics::Metrics;
use super::notices::Notices;
use super::recent::Refusals;
use super::repeats::tell;
use super::transfer_log::TransferLog;
use crate::status::{RefusalStatus, utc};

/// The destination of events.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    pub(crate) transfer_log: Option<TransferLog>,
    pub(crate) metrics: Metrics,
    refused: Refused,
    notices: Notices,
    pub(crate) history: History,
    /// The latest refusals that got a line, and those of the front process.
    pub(crate) refusals: Refusals,
    /// In the front process: takes the refusals to the serving process.
    forward: OnceLock<Forward>,
}

/// Takes a refusal to another process.
struct Forward(Box<dyn Fn(RefusalStatus) + Send + Sync>);

impl fmt::Debug for Forward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Forward")
    }
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

    fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Journal {
    /// `front` are the counters of the front process, if there is one.
    pub(crate) fn new(transfer_log: Option<TransferLog>, front: Option<FrontCounts>) -> Self {
        Self {
            transfer_log,
            metrics: Metrics::with_front(front),
            ..Self::default()
        }
    }

    /// The journal of the front process, which counts for the serving process.
    pub(crate) fn of_front(counts: FrontCounts) -> Self {
        Self {
            transfer_log: None,
            metrics: Metrics::Front(counts),
            ..Self::default()
        }
    }

    /// In the front process: refusals go to the serving process, which shows them.
    pub(crate) fn forward_refusals(&self, take: impl Fn(RefusalStatus) + Send + Sync + 'static) {
        self.forward.get_or_init(|| Forward(Box::new(take)));
    }

    /// The number of refusals since the start, of the front process too.
    pub(crate) fn refusals_total(&self) -> u64 {
        let refused = &self.refused;
        let here = [
            &refused.connections,
            &refused.authentications,
            &refused.logins,
            &refused.commands,
        ];
        let here: u64 = here.map(Counter::value).iter().sum();
        here + self.metrics.front().map_or(0, |front| front.refusals())
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
                    self.keep("connection refused", &peer, (None, None), reason);
                }
            }
            Event::NotAccepted { error } => not_accepted(error),
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
                    warn!(target: AUDIT, session, %peer, mechanism, reason, count, untold, "authentication failed");
                    self.keep("authentication failed", &peer, (None, None), reason);
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
                client,
                protection,
                attributes,
                read_only,
            } => {
                let attributes = List::of(attributes.iter().map(Fqan::as_str));
                info!(
                    target: AUDIT,
                    session,
                    peer = %client.peer,
                    user,
                    account = client.account,
                    identity = client.identity,
                    vo = client.vo,
                    role = client.role,
                    protection = protection.unwrap_or("none"),
                    attributes = attributes.as_ref().map(List::value),
                    read_only,
                    "logged in"
                );
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
                    warn!(target: AUDIT, session, %peer, user, identity, reason, count, untold, "login failed");
                    self.keep("login failed", &peer, (Some(user), identity), reason);
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
                    self.keep("a command was refused", &peer, (None, identity), reason);
                }
            }
            Event::ClientInfo { session, info } => debug!(session, info, "client"),
            Event::Command { session, command } => debug!(session, ?command, "command"),
            Event::Reply { session, reply } => debug!(session, ?reply, "reply"),
            Event::TransferFinished(transfer) => {
                transfer_finished(transfer);
                self.write_transfer_log(transfer);
            }
            Event::FileOperation(operation) => file_operation(operation),
            Event::CommandFailed {
                session,
                peer,
                user,
                error,
            } => {
                if let Some(untold) = self.untold(peer) {
                    warn!(session, %peer, user, error, untold, "a command failed by the server's fault");
                }
            }
            Event::PortsExhausted {
                session,
                peer,
                error,
            } => {
                if let Some(untold) = tell("ports exhausted") {
                    warn!(
                        session, %peer, error, untold,
                        "no port for a data connection: widen port-range, or lower max-transfers"
                    );
                }
            }
            Event::DataConnectionRefused {
                session,
                peer,
                refused,
                last,
            } => {
                if let Some(untold) = self.untold(peer) {
                    let last = last.map(ToString::to_string);
                    warn!(session, %peer, refused, last, untold, "data connections were refused");
                }
            }
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

    /// Keeps a refusal for administrators. A flood of one network is as short here as in the log.
    fn keep(
        &self,
        event: &str,
        peer: &dyn fmt::Display,
        (user, identity): (Option<&str>, Option<&str>),
        reason: &str,
    ) {
        let refusal = RefusalStatus {
            time: utc(SystemTime::now()),
            event: event.to_owned(),
            peer: peer.to_string(),
            user: user.map(ToOwned::to_owned),
            identity: identity.map(ToOwned::to_owned),
            reason: reason.to_owned(),
        };
        match self.forward.get() {
            Some(Forward(take)) => take(refusal),
            None => self.refusals.add(refusal),
        }
    }

    fn write_transfer_log(&self, transfer: &Transfer<'_>) {
        let Some(Err(error)) = self.transfer_log.as_ref().map(|log| log.record(transfer)) else {
            return;
        };
        self.metrics.count_lost_transfer_line();
        if let Some(untold) = tell("transfer log") {
            warn!(%error, untold, "the transfer log cannot be written");
        }
    }
}

/// With advice for what an administrator can change.
fn not_accepted(error: &io::Error) {
    let errno = Errno::from_io_error(error);
    if errno == Some(Errno::MFILE) {
        if let Some(untold) = tell("descriptors") {
            warn!(
                %error, untold,
                "a connection could not be accepted: raise LimitNOFILE of the service, or lower max-connections"
            );
        }
    } else if let Some(untold) = tell("accept") {
        warn!(%error, untold, "a connection could not be accepted");
    }
}

/// An audit record. The level and the target of an event are constants for `tracing`.
macro_rules! record {
    ($is_fault:expr, $($fields:tt)+) => {
        if $is_fault {
            warn!(target: AUDIT, $($fields)+);
        } else {
            info!(target: AUDIT, $($fields)+);
        }
    };
}

macro_rules! tell_transfer {
    (($is_listing:expr, $is_fault:expr), $($fields:tt)+) => {
        match ($is_listing, $is_fault) {
            (false, is_fault) => record!(is_fault, $($fields)+),
            (true, true) => warn!($($fields)+),
            (true, false) => info!($($fields)+),
        }
    };
}

fn file_operation(operation: &FileOperation<'_>) {
    let client = operation.client;
    record!(
        operation.is_fault,
        session = operation.session,
        peer = %client.peer,
        user = operation.user,
        account = client.account,
        identity = client.identity,
        vo = client.vo,
        role = client.role,
        task_id = operation.task_id,
        verb = operation.verb,
        path = operation.path,
        to = operation.to,
        value = operation.value,
        result = operation.code,
        error = operation.error,
        "file operation"
    );
}

fn transfer_finished(transfer: &Transfer<'_>) {
    /// Texts that are longer explain something.
    const SHORT: usize = 60;
    /// Bytes of a transfer that takes hardly longer than its line.
    const SMALL: u64 = 1 << 20;

    let client = transfer.client;
    let peers = List::of(transfer.peers.iter().map(IpAddr::to_canonical));
    // Counts of 0 explain nothing of a small file, and most of them have no others.
    let is_left_out = |value: &DetailValue| {
        transfer.bytes < SMALL && matches!(value, DetailValue::Count(0) | DetailValue::Shared(0))
    };
    let counted = transfer
        .details
        .iter()
        .filter(|detail| !is_left_out(&detail.value))
        // They are in `nodes`.
        .filter(|detail| detail.name != NODE_DETAIL);
    let short = List::of(
        counted
            .map(Detail::to_string)
            .filter(|detail| detail.len() <= SHORT),
    );
    let nodes = List::of(transfer.nodes.iter().map(|node| node.name.as_str()));
    // Listings move data, and change nothing.
    tell_transfer!(
        (
            transfer.verb.lists(),
            transfer.cause.is_some_and(FailureCause::is_fault)
        ),
        session = transfer.session,
        peer = %client.peer,
        user = transfer.user,
        account = client.account,
        identity = client.identity,
        vo = client.vo,
        role = client.role,
        task_id = transfer.task_id,
        verb = transfer.verb.name(),
        path = transfer.path,
        bytes = transfer.bytes,
        seconds = transfer.seconds(),
        channels = transfer.channels,
        stripes = transfer.stripes,
        peers = peers.as_ref().map(List::value),
        nodes = nodes.as_ref().map(List::value),
        way = transfer.movement.map(|movement| movement.way),
        details = short.as_ref().map(List::value),
        refused = transfer.refused,
        last_refusal = transfer.last_refusal.map(ToString::to_string),
        result = transfer.code,
        error = transfer.error,
        "transfer finished"
    );
    if !tracing::enabled!(tracing::Level::DEBUG) {
        return;
    }
    let details = List::of(transfer.details);
    debug!(
        session = transfer.session,
        way = transfer.movement.map(|movement| movement.way),
        why = transfer.movement.map(|movement| &*movement.reason),
        details = details.as_ref().map(List::value),
        "data channels"
    );
}
