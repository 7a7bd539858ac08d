//! The events of the server. The log, the transfer log and the metrics derive from them.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, SystemTime};

use gridhaul_protocol::command::Command;
use gridhaul_protocol::reply::Reply;
use gridhaul_security::voms::Fqan;
use gridhaul_stack::{Detail, Movement};
use gridhaul_storage::{ChecksumAlgorithm, ChecksumSource, FoundChecksum};
use gridhaul_transfer::Refusal;

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

/// Where a checksum comes from, as the log and the metrics say it.
pub(crate) fn source_name(source: ChecksumSource) -> &'static str {
    match source {
        ChecksumSource::Memory => "memory",
        ChecksumSource::Attribute => "attribute",
        ChecksumSource::Content => "content",
    }
}
