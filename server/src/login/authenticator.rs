//! The decision about a login: passwords, security contexts and authorization.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use gridhaul_security::certificate::Certificate;
use gridhaul_security::context::{Context, MessageKeys, MessageProtection, Step};
use gridhaul_security::credential::Credential;
use gridhaul_security::trust::Peer;
use rustls::ServerConfig;

use crate::config::{self, Config};
use crate::passwords::{CheckPassword, Grant, Memory, Passwords, PasswordsError};
use crate::security::{Authorized, Identities, Opener, SecurityError, chain, server_config};

use super::{Accepted, Exchange, ExchangeError, Logins, Progress, Proof};

/// The configuration of logins, and the files that it names.
#[derive(Debug)]
pub(crate) struct Authenticator {
    anonymous: Option<config::Anonymous>,
    passwords: Passwords,
    /// Memory for hashing that is free: at most one block for each thread.
    memory: Arc<Mutex<Vec<Memory>>>,
    identities: Option<Arc<Identities>>,
}

/// A file that decides logins and cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AuthenticatorError {
    /// The password file is wrong.
    #[error(transparent)]
    Passwords(#[from] PasswordsError),
    /// A certificate, a trust directory or a map is wrong.
    #[error(transparent)]
    Security(#[from] SecurityError),
}

/// The result of a token, before the keys go to this process or another one.
#[derive(Debug)]
pub(super) enum Stepped {
    /// A reply token. The client will send another one.
    Continue(Vec<u8>),
    /// The client is authenticated.
    Established(Box<Established>),
}

/// An authenticated client.
#[derive(Debug)]
pub(super) struct Established {
    pub(super) token: Vec<u8>,
    pub(super) peer: Peer,
    pub(super) keys: MessageKeys,
    pub(super) delegated: Result<Credential, String>,
}

impl Authenticator {
    /// Reads the files that a configuration names. Files that `previous` has read may not be readable any more, so they are
    /// not read again here, but when they are needed.
    pub(crate) fn load(
        config: &Config,
        opener: &Opener,
        previous: Option<&Self>,
    ) -> Result<Self, AuthenticatorError> {
        let passwords = match &config.passwords {
            Some(path) => Passwords::read_with(path, opener)?,
            None => Passwords::default(),
        };
        let memory = previous.map(|previous| Arc::clone(&previous.memory));
        let previous = previous.and_then(|previous| previous.identities.as_deref());
        Ok(Self {
            anonymous: config.anonymous.clone(),
            passwords,
            memory: memory.unwrap_or_default(),
            identities: Identities::load(&config.security, opener, previous)?,
        })
    }

    /// Only users with passwords.
    #[cfg(test)]
    pub(crate) fn of_passwords(passwords: Passwords) -> Self {
        Self {
            anonymous: None,
            passwords,
            memory: Arc::default(),
            identities: None,
        }
    }

    /// Begins to make keys in advance. Must not be called before the process may have threads.
    pub(crate) fn start(&self) -> io::Result<()> {
        match &self.identities {
            Some(identities) => identities.start(),
            None => Ok(()),
        }
    }

    /// The host's certificate and key as they are now.
    pub(super) fn host(&self) -> Option<Arc<Credential>> {
        self.identities.as_ref().map(|identities| identities.host())
    }

    /// Takes a client's token; the first one begins the context. Reads files, and computes for long.
    pub(super) fn step(
        &self,
        context: &mut Option<Context>,
        token: &[u8],
    ) -> Result<Stepped, ExchangeError> {
        let mut current = match context.take() {
            Some(context) => context,
            None => self.begin()?,
        };
        // There is no place for an alert in a reply that says no.
        let mut alert = Vec::new();
        match current.step(token, &mut alert).map_err(refused)? {
            Step::Continue(token) => {
                *context = Some(current);
                Ok(Stepped::Continue(token))
            }
            Step::Done(token) => {
                let established = current.into_established().map_err(refused)?;
                let delegated = match established.delegated {
                    Some(Ok(credential)) => Ok(credential),
                    Some(Err(error)) => {
                        Err(format!("the delegated credential cannot be used: {error}"))
                    }
                    None => Err("no credential was delegated".to_owned()),
                };
                Ok(Stepped::Established(Box::new(Established {
                    token,
                    peer: established.peer,
                    keys: established.keys,
                    delegated,
                })))
            }
        }
    }

    fn begin(&self) -> Result<Context, ExchangeError> {
        let identities = self.identities.as_ref();
        let settings = identities.and_then(|identities| Some((identities, identities.login()?)));
        let Some((identities, settings)) = settings else {
            let reason = "certificates are not accepted any more".to_owned();
            return Err(ExchangeError::Server(reason));
        };
        Context::acceptor(&settings, identities.delegation_keys())
            .map_err(|error| ExchangeError::Server(error.to_string()))
    }

    /// What a peer may use.
    pub(super) fn authorize(
        &self,
        peer: &Peer,
        requested: Option<&str>,
    ) -> Result<Authorized, String> {
        if peer.expires <= SystemTime::now() {
            return Err("The certificate has expired.".to_owned());
        }
        match &self.identities {
            Some(identities) => identities
                .authorize(peer, requested)
                .map_err(|denied| denied.to_string()),
            None => Err("The server failed.".to_owned()),
        }
    }
}

fn refused(error: impl std::fmt::Display) -> ExchangeError {
    ExchangeError::Client(error.to_string())
}

impl CheckPassword for Arc<Authenticator> {
    fn password(&self, name: &str, password: &[u8]) -> Option<Grant> {
        let memory = || self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let mut own = memory().pop().unwrap_or_default();
        let grant = self.passwords.check(name, password, &mut own);
        memory().push(own);
        grant
    }
}

/// Without a login process.
impl Logins for Arc<Authenticator> {
    fn exchange(&self) -> Box<dyn Exchange> {
        Box::new(HereExchange {
            authenticator: Self::clone(self),
            context: None,
        })
    }

    fn without_password(&self, name: &str) -> Option<Grant> {
        let anonymous = self.anonymous.as_ref()?;
        let names = &anonymous.names;
        let allowed = names
            .iter()
            .any(|allowed| allowed == name || allowed == "*");
        // A user with a password is never anonymous.
        (allowed && !self.passwords.has(name)).then_some(Grant {
            root: None,
            read_only: !anonymous.write,
        })
    }

    fn grants(&self) -> Vec<Grant> {
        self.passwords.grants().cloned().collect()
    }

    fn host_chain(&self) -> Vec<Certificate> {
        let host = self.host();
        host.map_or(Vec::new(), |host| host.chain().to_vec())
    }

    fn host_tls(&self) -> Option<Arc<ServerConfig>> {
        let host = self.host()?;
        let config = server_config(chain(&host), host.key().signing_key()).ok()?;
        Some(Arc::new(config))
    }
}

#[derive(Debug)]
struct HereExchange {
    authenticator: Arc<Authenticator>,
    context: Option<Context>,
}

impl Exchange for HereExchange {
    fn step(&mut self, token: &[u8]) -> Result<Progress, ExchangeError> {
        let established = match self.authenticator.step(&mut self.context, token)? {
            Stepped::Continue(token) => return Ok(Progress::Continue(token)),
            Stepped::Established(established) => *established,
        };
        Ok(Progress::Accepted(Box::new(Accepted {
            token: established.token,
            description: established.keys.description().to_owned(),
            protection: MessageProtection::new(established.keys).map_err(refused)?,
            identity: established.peer.identity.one_line().to_owned(),
            delegated: established.delegated.map(Arc::new).map(Some),
            proof: Arc::new(HereProof {
                authenticator: Arc::clone(&self.authenticator),
                peer: established.peer,
            }),
        })))
    }
}

#[derive(Debug)]
struct HereProof {
    authenticator: Arc<Authenticator>,
    peer: Peer,
}

impl Proof for HereProof {
    fn authorize(&self, requested: Option<&str>) -> Result<Authorized, String> {
        self.authenticator.authorize(&self.peer, requested)
    }
}
