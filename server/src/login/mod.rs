//! Decisions about logins, in a process of their own.
//!
//! The front process ([`crate::front`]) and the serving process have neither the host's key nor the password file nor the
//! maps, and no connection to the monitor. A small process, the login process, has them ([`process`]). It performs the
//! security handshake, so that it knows the identity of the client first hand, decides by maps and rules that it has read,
//! and is the only process for which the monitor starts brokers. The other processes ask it over sockets ([`client`]), each
//! only the questions that it needs. They get the keys of an established context, never the host's key.
//!
//! The decisions are made in [`authenticator`]. A server inside another program, and one that sshd started, decide in
//! their only process.

mod authenticator;
mod client;
mod configuration;
mod exchanges;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
#[cfg(test)]
mod grant_tests;
mod host_certificates;
mod host_key;
mod messages;
mod process;
mod readable;
mod service;
mod sockets;
mod verdicts;
mod watch;

use std::collections::HashSet;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use gridhaul_accounts::BrokerSource;
use gridhaul_security::certificate::Certificate;
use gridhaul_security::context::MessageProtection;
use gridhaul_security::credential::Credential;
use gridhaul_security::tls::{HostCertificate, HostSettings};
use rustls::ServerConfig;

use crate::passwords::{CheckPassword, Grant};
use crate::security::Authorized;
use crate::telemetry::{OpenLogs, OwnRights};

pub(crate) use authenticator::Authenticator;
pub use authenticator::AuthenticatorError;
pub(crate) use client::LoginClient;
pub(crate) use configuration::ConfigurationFile;
pub use process::LoginProcessError;
pub(crate) use process::{LoginProcess, Started};

/// Decides about logins. Every call may block: on files, and on computation.
pub(crate) trait Logins: CheckPassword + Send + Sync + fmt::Debug {
    /// Begins an exchange of security tokens (`ADAT`).
    fn exchange(&self) -> Box<dyn Exchange>;

    /// The grant of a name without a password: for anonymous users.
    fn without_password(&self, name: &str) -> Option<Grant>;

    /// The grant of a name whose password the front process has verified just before, for the serving process: once for each
    /// verification.
    fn redeem(&self, _name: &str) -> Option<Grant> {
        None
    }

    /// Claims a client whose exchange the front process has established: once.
    ///
    /// # Errors
    ///
    /// When there is no such client.
    fn claim(&self, _exchange: u64) -> Result<Claimed, String> {
        Err("no other process proves who clients are".to_owned())
    }

    /// The grants of all users with passwords, in no order.
    fn grants(&self) -> Vec<Grant>;

    /// The host's certificates as they are now, the leaf first; empty without any.
    fn host_chain(&self) -> Vec<Certificate>;

    /// The host's certificate for connections to data nodes. `None` if there is none that is good for hosts.
    fn host_certificate(&self) -> Option<HostCertificate>;

    /// What this server shows to enrolled data nodes, and whom it trusts there. `None` without `node-authority`, or when its file
    /// is another one now.
    fn for_nodes(&self) -> Option<HostSettings>;

    /// The TLS configuration for `AUTH TLS`; `None` without a certificate.
    fn host_tls(&self) -> Option<Arc<ServerConfig>>;
}

/// An exchange of security tokens in progress.
pub(crate) trait Exchange: Send + Sync + fmt::Debug {
    /// Takes the client's next token.
    ///
    /// # Errors
    ///
    /// The exchange is over; the client may begin another one.
    fn step(&mut self, token: &[u8]) -> Result<Progress, ExchangeError>;
}

/// The result of a token.
#[derive(Debug)]
pub(crate) enum Progress {
    /// A token for the client, which will send another one.
    Continue(Vec<u8>),
    /// The client is authenticated.
    Accepted(Box<Accepted>),
}

/// An authenticated client.
#[derive(Debug)]
pub(crate) struct Accepted {
    /// The last token for the client, unless it is empty.
    pub(crate) token: Vec<u8>,
    /// Protects commands and replies from now on.
    pub(crate) protection: MessageProtection,
    /// Version and cipher, for the log.
    pub(crate) description: String,
    /// In one-line form.
    pub(crate) identity: String,
    /// The credential for data channels, or why there is none. `None` in the front process: the serving process gets it
    /// ([`Logins::claim`]).
    pub(crate) delegated: Result<Option<Arc<Credential>>, String>,
    /// For [`Proof::authorize`].
    pub(crate) proof: Arc<dyn Proof>,
}

/// A client that was authenticated in the front process.
#[derive(Debug)]
pub(crate) struct Claimed {
    /// In one-line form.
    pub(crate) identity: String,
    /// The credential for data channels, or why there is none.
    pub(crate) delegated: Result<Arc<Credential>, String>,
    /// For [`Proof::authorize`].
    pub(crate) proof: Arc<dyn Proof>,
}

/// Represents an authenticated client. While it exists, brokers may be started for the account that the client was granted.
pub(crate) trait Proof: Send + Sync + fmt::Debug {
    /// The authorization of the client at `address`. `requested` is the account that it named, if it did.
    ///
    /// # Errors
    ///
    /// The reason, as the client reads it.
    fn authorize(&self, requested: Option<&str>, address: IpAddr) -> Result<Authorized, String>;

    /// The number by which the serving process claims the client ([`Logins::claim`]). `None` where there is no other
    /// process.
    fn exchange(&self) -> Option<u64> {
        None
    }
}

/// The reason why a token was not accepted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExchangeError {
    /// The client is not trusted, or violates the protocol.
    #[error("{0}")]
    Client(String),
    /// The server failed, and the client is not to blame.
    #[error("{0}")]
    Server(String),
}

/// The process that decides logins, and the part of this process.
#[derive(Debug, Clone)]
pub(crate) enum LoginBackend {
    /// This process decides.
    InProcess,
    /// The login process decides, and this is the serving process.
    Serving(Arc<LoginClient>),
    /// The login process decides, and this is the front process.
    Front(Arc<LoginClient>),
}

impl LoginBackend {
    /// Opens logs again after a rotation. `None` where the login process does that.
    pub(crate) fn logs(&self) -> Option<&dyn OpenLogs> {
        match self {
            Self::InProcess => Some(&OwnRights),
            Self::Front(_) | Self::Serving(_) => None,
        }
    }

    /// Watches the login process from the serving process, in a thread.
    ///
    /// # Errors
    ///
    /// When there is no thread.
    pub(crate) fn watch(&self) -> io::Result<()> {
        match self {
            Self::InProcess | Self::Front(_) => Ok(()),
            Self::Serving(client) => watch::start(client),
        }
    }

    /// The exchanges of clients that are served and whom a ban list or a rule refuses now.
    pub(crate) fn refused(&self) -> HashSet<u64> {
        match self {
            Self::InProcess | Self::Front(_) => HashSet::new(),
            Self::Serving(client) => client.refused(),
        }
    }

    /// The source of brokers, if local accounts have any.
    pub(crate) fn brokers(&self) -> Option<Arc<dyn BrokerSource>> {
        match self {
            Self::InProcess | Self::Front(_) => None,
            Self::Serving(client) => client
                .starts_brokers()
                .then(|| Arc::clone(client) as Arc<dyn BrokerSource>),
        }
    }
}
