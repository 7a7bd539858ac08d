//! Who may log in, decided apart from the processes that talk to clients.
//!
//! The process that reads what strangers send ([`crate::front`]) and the one that serves clients hold neither the host's
//! key nor the password file nor the maps, and the monitor does not listen to them. A small process, the login process,
//! holds them ([`process`]): it makes the security handshake itself, so that it knows who proved what, decides by maps
//! and rules that it read itself, and is the only one for which the monitor starts brokers. The others ask it over sockets
//! of their own ([`client`]), each only what it has a reason to ask. They get the keys of the established context, never
//! those of the host.
//!
//! What is decided, and how, is in [`desk`], whichever process it runs in: a server inside another program, and one
//! that sshd started, have no login process.

mod client;
mod configuration;
mod desk;
mod exchanges;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
#[cfg(test)]
mod grants;
mod host_key;
mod messages;
mod office;
mod process;
mod readable;
mod verdicts;

use std::fmt;
use std::sync::Arc;

use gridhaul_accounts::BrokerSource;
use gridhaul_security::context::MessageProtection;
use gridhaul_security::credential::Credential;
use rustls::ServerConfig;

use crate::passwords::{CheckPassword, Grant};
use crate::security::Authorized;

pub(crate) use client::LoginClient;
pub(crate) use configuration::ConfigurationFile;
pub(crate) use desk::Desk;
pub use desk::DeskError;
pub use process::LoginProcessError;
pub(crate) use process::{LoginProcess, Started};

/// Decides who may log in. Every call may block: on files, and on computation.
pub(crate) trait Logins: CheckPassword + Send + Sync + fmt::Debug {
    /// Begins an exchange of security tokens (`ADAT`).
    fn exchange(&self) -> Box<dyn Exchange>;

    /// What a name may use without a password: anonymous users.
    fn without_password(&self, name: &str) -> Option<Grant>;

    /// What a name may use whose password was found right a moment ago, for the process that serves its client: once for
    /// each time. Only where another process asked for the password.
    fn redeem(&self, _name: &str) -> Option<Grant> {
        None
    }

    /// Takes a client over whose exchange another process went through: once.
    ///
    /// # Errors
    ///
    /// When there is no such client.
    fn claim(&self, _exchange: u64) -> Result<Claimed, String> {
        Err("no other process proves who clients are".to_owned())
    }

    /// What the users with passwords may use, in no order.
    fn grants(&self) -> Vec<Grant>;

    /// What `AUTH TLS` is accepted with; `None` without a certificate.
    fn host_tls(&self) -> Option<Arc<ServerConfig>>;
}

/// An exchange of security tokens under way.
pub(crate) trait Exchange: Send + Sync + fmt::Debug {
    /// Takes the client's next token.
    ///
    /// # Errors
    ///
    /// The exchange is over; the client may begin another one.
    fn step(&mut self, token: &[u8]) -> Result<Progress, ExchangeError>;
}

/// What came of a token.
#[derive(Debug)]
pub(crate) enum Progress {
    /// This goes to the client, and another token will come.
    Continue(Vec<u8>),
    /// The client is known.
    Accepted(Box<Accepted>),
}

/// A client that has proved who it is.
#[derive(Debug)]
pub(crate) struct Accepted {
    /// This goes to the client, if it is not empty.
    pub(crate) token: Vec<u8>,
    /// Protects commands and replies from now on.
    pub(crate) protection: MessageProtection,
    /// Version and cipher, for the log.
    pub(crate) description: String,
    /// In one-line form.
    pub(crate) identity: String,
    /// What data channels may present, or why there is nothing. `None` if the process that serves the client gets it
    /// ([`Logins::claim`]).
    pub(crate) delegated: Result<Option<Arc<Credential>>, String>,
    /// For [`Proof::authorize`].
    pub(crate) proof: Arc<dyn Proof>,
}

/// A client that has proved who it is to another process.
#[derive(Debug)]
pub(crate) struct Claimed {
    /// In one-line form.
    pub(crate) identity: String,
    /// What data channels may present, or why there is nothing.
    pub(crate) delegated: Result<Arc<Credential>, String>,
    /// For [`Proof::authorize`].
    pub(crate) proof: Arc<dyn Proof>,
}

/// That a client has proved who it is. While it exists, brokers may be started for the account that it was granted.
pub(crate) trait Proof: Send + Sync + fmt::Debug {
    /// What the client may use. `requested` is the account that it named, if it did.
    ///
    /// # Errors
    ///
    /// Why it may use nothing, as the client is told.
    fn authorize(&self, requested: Option<&str>) -> Result<Authorized, String>;

    /// The number by which the process that will serve the client claims it ([`Logins::claim`]). `None` where there is no
    /// other process.
    fn exchange(&self) -> Option<u64> {
        None
    }
}

/// Why a token was not accepted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExchangeError {
    /// The client is not who it has to be, or breaks the protocol.
    #[error("{0}")]
    Client(String),
    /// The server failed; it says nothing of the client.
    #[error("{0}")]
    Server(String),
}

/// Where logins are decided.
#[derive(Debug, Clone)]
pub(crate) enum Decides {
    /// In this process.
    Here,
    /// In the login process, and this one serves clients after they have logged in.
    Apart(Arc<LoginClient>),
    /// In the login process, and this one is the front process.
    Front(Arc<LoginClient>),
}

impl Decides {
    /// What starts brokers, if local accounts have any.
    pub(crate) fn brokers(&self) -> Option<Arc<dyn BrokerSource>> {
        match self {
            Self::Here | Self::Front(_) => None,
            Self::Apart(client) => client
                .starts_brokers()
                .then(|| Arc::clone(client) as Arc<dyn BrokerSource>),
        }
    }
}
