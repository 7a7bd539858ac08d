//! The messages between the login process and the others.
//!
//! The front process and the serving process ask, and the login process answers each question once. It treats each question
//! as if a client had written it, and answers each process only the questions that it needs.

use std::net::IpAddr;
use std::path::PathBuf;

use gridhaul_security::context::MessageKeys;
use gridhaul_security::secret::Secret;
use serde::{Deserialize, Serialize};

use crate::passwords::Grant;

/// A question, and the exchanges that have ended.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Asked<'a> {
    /// Exchanges that have ended since the last question.
    pub(super) ended: Vec<u64>,
    #[serde(borrow)]
    pub(super) question: Question<'a>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Question<'a> {
    /// Claims the established exchange of a client for the serving process, which owns it from then on: [`Answer::Claimed`]
    /// or [`Answer::Refused`].
    Claim(u64),
    /// The grant of a name whose password was verified just before: [`Answer::Granted`], once for each verification.
    Redeem(&'a str),
    /// A client's token. Without an exchange it begins one. [`Answer::Token`], [`Answer::Established`] or a refusal.
    Token {
        exchange: Option<u64>,
        token: &'a [u8],
    },
    /// The authorization of the client of an established exchange: [`Answer::Authorized`] or [`Answer::Refused`].
    Authorize {
        exchange: u64,
        requested: Option<&'a str>,
        /// The client's address, for the callout.
        address: IpAddr,
    },
    /// The grant of a name without a password: [`Answer::Granted`].
    WithoutPassword(&'a str),
    /// The grant of a name with a password: [`Answer::Granted`].
    Password { name: &'a str, password: &'a [u8] },
    /// The grants of all users with passwords: [`Answer::Grants`].
    Grants,
    /// A broker for an account that was granted to a connected client: [`Answer::Broker`], with its socket.
    Broker(Account),
    /// The host's certificates, if they are not the known ones: [`Answer::Host`].
    Host { known: Option<u64> },
    /// A signature with the host's key, for a TLS handshake: [`Answer::Signature`] or [`Answer::Failed`].
    Sign {
        host: u64,
        scheme: u16,
        message: &'a [u8],
    },
    /// The certificates for data nodes and the key that signs for them, with `node-authority`: as [`Self::Host`] and
    /// [`Self::Sign`].
    HostForNodes { known: Option<u64> },
    SignForNodes {
        host: u64,
        scheme: u16,
        message: &'a [u8],
    },
    /// Open the configuration file: [`Answer::Opened`], with the descriptor, or [`Answer::Failed`].
    Configuration,
    /// Read the configuration again: [`Answer::Reloaded`] or [`Answer::Failed`].
    Reload,
    /// Open the logs again, after a rotation, and have the log process continue in the new files: [`Answer::Done`] or
    /// [`Answer::Failed`].
    ReopenLogs,
    /// The exchanges of served clients whom a ban list or a rule refuses now: [`Answer::Exchanges`].
    Refused,
    /// Whether the process works: [`Answer::Done`].
    Alive,
}

/// The process that asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asker {
    /// The front process, which has the clients before login.
    Front,
    /// The serving process, which has the clients after login.
    Serving,
}

impl Question<'_> {
    /// Whether this process may ask. The login process closes the connection on any other question.
    pub(super) fn may_come_from(&self, asker: Asker) -> bool {
        match self {
            // The front process needs the host's key for control channels, the serving process for data channels of `AUTH
            // TLS`.
            Self::Authorize { .. }
            | Self::WithoutPassword(_)
            | Self::Host { .. }
            | Self::Sign { .. } => true,
            Self::Token { .. } | Self::Password { .. } => asker == Asker::Front,
            Self::Claim(_)
            | Self::Redeem(_)
            | Self::Grants
            | Self::Broker(_)
            | Self::HostForNodes { .. }
            | Self::SignForNodes { .. }
            | Self::Configuration
            | Self::Refused
            | Self::Alive
            | Self::Reload
            | Self::ReopenLogs => asker == Asker::Serving,
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    Done,
    /// What the files that decide logins have now, a line for each, and which ones would keep a server from starting.
    Reloaded {
        files: Vec<String>,
        unusable: Vec<String>,
    },
    /// With the descriptor.
    Opened,
    /// A token for the client, which will send another one.
    Token {
        exchange: u64,
        token: Vec<u8>,
    },
    Established(Box<Established>),
    Claimed(Claimed),
    /// The client is refused.
    Refused(String),
    /// The server failed.
    Failed(String),
    Authorized(Authorization),
    Granted(Option<Granted>),
    Grants(Vec<Granted>),
    /// The error number, if no process was started.
    Broker(Result<(), i32>),
    Host(Option<Host>),
    Signature(Vec<u8>),
    Exchanges(Vec<u64>),
}

/// An authenticated client.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Established {
    pub(super) exchange: u64,
    pub(super) token: Vec<u8>,
    pub(super) identity: String,
    pub(super) keys: MessageKeys,
    /// Whether a credential was delegated, or the reason why not. The serving process gets the credential.
    pub(super) delegated: Result<(), String>,
}

/// A client for the serving process.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Claimed {
    pub(super) identity: String,
    pub(super) delegated: Result<Delegated, String>,
}

/// A delegated credential.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Delegated {
    /// DER, leaf first.
    pub(super) chain: Vec<Vec<u8>>,
    /// PKCS#8.
    pub(super) key: Secret,
}

/// The authorization of an identity: [`crate::security::Authorized`].
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Authorization {
    pub(super) account: String,
    /// The directory that the session sees as `/`.
    pub(super) root: PathBuf,
    pub(super) read_only: bool,
    pub(super) attributes: Vec<String>,
    pub(super) notes: Vec<String>,
}

/// The grant of a name: [`crate::passwords::Grant`].
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Granted {
    pub(super) root: Option<PathBuf>,
    pub(super) read_only: bool,
}

impl From<Granted> for Grant {
    fn from(granted: Granted) -> Self {
        Self {
            root: granted.root,
            read_only: granted.read_only,
        }
    }
}

impl From<Grant> for Granted {
    fn from(grant: Grant) -> Self {
        Self {
            root: grant.root,
            read_only: grant.read_only,
        }
    }
}

/// The account of a broker, and its directory.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Account {
    pub(super) account: String,
    pub(super) root: PathBuf,
    pub(super) read_only: bool,
}

/// The host's certificates.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Host {
    /// The known certificates are the present ones.
    Same,
    /// Other certificates.
    New {
        /// The number of these certificates in [`Question::Sign`].
        host: u64,
        /// DER, leaf first.
        chain: Vec<Vec<u8>>,
        /// The signature schemes of the key, as TLS numbers them.
        schemes: Vec<u16>,
    },
}
