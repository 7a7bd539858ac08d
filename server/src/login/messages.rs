//! What the login process and the others say to each other.
//!
//! The processes that talk to clients ask, the login process answers: one answer to each question. It believes nothing of
//! a question but that a client may have caused it, and answers each process only what that one has a reason to ask.

use std::path::PathBuf;

use gridhaul_security::context::MessageKeys;
use gridhaul_security::secret::Secret;
use serde::{Deserialize, Serialize};

use crate::passwords::Grant;

/// A question, and what is no longer needed.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Asked<'a> {
    /// Exchanges that are over since the last question.
    pub(super) ended: Vec<u64>,
    #[serde(borrow)]
    pub(super) question: Question<'a>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Question<'a> {
    /// The client of an established exchange is to be served. It belongs to the serving process from then on:
    /// [`Answer::Claimed`] or [`Answer::Refused`].
    Claim(u64),
    /// What a name may use whose password was found right a moment ago: [`Answer::Granted`], once for each time.
    Redeem(&'a str),
    /// A client's token; without an exchange it begins one. [`Answer::Token`], [`Answer::Established`] or a refusal.
    Token {
        exchange: Option<u64>,
        token: &'a [u8],
    },
    /// What the client of an established exchange may use: [`Answer::Authorized`] or [`Answer::Refused`].
    Authorize {
        exchange: u64,
        requested: Option<&'a str>,
    },
    /// What a name may use without a password: [`Answer::Granted`].
    WithoutPassword(&'a str),
    /// What a name may use with a password: [`Answer::Granted`].
    Password { name: &'a str, password: &'a [u8] },
    /// What the users with passwords may use: [`Answer::Grants`].
    Grants,
    /// A broker for an account that a client who is still there was granted: [`Answer::Broker`], with its socket.
    Broker(Account),
    /// The host's certificates, if they are others than these: [`Answer::Host`].
    Host { known: Option<u64> },
    /// A signature with the host's key, for a TLS handshake: [`Answer::Signature`] or [`Answer::Failed`].
    Sign {
        host: u64,
        scheme: u16,
        message: &'a [u8],
    },
    /// Open the configuration file: [`Answer::Opened`], with the descriptor, or [`Answer::Failed`].
    Configuration,
    /// Read the configuration again: [`Answer::Done`] or [`Answer::Failed`].
    Reload,
}

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asker {
    /// The front process, which strangers talk to.
    Front,
    /// The serving process, which has clients after they have logged in.
    Serving,
}

impl Question<'_> {
    /// Whether this process has a reason to ask. The login process closes the connection on which another question comes.
    pub(super) fn may_come_from(&self, asker: Asker) -> bool {
        match self {
            // The host's key is for control channels in the one, and for data channels of `AUTH TLS` in the other.
            Self::Authorize { .. }
            | Self::WithoutPassword(_)
            | Self::Host { .. }
            | Self::Sign { .. } => true,
            Self::Token { .. } | Self::Password { .. } => asker == Asker::Front,
            Self::Claim(_)
            | Self::Redeem(_)
            | Self::Grants
            | Self::Broker(_)
            | Self::Configuration
            | Self::Reload => asker == Asker::Serving,
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    Done,
    /// The descriptor comes with it.
    Opened,
    /// For the client, and another token will come.
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
    /// The kernel's number, if no process was started.
    Broker(Result<(), i32>),
    Host(Option<Host>),
    Signature(Vec<u8>),
}

/// A client that has proved who it is.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Established {
    pub(super) exchange: u64,
    pub(super) token: Vec<u8>,
    pub(super) identity: String,
    pub(super) keys: MessageKeys,
    /// Whether a credential was delegated, or why there is none. The serving process gets it.
    pub(super) delegated: Result<(), String>,
}

/// A client that is to be served.
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

/// What an identity may use: [`crate::security::Authorized`].
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Authorization {
    pub(super) account: String,
    /// What the session sees as `/`.
    pub(super) root: PathBuf,
    pub(super) read_only: bool,
    pub(super) attributes: Vec<String>,
    pub(super) notes: Vec<String>,
}

/// What a name may use: [`crate::passwords::Grant`].
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

/// Whose files a broker is for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Account {
    pub(super) account: String,
    pub(super) root: PathBuf,
    pub(super) read_only: bool,
}

/// The host's certificates.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Host {
    /// They are those that are known.
    Same,
    /// Other ones.
    New {
        /// Names this state of them in [`Question::Sign`].
        host: u64,
        /// DER, leaf first.
        chain: Vec<Vec<u8>>,
        /// What the key can sign with, as TLS numbers them.
        schemes: Vec<u16>,
    },
}
