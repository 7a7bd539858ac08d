//! The decision about a login: passwords, security contexts and authorization.

use std::cell::RefCell;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use gridhaul_security::certificate::Certificate;
use gridhaul_security::context::{Context, MessageKeys, MessageProtection, Step};
use gridhaul_security::credential::Credential;
use gridhaul_security::node_authority::{NodeIdentity, Role};
use gridhaul_security::tls::{HostCertificate, HostSettings};
use gridhaul_security::trust::Peer;
use rustls::ServerConfig;

use crate::callout::{CalloutClient, CalloutError, Claim, Permission};
use crate::config::{self, Config, HostFiles};
use crate::passwords::{CheckPassword, Grant, Memory, Passwords, PasswordsError};
use crate::security::{
    AskCallout, Authorized, HostCredential, Identities, Opener, SecurityError, chain, server_config,
};

use super::{Accepted, Exchange, ExchangeError, Logins, Progress, Proof};

/// The configuration of logins, and the files that it names.
#[derive(Debug)]
pub(crate) struct Authenticator {
    anonymous: Option<config::Anonymous>,
    passwords: Passwords,
    /// Memory for hashing that is free: at most one block for each thread.
    memory: Arc<Mutex<Vec<Memory>>>,
    identities: Option<Arc<Identities>>,
    /// For connections to enrolled data nodes.
    for_nodes: Option<Arc<HostCredential>>,
    /// Whether a callout must permit logins with certificates.
    needs_callout: bool,
    /// It is asked with this. `None` in a server inside another program, which refuses all certificates if a callout is configured.
    callout: Option<Arc<CalloutClient>>,
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
        let callout = previous.and_then(|previous| previous.callout.clone());
        let needs_callout = config.authz_callout.is_some();
        let for_nodes = previous.and_then(|previous| previous.for_nodes.clone());
        let for_nodes = match (&config.node_authority, for_nodes) {
            (None, _) => None,
            (Some(_), Some(known)) => Some(known),
            (Some(file), None) => {
                let files = HostFiles::one(file);
                let opened = HostCredential::open(&files, opener.clone(), None);
                Some(Arc::new(opened.map_err(SecurityError::from)?))
            }
        };
        let previous = previous.and_then(|previous| previous.identities.as_deref());
        Ok(Self {
            for_nodes,
            anonymous: config.anonymous.clone(),
            passwords,
            memory: memory.unwrap_or_default(),
            identities: Identities::load(&config.security, needs_callout, opener, previous)?,
            needs_callout,
            callout,
        })
    }

    /// Asks the callout with `client`, also after reloads.
    pub(super) fn with_callout(self, client: Option<CalloutClient>) -> Self {
        Self {
            callout: client.map(Arc::new),
            ..self
        }
    }

    /// Only users with passwords.
    #[cfg(test)]
    pub(crate) fn of_passwords(passwords: Passwords) -> Self {
        Self {
            anonymous: None,
            passwords,
            memory: Arc::default(),
            identities: None,
            for_nodes: None,
            needs_callout: false,
            callout: None,
        }
    }

    /// Begins to make keys in advance. Must not be called before the process may have threads.
    pub(crate) fn start(&self) -> io::Result<()> {
        match &self.identities {
            Some(identities) => identities.start(),
            None => Ok(()),
        }
    }

    /// Files that were usable before and stay in use, though a server would not start with them now. Blocks on files.
    pub(crate) fn unusable(&self, opener: &Opener) -> Vec<String> {
        let identities = self.identities.iter();
        let unusable = identities.flat_map(|identities| identities.unusable(opener));
        unusable
            .map(|reason| format!("not usable: {reason}; the state from before stays in use"))
            .collect()
    }

    /// What the files of a configuration have now, a line for each. Blocks on files.
    pub(crate) fn files_in_force(&self, config: &Config) -> Vec<String> {
        let passwords = config.passwords.iter();
        let users = self.passwords.len();
        let passwords =
            passwords.map(|path| format!("passwords {}: {users} users", path.display()));
        let identities = self.identities.iter();
        let others = identities.flat_map(|identities| identities.files_in_force());
        passwords.chain(others).collect()
    }

    /// The host's certificate and key as they are now.
    pub(super) fn host(&self) -> Option<Arc<Credential>> {
        self.identities.as_ref().map(|identities| identities.host())
    }

    /// Certificate and key for data nodes as they are now.
    pub(super) fn identity_for_nodes(&self) -> Option<Arc<Credential>> {
        self.for_nodes.as_ref().map(|identity| identity.current())
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

    /// What a peer may use, and what the callout has said about it. `known` is what it has said before, if it is not to be
    /// asked again.
    pub(super) fn authorize(
        &self,
        peer: &Peer,
        asked: Asked<'_>,
        known: Option<&Permission>,
    ) -> Result<(Authorized, Option<Permission>), String> {
        if peer.expires <= SystemTime::now() {
            return Err("The certificate has expired.".to_owned());
        }
        let Some(identities) = &self.identities else {
            return Err("The server failed.".to_owned());
        };
        let permission = RefCell::new(None);
        let ask = |claim: Claim<'_>| {
            let permitted = match known {
                Some(known) => known.clone(),
                None => self.ask_callout(Claim {
                    address: asked.address,
                    ..claim
                })?,
            };
            permission.replace(Some(permitted.clone()));
            Ok(permitted)
        };
        let callout: Option<AskCallout<'_>> = match self.needs_callout {
            true => Some(&ask),
            false => None,
        };
        let authorized = identities
            .authorize(peer, asked.account, callout)
            .map_err(|denied| denied.to_string())?;
        Ok((authorized, permission.into_inner()))
    }

    /// Whether a ban list or a rule refuses a client now, whom it may have admitted before.
    pub(super) fn is_refused(&self, peer: &Peer) -> bool {
        let identities = self.identities.as_ref();
        identities.is_none_or(|identities| identities.is_refused(peer))
    }

    fn ask_callout(&self, claim: Claim<'_>) -> Result<Permission, CalloutError> {
        match &self.callout {
            Some(callout) => callout.ask(&claim),
            None => Err(CalloutError::Failed(
                "this server has no process that asks it".to_owned(),
            )),
        }
    }
}

/// What a client asks for.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Asked<'a> {
    /// The account that it named, if it did.
    pub(super) account: Option<&'a str>,
    /// Its address, for the callout.
    pub(super) address: Option<IpAddr>,
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

    fn host_certificate(&self) -> Option<HostCertificate> {
        let host = self.host()?;
        HostCertificate::new(host.chain(), host.key().signing_key()).ok()
    }

    fn for_nodes(&self) -> Option<HostSettings> {
        let credential = self.identity_for_nodes()?;
        let identity = NodeIdentity::new(Role::ControlServer, credential.chain()).ok()?;
        identity.settings(credential.key().signing_key()).ok()
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
    fn authorize(&self, requested: Option<&str>, address: IpAddr) -> Result<Authorized, String> {
        let asked = Asked {
            account: requested,
            address: Some(address),
        };
        let authorized = self.authenticator.authorize(&self.peer, asked, None);
        authorized.map(|(authorized, _)| authorized)
    }
}
