//! Errors of a control channel.

use std::io;
use std::time::Duration;

use gridhaul_protocol::address::PassiveReplyError;
use gridhaul_protocol::reply::{Reply, ReplyError};
use gridhaul_security::context::ContextError;

/// Why a dialogue with a server failed.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The name of the host has no address.
    #[error("{host}: the name cannot be looked up: {error}")]
    LookUp {
        /// The name.
        host: String,
        /// The resolver's words.
        error: io::Error,
    },
    /// No address of the server answers.
    #[error("cannot connect to {server}: {error}")]
    Connect {
        /// The server.
        server: String,
        /// Of the last address.
        error: io::Error,
    },
    /// ssh cannot be started.
    #[error("{program} cannot be started: {error}")]
    Ssh {
        /// The program.
        program: String,
        /// Why not.
        error: io::Error,
    },
    /// ssh has ended, and has said why on standard error.
    #[error("ssh ended without a greeting of the server: its messages say why")]
    SshEnded,
    /// The connection broke.
    #[error("the control connection broke: {0}")]
    Connection(#[source] io::Error),
    /// The server closed the connection.
    #[error("the server closed the control connection")]
    Closed,
    /// The server sent no reply in time.
    #[error("the server sent no reply to {verb} within {} s", within.as_secs())]
    Silent {
        /// The command.
        verb: &'static str,
        /// The limit.
        within: Duration,
    },
    /// The server sends preliminary replies without end.
    #[error("the server sent more than {limit} preliminary replies to {verb}")]
    Flood {
        /// The command.
        verb: &'static str,
        /// The most that are read.
        limit: usize,
    },
    /// The server sends preliminary replies faster than it can have anything to say.
    #[error(
        "the server sent more than {limit} preliminary replies to {verb} within {} s", within.as_secs()
    )]
    TooManyReplies {
        /// The command.
        verb: &'static str,
        /// The most that are read in this time.
        limit: usize,
        /// The time.
        within: Duration,
    },
    /// The server's bytes are no replies.
    #[error(transparent)]
    Reply(#[from] ReplyError),
    /// The server refused a command.
    #[error("the server refused {verb}: {}", words(reply))]
    Refused {
        /// The command.
        verb: &'static str,
        /// The reply.
        reply: Reply,
    },
    /// The reply to a request for a data port has no usable address.
    #[error(
        "the server sent no usable address for data connections ({error}): {}",
        words(reply)
    )]
    PassiveAddress {
        /// The reply.
        reply: Reply,
        /// The reason.
        error: PassiveReplyError,
    },
    /// A value has characters that commands cannot have, or is too long.
    #[error("{0} cannot be sent to a server")]
    Unsendable(&'static str),
    /// A reply that does not answer the command.
    #[error(
        "the server answered {verb} with a reply that has no meaning there: {}",
        words(reply)
    )]
    Unexpected {
        /// The command.
        verb: &'static str,
        /// The reply.
        reply: Reply,
    },
    /// Bytes in the clear came before the protected ones.
    #[error(
        "bytes came in the clear before the protection began: another host on the way may have sent them"
    )]
    Injected,
    /// The security exchange failed.
    #[error("the security exchange failed: {0}")]
    Security(#[from] ContextError),
    /// There is no TLS with the server.
    #[error("the TLS handshake with the server failed: {0}")]
    Tls(String),
    /// Sessions with TLS have no mutual authentication of data channels.
    #[error(
        "data channels of ftps are encrypted, and the server proves its name: leave --dcau out, or say --dcau none"
    )]
    NoMutual,
    /// Several data nodes are demanded, and the server has no commands for them.
    #[error("the server cannot stripe: there is no SPAS and SPOR in its FEAT; leave --stripe out")]
    NoStripes,
    /// The data nodes of the server are at other hosts than its control channel.
    #[error(
        "the data nodes of the server are at other hosts, which this machine connects to only after a login with a certificate: use a gsiftp URL, or leave --stripe out"
    )]
    StripesElsewhere,
    /// The server takes no credential for data channels.
    #[error(
        "the server does not support credentials for data channels: there is no DCSC in its FEAT"
    )]
    NoDataCredential,
    /// The key of a credential would go over a control connection in the clear.
    #[error(
        "the key of a credential for data channels is not sent in the clear: use a gsiftp or sshftp URL, or a temporary credential"
    )]
    ClearKey,
    /// A protected reply has no token, or a token with something else than a reply.
    #[error("the server sent a protected reply that cannot be read")]
    Unreadable,
    /// A reply in the clear on a protected channel ends the session.
    #[error("a reply without protection came: {}", words(.0))]
    Clear(Reply),
    /// The server is another host.
    #[error(
        "{host} presents the certificate of {presented}, and the names do not match: check the URL, or say --subject if this is the right server"
    )]
    OtherHost {
        /// The host that was dialled.
        host: String,
        /// Hosts or subject of the certificate.
        presented: String,
    },
}

impl ControlError {
    /// Whether the same may succeed later. RFC 959 4.2.1: 4yz is for errors that pass; globus-gridftp-server also has 500 for data
    /// connections that break, after bytes `has_moved`.
    pub(crate) fn is_transient(&self, has_moved: bool) -> bool {
        match self {
            Self::Connect { .. } | Self::Connection(_) | Self::Closed | Self::Silent { .. } => true,
            Self::Refused { reply, .. } => {
                reply.code() / 100 == 4 || has_moved && reply.code() == 500
            }
            // Servers end sessions in the clear, too.
            Self::Clear(reply) => reply.code() == 421,
            _ => false,
        }
    }

    /// Whether the server says that a file does not exist, or cannot be reached. RFC 959 4.2.1: 550.
    pub(crate) fn is_about_absence(&self) -> bool {
        matches!(self, Self::Refused { reply, .. } if reply.code() == 550)
    }

    /// Whether another upload has the file. RFC 959 4.2.1: 450 is for a file that is busy. gridhaul-server has 426, with these words, for an
    /// upload that a later one has replaced.
    pub(crate) fn is_in_use(&self) -> bool {
        const WORDS: &str = "another upload of";

        matches!(self, Self::Refused { reply, .. } if reply.code() == 450 || words(reply).contains(WORDS))
    }

    /// Whether the server has no room left for files of this user. RFC 959 4.2.1: 452 and 552. globus-gridftp-server has other codes with
    /// the words of the operating system; gridhaul has 552 also for files that are too large for the file system.
    pub(crate) fn is_about_room(&self) -> bool {
        const WORDS: [&str; 2] = ["No space left on device", "Disk quota exceeded"];

        let Self::Refused { reply, .. } = self else {
            return false;
        };
        let words = words(reply);
        matches!(reply.code(), 452 | 552) && !words.contains("File too large")
            || WORDS.iter().any(|one| words.contains(one))
    }
}

/// A reply as one line: the code, and the texts of all lines.
fn words(reply: &Reply) -> String {
    let lines: Vec<_> = reply
        .lines()
        .map(|line| String::from_utf8_lossy(line).trim().to_owned())
        .filter(|line| !line.is_empty() && line != "End.")
        .collect();
    format!("{} {}", reply.code(), lines.join("; "))
}
