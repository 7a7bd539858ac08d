//! The events of the server. The log, the transfer log and the metrics derive from them.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, SystemTime};

use gridhaul_protocol::command::Command;
use gridhaul_protocol::reply::Reply;
use gridhaul_security::voms::Fqan;
use gridhaul_stack::{Detail, Movement};
use gridhaul_storage::{ChecksumAlgorithm, ChecksumSource, FoundChecksum};
use gridhaul_transfer::{NodePart, Refusal};

use crate::transfer_verb::TransferVerb;

/// The client of an audit record, after its login.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Client<'a> {
    pub(crate) peer: IpAddr,
    /// The local account whose files it uses.
    pub(crate) account: Option<&'a str>,
    /// The authenticated identity, in one-line form.
    pub(crate) identity: Option<&'a str>,
    /// The virtual organization of its primary VOMS attribute.
    pub(crate) vo: Option<&'a str>,
    /// The role of this attribute.
    pub(crate) role: Option<&'a str>,
}

/// An event that may interest an administrator.
#[derive(Debug)]
pub(crate) enum Event<'a> {
    /// A client connected.
    SessionOpened { session: u64, peer: SocketAddr },
    /// A connection was refused before the server read from it.
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
        /// The authenticated identity, in one-line form.
        identity: Option<&'a str>,
        /// Whether there is a credential for data channels, or the reason why not.
        delegated: Option<&'a str>,
    },
    /// A client failed to authenticate, or violated the protocol.
    AuthenticationFailed {
        session: u64,
        peer: IpAddr,
        mechanism: &'a str,
        /// The reason, with the name of a wrong certificate.
        reason: &'a str,
    },
    /// A credential for the protection of a channel cannot be used.
    SecurityUnusable { session: u64, reason: &'a str },
    /// A VOMS attribute of the client is not valid.
    AttributeIgnored { session: u64, reason: &'a str },
    /// A client logged in.
    LoggedIn {
        session: u64,
        user: &'a str,
        client: Client<'a>,
        /// The protection of the control channel: the version of TLS and its cipher. `None` is none.
        protection: Option<&'a str>,
        attributes: &'a [Fqan],
        read_only: bool,
    },
    /// A login was refused.
    LoginFailed {
        session: u64,
        peer: IpAddr,
        user: &'a str,
        /// As above.
        identity: Option<&'a str>,
        reason: &'a str,
    },
    /// A protected command of a client could not be verified.
    ProtectionBroken {
        session: u64,
        peer: IpAddr,
        identity: Option<&'a str>,
        reason: &'a str,
    },
    /// The client described itself (`CLIENTINFO`).
    ClientInfo { session: u64, info: &'a str },
    /// A command without its secrets.
    Command { session: u64, command: &'a Command },
    /// A reply to the client.
    Reply { session: u64, reply: &'a Reply },
    /// A transfer ended.
    TransferFinished(&'a Transfer<'a>),
    /// A command that changes names or attributes of files was carried out or failed, or a transfer was refused before it
    /// began.
    FileOperation(&'a FileOperation<'a>),
    /// A command that changes nothing failed, and the server is to blame.
    CommandFailed {
        session: u64,
        peer: IpAddr,
        user: &'a str,
        error: &'a str,
    },
    /// No port of the configured range is free for a data connection.
    PortsExhausted {
        session: u64,
        peer: IpAddr,
        /// The range.
        error: &'a str,
    },
    /// Data connections of a transfer were refused: of other hosts, or without authentication.
    DataConnectionRefused {
        session: u64,
        /// The client of the session.
        peer: IpAddr,
        refused: usize,
        /// The last of them that failed to authenticate.
        last: Option<&'a Refusal>,
    },
    /// A checksum of a file, or of a part of a file, was computed or found.
    ChecksumFound {
        session: u64,
        algorithm: ChecksumAlgorithm,
        found: &'a FoundChecksum,
        /// The duration, without waiting in queues.
        took: Duration,
    },
    /// A session ended.
    SessionClosed { session: u64, reason: &'a str },
}

/// A command that changes files without moving data, successful or not.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FileOperation<'a> {
    pub(crate) session: u64,
    pub(crate) user: &'a str,
    pub(crate) client: Client<'a>,
    /// From `SITE TASKID`.
    pub(crate) task_id: Option<&'a str>,
    /// The command, with `SITE` if it is one of those.
    pub(crate) verb: &'a str,
    /// The absolute path as the session sees it. `None` for `RNTO` without `RNFR`.
    pub(crate) path: Option<&'a str>,
    /// The new name of `RNTO`, or the target of a symbolic link.
    pub(crate) to: Option<&'a str>,
    /// The new value of an attribute.
    pub(crate) value: Option<&'a str>,
    /// The code of the reply. `None` if the session ended before.
    pub(crate) code: Option<u16>,
    pub(crate) error: Option<&'a str>,
    /// The server is to blame for the failure.
    pub(crate) is_fault: bool,
}

/// A finished transfer, successful or not.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Transfer<'a> {
    pub(crate) session: u64,
    pub(crate) user: &'a str,
    pub(crate) client: Client<'a>,
    pub(crate) verb: TransferVerb,
    /// The absolute path as the session sees it.
    pub(crate) path: &'a str,
    pub(crate) started: SystemTime,
    pub(crate) finished: SystemTime,
    pub(crate) bytes: u64,
    pub(crate) channels: usize,
    pub(crate) stripes: usize,
    pub(crate) peers: &'a [IpAddr],
    /// The data nodes that took part. Empty for this process.
    pub(crate) nodes: &'a [NodePart],
    /// Refused data connections, of other hosts or without authentication.
    pub(crate) refused: usize,
    /// The last of them that failed to authenticate.
    pub(crate) last_refusal: Option<&'a Refusal>,
    pub(crate) buffer_bytes: usize,
    pub(crate) block_bytes: usize,
    /// The driver's choice of how to move the bytes, if it had one.
    pub(crate) movement: Option<&'a Movement>,
    /// The drivers' reports about the channels.
    pub(crate) details: &'a [Detail],
    /// Those of them that the metrics have counted while the transfer ran.
    pub(crate) counted: &'a [Detail],
    /// The checksums that were computed while the file arrived.
    pub(crate) checksums: &'a [(ChecksumAlgorithm, String)],
    /// The code of the last reply.
    pub(crate) code: u16,
    pub(crate) error: Option<&'a str>,
    /// The side at fault, if it failed.
    pub(crate) cause: Option<FailureCause>,
    /// From `SITE TASKID`.
    pub(crate) task_id: Option<&'a str>,
}

/// Who made a transfer fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailureCause {
    /// The client: a file that is not there, a wrong order of commands, an aborted transfer.
    Client,
    /// The other end of the data channels, or the network.
    Peer,
    /// The file system: I/O errors.
    Storage,
    /// The file system has no space.
    DiskFull,
    /// The server: out of a resource.
    Server,
    /// An administrator, who ended the transfer, its session or the server.
    Administrator,
}

impl FailureCause {
    pub(crate) const ALL: [Self; 6] = [
        Self::Client,
        Self::Peer,
        Self::Storage,
        Self::DiskFull,
        Self::Server,
        Self::Administrator,
    ];

    /// Whether the server or its storage failed.
    pub(crate) fn is_fault(self) -> bool {
        matches!(self, Self::Storage | Self::DiskFull | Self::Server)
    }

    /// The label of metrics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Peer => "peer",
            Self::Storage => "storage",
            Self::DiskFull => "disk_full",
            Self::Server => "server",
            Self::Administrator => "administrator",
        }
    }
}

#[cfg(test)]
impl Client<'static> {
    /// An anonymous user of this machine.
    pub(crate) const LOCAL: Self = Self {
        peer: IpAddr::V4(std::net::Ipv4Addr::LOCALHOST),
        account: None,
        identity: None,
        vo: None,
        role: None,
    };
}

impl Transfer<'_> {
    /// The duration; 0 if the clock was set back meanwhile.
    pub(crate) fn seconds(&self) -> f64 {
        let taken = self.finished.duration_since(self.started);
        taken.unwrap_or_default().as_secs_f64()
    }
}

/// The source of a checksum in the log and the metrics.
pub(crate) fn source_name(source: ChecksumSource) -> &'static str {
    match source {
        ChecksumSource::Memory => "memory",
        ChecksumSource::Attribute => "attribute",
        ChecksumSource::Content => "content",
    }
}
