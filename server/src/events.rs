//! What happens in the server, defined once. The log, the transfer log and the metrics derive from it.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use gridhaul_protocol::command::Command;
use gridhaul_protocol::reply::Reply;
use gridhaul_security::voms::Fqan;
use gridhaul_stack::{Detail, Movement};
use gridhaul_storage::{ChecksumAlgorithm, ChecksumSource, FoundChecksum};
use gridhaul_transfer::Refusal;
use tracing::{debug, info, warn};

use crate::admission::{Network, Notices};
use crate::front::FrontCounts;
use crate::metrics::Metrics;
use crate::transfer_log::TransferLog;
use crate::transfer_verb::TransferVerb;

/// Something that an administrator may want to know.
#[derive(Debug)]
pub(crate) enum Event<'a> {
    /// A client connected.
    SessionOpened { session: u64, peer: SocketAddr },
    /// A client was turned away before anything was read from it.
    ConnectionRefused { peer: SocketAddr, reason: &'a str },
    /// A connection could not be accepted.
    NotAccepted { error: &'a io::Error },
    /// A control channel is protected.
    Authenticated {
        session: u64,
        /// As in `AUTH`.
        mechanism: &'a str,
        /// The version of TLS and its cipher.
        protection: &'a str,
        /// Who the client proved to be, in one-line form.
        identity: Option<&'a str>,
        /// Whether there is a credential for data channels, or why not.
        delegated: Option<&'a str>,
    },
    /// A client did not prove who it is, or broke the protocol.
    AuthenticationFailed {
        session: u64,
        peer: IpAddr,
        mechanism: &'a str,
        /// It names the certificate that is wrong, if one is.
        reason: &'a str,
    },
    /// Something that would have been needed to protect a channel cannot be used.
    SecurityUnusable { session: u64, reason: &'a str },
    /// A part of what a client proved does not count.
    AttributeIgnored { session: u64, reason: &'a str },
    /// A client logged in.
    LoggedIn {
        session: u64,
        user: &'a str,
        /// Who it proved to be, in one-line form.
        identity: Option<&'a str>,
        attributes: &'a [Fqan],
        read_only: bool,
    },
    /// A client tried to.
    LoginFailed {
        session: u64,
        peer: IpAddr,
        user: &'a str,
        /// As above.
        identity: Option<&'a str>,
        reason: &'a str,
    },
    /// What a client sent in a session with protected commands could not be believed.
    ProtectionBroken {
        session: u64,
        peer: IpAddr,
        identity: Option<&'a str>,
        reason: &'a str,
    },
    /// What the client says of itself.
    ClientInfo { session: u64, info: &'a str },
    /// A command, as the client sent it, without secrets.
    Command { session: u64, command: &'a Command },
    /// What the client was told.
    Reply { session: u64, reply: &'a Reply },
    /// A transfer ended.
    TransferFinished(&'a Transfer<'a>),
    /// The checksum of a file, or of a part of one, was found.
    ChecksumFound {
        session: u64,
        algorithm: ChecksumAlgorithm,
        found: &'a FoundChecksum,
        /// How long it took, without the wait for a turn.
        took: Duration,
    },
    /// A client is gone.
    SessionClosed { session: u64, reason: &'a str },
}

/// A transfer that ended, in success or not.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Transfer<'a> {
    pub(crate) session: u64,
    pub(crate) user: &'a str,
    pub(crate) verb: TransferVerb,
    /// The absolute path as the session sees it.
    pub(crate) path: &'a str,
    pub(crate) started: SystemTime,
    pub(crate) finished: SystemTime,
    pub(crate) bytes: u64,
    pub(crate) channels: usize,
    pub(crate) stripes: usize,
    pub(crate) peers: &'a [IpAddr],
    /// Data connections of strangers, which were closed.
    pub(crate) refused: usize,
    /// The last of them that did not prove who it is.
    pub(crate) last_refusal: Option<&'a Refusal>,
    pub(crate) buffer_bytes: usize,
    pub(crate) block_bytes: usize,
    /// How the driver moved the bytes, where it had a choice.
    pub(crate) movement: Option<&'a Movement>,
    /// What drivers told of the channels.
    pub(crate) details: &'a [Detail],
    /// What was computed while the file arrived.
    pub(crate) checksums: &'a [(ChecksumAlgorithm, String)],
    /// The code of the last reply.
    pub(crate) code: u16,
    pub(crate) error: Option<&'a str>,
    /// From `SITE TASKID`.
    pub(crate) task_id: Option<&'a str>,
}

impl Transfer<'_> {
    /// How long it took; a clock that was set back meanwhile says 0.
    pub(crate) fn seconds(&self) -> f64 {
        let taken = self.finished.duration_since(self.started);
        taken.unwrap_or_default().as_secs_f64()
    }
}

/// Where events go.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    pub(crate) transfer_log: Option<TransferLog>,
    pub(crate) metrics: Metrics,
    refused: Refused,
    notices: Notices,
}

/// How many of each there were since the start. The log tells it in every line, so that a flood is seen in any of them.
/// A network gets few lines ([`Notices`]); `untold` is how many of its refusals had none since the last one.
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
    /// `front` is what the front process counts, if there is one.
    pub(crate) fn new(transfer_log: Option<TransferLog>, front: Option<FrontCounts>) -> Self {
        Self {
            transfer_log,
            metrics: Metrics::with_front(front),
            refused: Refused::default(),
            notices: Notices::default(),
        }
    }

    /// For the front process, which counts for another one.
    pub(crate) fn of_front(counts: FrontCounts) -> Self {
        Self {
            metrics: Metrics::of_front(counts),
            ..Self::default()
        }
    }

    /// Counts the event and passes it to every listener.
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
                // It has no peer. All of them count as one network.
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

    /// Whether a refusal of this peer gets a line, and how many had none before.
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
            warn!(%error, "the transfer log cannot be written");
        }
    }
}

/// Where a checksum comes from, as the log and the metrics say it.
pub(crate) fn source_name(source: ChecksumSource) -> &'static str {
    match source {
        ChecksumSource::Memory => "memory",
        ChecksumSource::Attribute => "attribute",
        ChecksumSource::Content => "content",
    }
}

/// `None` for none, so that the log does not speak of what most sessions lack.
fn joined(attributes: &[Fqan]) -> Option<String> {
    let names: Vec<&str> = attributes.iter().map(Fqan::as_str).collect();
    (!names.is_empty()).then(|| names.join(" "))
}

/// As above.
fn listed(details: &[Detail]) -> Option<String> {
    let details: Vec<String> = details.iter().map(Detail::to_string).collect();
    (!details.is_empty()).then(|| details.join(" "))
}
