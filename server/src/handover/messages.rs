//! The messages between the front process and the serving process.

use gridhaul_security::context::MessageKeys;
use gridhaul_security::tls::ConnectionKeys;
use serde::{Deserialize, Serialize};

use crate::status::RefusalStatus;

/// From the front process. The serving process derives no rights from it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToServing {
    /// A client that may log in, with its connection.
    Handed(Box<Handed>),
    /// A client that was refused, for administrators.
    Refused(Box<RefusalStatus>),
    /// The only client that the server was started for has gone.
    Gone,
}

/// From the serving process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToFront {
    /// Accept connections.
    Start,
    /// The client of this session is gone.
    Ended(u64),
    /// The client of this session sent `REIN`: its connection, and the input after the command.
    Returned { session: u64, input: Vec<u8> },
    /// Read the configuration again. The descriptor is that of the configuration file, if there is one.
    Reload,
    /// Accept no more connections.
    StopAccepting,
    /// Accept no more connections, and end those that have not logged in.
    Drain,
}

/// A client that may log in.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Handed {
    /// Its number in the log.
    pub(crate) session: u64,
    /// As in `USER`.
    pub(crate) name: String,
    pub(crate) proof: HandedProof,
    pub(crate) protection: HandedProtection,
    /// The commands about protection that succeeded before the login, as lines.
    pub(crate) agreed: Vec<String>,
    /// The input after the login.
    pub(crate) input: Vec<u8>,
}

/// How the client logged in. The login process confirms it.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) enum HandedProof {
    /// As an anonymous user.
    Anonymous,
    Password,
    /// With a certificate, in this exchange.
    Certificate {
        exchange: u64,
    },
}

/// What protects the connection.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum HandedProtection {
    Clear,
    Gsi(Box<MessageKeys>),
    Tls(Box<ConnectionKeys>),
}

impl HandedProtection {
    /// The mechanism as in `AUTH`, and the version of TLS with its cipher; `None` in clear.
    pub(crate) fn described(&self) -> Option<(&'static str, &str)> {
        match self {
            Self::Clear => None,
            Self::Gsi(keys) => Some(("GSSAPI", keys.description())),
            Self::Tls(keys) => Some(("TLS", keys.description())),
        }
    }
}
