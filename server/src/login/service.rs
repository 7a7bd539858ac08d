//! The login process answers questions.

use std::fs::File;
use std::os::fd::{AsFd as _, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

use gridhaul_accounts::{AccountRequest, BrokerSource};
use gridhaul_sandbox::Confinement;
use gridhaul_security::credential::Credential;
use gridhaul_security::files::OpenFiles as _;
use rustix::io::Errno;
use rustls::SignatureScheme;
use tracing::{error, info, warn};

use crate::config::{Config, ServeArguments};
use crate::log_process::OpenedLogs;
use crate::passwords::CheckPassword as _;
use crate::sandbox;
use crate::security::{Authorized, Opener};
use crate::telemetry::tell;
use crate::wire::{receive_message, send_message};

use super::authenticator::{self, Authenticator, Stepped};
use super::exchanges::Exchanges;
use super::host_certificates::HostCertificates;
use super::host_key::Ends;
use super::messages::{
    Account, Answer, Asked, Asker, Authorization, Claimed, Delegated, Established, Granted,
    Question,
};
use super::verdicts::Verdicts;
use super::{ExchangeError, Logins as _};

/// The state that the threads of the process share.
pub(super) struct LoginService<'a> {
    /// Without them a reload is refused.
    sources: Option<Sources<'a>>,
    /// The monitor, if there are brokers.
    brokers: Option<Arc<dyn BrokerSource>>,
    pub(super) exchanges: Exchanges,
    verdicts: Verdicts,
    host: HostCertificates,
    /// For data nodes, with `node-authority`.
    for_nodes: HostCertificates,
    state: RwLock<State>,
}

/// The sources of a reload.
pub(super) struct Sources<'a> {
    pub(super) arguments: &'a ServeArguments,
    pub(super) confinement: Confinement,
    pub(super) logs: OpenedLogs<'a>,
    pub(super) opener: Opener,
}

/// The part that a reload replaces.
#[derive(Debug, Clone)]
struct State {
    config: Arc<Config>,
    authenticator: Arc<Authenticator>,
}

impl<'a> LoginService<'a> {
    /// Keeps up to `most` exchanges. It cannot be reloaded.
    pub(super) fn new(
        config: Config,
        authenticator: Authenticator,
        brokers: Option<Arc<dyn BrokerSource>>,
        most: usize,
    ) -> Self {
        Self {
            sources: None,
            brokers,
            exchanges: Exchanges::new(most),
            verdicts: Verdicts::new(most),
            host: HostCertificates::default(),
            for_nodes: HostCertificates::default(),
            state: RwLock::new(State {
                config: Arc::new(config),
                authenticator: Arc::new(authenticator),
            }),
        }
    }

    /// Reloads from these sources.
    pub(super) fn reading(self, sources: Sources<'a>) -> Self {
        Self {
            sources: Some(sources),
            ..self
        }
    }

    /// The ends of TLS for which a process gets signatures: only the serving process connects to other hosts, and only to data
    /// nodes.
    fn ends(&self, asker: Asker) -> Ends {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        let has_identity = state.config.node_authority.is_some();
        match asker {
            Asker::Serving if !state.config.nodes.is_empty() && !has_identity => Ends::Both,
            Asker::Serving | Asker::Front => Ends::Server,
        }
    }

    /// Answers on one socket until the other process, `asker`, closes it.
    pub(super) fn answer(&self, socket: &OwnedFd, asker: Asker) {
        while let Ok(Some(message)) = receive_message(socket, &mut Vec::new()) {
            let Ok(asked) = postcard::from_bytes::<Asked<'_>>(&message) else {
                error!("a question to the login process makes no sense");
                return;
            };
            for exchange in asked.ended {
                self.exchanges.end(exchange, asker);
            }
            if !asked.question.may_come_from(asker) {
                error!(
                    "a question came to the login process from a process that has no reason to ask it"
                );
                return;
            }
            let decided = catch_unwind(AssertUnwindSafe(|| self.decide(asked.question, asker)));
            let (answer, broker) = decided.unwrap_or_else(|_| {
                // The panic message is on standard error.
                (Answer::Failed("the server failed".to_owned()), None)
            });
            let Ok(encoded) = postcard::to_stdvec(&answer) else {
                return;
            };
            let encoded = zeroize::Zeroizing::new(encoded);
            let broker = broker.as_ref().map(|broker| broker.as_fd());
            if send_message(socket, &encoded, broker.as_slice()).is_err() {
                return;
            }
        }
    }

    fn decide(&self, question: Question<'_>, asker: Asker) -> (Answer, Option<OwnedFd>) {
        let answer = match question {
            Question::Claim(exchange) => self.claim(exchange),
            Question::Redeem(name) => {
                Answer::Granted(self.verdicts.redeem(name).map(Granted::from))
            }
            Question::Token { exchange, token } => self.token(exchange, token),
            Question::Authorize {
                exchange,
                requested,
                address,
            } => {
                let asked = authenticator::Asked {
                    account: requested,
                    address: Some(address),
                };
                self.authorize(exchange, asked, asker)
            }
            Question::WithoutPassword(name) => Answer::Granted(
                self.state()
                    .authenticator
                    .without_password(name)
                    .map(Granted::from),
            ),
            Question::Password { name, password } => {
                let grant = self.state().authenticator.password(name, password);
                if let Some(grant) = &grant {
                    self.verdicts.add(name, grant.clone());
                }
                Answer::Granted(grant.map(Granted::from))
            }
            Question::Grants => {
                let grants = self.state().authenticator.grants().into_iter();
                Answer::Grants(grants.map(Granted::from).collect())
            }
            Question::Broker(account) => {
                return match self.broker(account) {
                    Ok(socket) => (Answer::Broker(Ok(())), Some(socket)),
                    Err(errno) => (Answer::Broker(Err(errno.raw_os_error())), None),
                };
            }
            Question::Host { known } => {
                let credential = self.state().authenticator.host();
                Answer::Host(credential.map(|credential| self.host.current(credential, known)))
            }
            Question::Sign {
                host,
                scheme,
                message,
            } => match self.host.sign(
                host,
                SignatureScheme::from(scheme),
                message,
                self.ends(asker),
            ) {
                Ok(signature) => Answer::Signature(signature),
                Err(reason) => Answer::Failed(reason),
            },
            Question::HostForNodes { known } => {
                let credential = self.state().authenticator.identity_for_nodes();
                let of = |credential| self.for_nodes.current(credential, known);
                Answer::Host(credential.map(of))
            }
            Question::SignForNodes {
                host,
                scheme,
                message,
            } => {
                let scheme = SignatureScheme::from(scheme);
                match self.for_nodes.sign(host, scheme, message, Ends::Client) {
                    Ok(signature) => Answer::Signature(signature),
                    Err(reason) => Answer::Failed(reason),
                }
            }
            Question::Configuration => {
                return match self.configuration() {
                    Ok(file) => (Answer::Opened, Some(file.into())),
                    Err(reason) => (Answer::Failed(reason), None),
                };
            }
            Question::Alive => Answer::Done,
            Question::Refused => Answer::Exchanges(self.refused()),
            Question::Reload => match self.reload() {
                Ok((files, unusable)) => Answer::Reloaded { files, unusable },
                Err(reason) => Answer::Failed(reason),
            },
            Question::ReopenLogs => match self.reopen_logs() {
                Ok(()) => Answer::Done,
                Err(reason) => Answer::Failed(reason),
            },
        };
        (answer, None)
    }

    fn token(&self, exchange: Option<u64>, token: &[u8]) -> Answer {
        let (exchange, mut context) = match exchange {
            Some(exchange) => match self.exchanges.take(exchange) {
                Some(context) => (exchange, Some(context)),
                None => return Answer::Refused("there is no such exchange".to_owned()),
            },
            None => match self.exchanges.begin() {
                Ok(exchange) => (exchange, None),
                Err(_) => return Answer::Failed("too many clients log in".to_owned()),
            },
        };
        let authenticator = self.state().authenticator;
        // A panic ends only the exchange of this token.
        let stepped = catch_unwind(AssertUnwindSafe(|| authenticator.step(&mut context, token)));
        let failed = || ExchangeError::Server("the server failed".to_owned());
        match stepped.unwrap_or_else(|_| Err(failed())) {
            Ok(Stepped::Continue(token)) => {
                if let Some(context) = context {
                    self.exchanges.wait(exchange, context);
                }
                Answer::Token { exchange, token }
            }
            Ok(Stepped::Established(established)) => {
                let identity = established.peer.identity.one_line().to_owned();
                let delegated = established
                    .delegated
                    .and_then(|credential| to_send(&credential));
                let told = delegated.as_ref().map(drop).map_err(Clone::clone);
                self.exchanges
                    .establish(exchange, established.peer, delegated);
                Answer::Established(Box::new(Established {
                    exchange,
                    token: established.token,
                    identity,
                    keys: established.keys,
                    delegated: told,
                }))
            }
            Err(error) => {
                self.exchanges.end(exchange, Asker::Front);
                match error {
                    ExchangeError::Client(reason) => Answer::Refused(reason),
                    ExchangeError::Server(reason) => Answer::Failed(reason),
                }
            }
        }
    }

    fn claim(&self, exchange: u64) -> Answer {
        match self.exchanges.claim(exchange) {
            Some(claimed) => Answer::Claimed(Claimed {
                identity: claimed.peer.identity.one_line().to_owned(),
                delegated: claimed.delegated,
            }),
            None => Answer::Refused("there is no such exchange".to_owned()),
        }
    }

    pub(super) fn authorize(
        &self,
        exchange: u64,
        asked: authenticator::Asked<'_>,
        asker: Asker,
    ) -> Answer {
        let State {
            config,
            authenticator,
        } = self.state();
        let Some(peer) = self.exchanges.peer(exchange, asker) else {
            return Answer::Refused("The server failed.".to_owned());
        };
        let requested = asked.account;
        let recent = self.exchanges.recent_permission(exchange, requested);
        let known = recent.as_ref().map(|(permission, _)| permission);
        let (authorized, permission) = match authenticator.authorize(&peer, asked, known) {
            Ok(authorized) => authorized,
            Err(reason) => {
                // Rules and maps may have changed since the last grant.
                self.exchanges.take_back(exchange, asker);
                return Answer::Refused(reason);
            }
        };
        let permission = permission.map(|said| {
            let at = recent.as_ref().map_or_else(Instant::now, |(_, at)| *at);
            (said, at)
        });
        let account = account_of(&authorized, &config);
        let root = account.root.clone();
        self.exchanges
            .grant(exchange, asker, account, requested, permission);
        let attributes = authorized.attributes.iter();
        Answer::Authorized(Authorization {
            account: authorized.account,
            root,
            read_only: authorized.read_only,
            attributes: attributes.map(|fqan| fqan.as_str().to_owned()).collect(),
            notes: authorized.notes,
        })
    }

    /// Asks the monitor for a broker, if a client was granted the account.
    pub(super) fn broker(&self, account: Account) -> Result<OwnedFd, Errno> {
        if !self.is_granted(&account) {
            if let Some(untold) = tell("brokers without a client") {
                warn!(
                    account = account.account,
                    untold, "a broker was asked for, and no client who is logged in may have it"
                );
            }
            return Err(Errno::PERM);
        }
        let brokers = self.brokers.as_ref().ok_or(Errno::PERM)?;
        brokers.broker(&AccountRequest {
            account: account.account,
            root: account.root,
            read_only: account.read_only,
            file_mode: self.state().config.perms,
        })
    }

    /// Whether a connected client was granted this account, and would be granted it again now: proofs expire, and maps and
    /// rules change.
    fn is_granted(&self, account: &Account) -> bool {
        let State {
            config,
            authenticator,
        } = self.state();
        let holders = self.exchanges.holders(account);
        holders.iter().any(|holder| {
            // The callout's permission holds as long as the session.
            let asked = authenticator::Asked {
                account: holder.requested.as_deref(),
                address: None,
            };
            let authorized =
                authenticator.authorize(&holder.peer, asked, holder.permission.as_ref());
            authorized.is_ok_and(|(authorized, _)| account_of(&authorized, &config) == *account)
        })
    }

    /// The exchanges of served clients whom a ban list or a rule refuses now.
    pub(super) fn refused(&self) -> Vec<u64> {
        let authenticator = self.state().authenticator;
        let served = self.exchanges.served().into_iter();
        let refused = served.filter(|(_, peer)| authenticator.is_refused(peer));
        refused.map(|(exchange, _)| exchange).collect()
    }

    /// Opens the configuration file for the serving process, whose account may not be allowed to read it.
    fn configuration(&self) -> Result<File, String> {
        let sources = self.sources.as_ref();
        let opened = sources.and_then(|sources| {
            let path = sources.arguments.config.as_deref()?;
            Some(sources.opener.open(path).map_err(|error| error.to_string()))
        });
        opened.unwrap_or_else(|| Err("there is no configuration file".to_owned()))
    }

    /// Reads the configuration again, from the file that the server was started with. Returns what the files have now,
    /// and which ones are not usable.
    fn reload(&self) -> Result<(Vec<String>, Vec<String>), String> {
        let sources = self.sources.as_ref();
        let sources = sources.ok_or("this process does not read its configuration again")?;
        let running = self.state();
        let config = match Config::load_with(sources.arguments, &sources.opener) {
            Ok(config) => config.reloaded(&running.config).0,
            Err(error) => return Err(error.to_string()),
        };
        let file = sources.arguments.config.as_deref();
        sandbox::warn_of_new_logins(&sources.confinement, &config, file);
        if let Err(error) = sources.logs.logging.set_level(&config.log.level) {
            error!(%error, "the login process's log was not reloaded");
        }
        let authenticator =
            Authenticator::load(&config, &sources.opener, Some(&running.authenticator))
                .map_err(|error| error.to_string())?;
        authenticator.start().map_err(|error| error.to_string())?;
        let files = authenticator.files_in_force(&config);
        let unusable = authenticator.unusable(&sources.opener);
        self.replace(config, authenticator);
        info!("the login process has read the configuration again");
        Ok((files, unusable))
    }

    /// Opens the logs again and has the log process continue in the new files. The serving process never has one open.
    fn reopen_logs(&self) -> Result<(), String> {
        let sources = self.sources.as_ref();
        let sources = sources.ok_or("this process opens no logs")?;
        sources.logs.reopen(&sources.opener)
    }

    /// Uses this configuration from now on.
    pub(super) fn replace(&self, config: Config, authenticator: Authenticator) {
        self.exchanges.set_most(most_exchanges(&config));
        *self.state.write().unwrap_or_else(PoisonError::into_inner) = State {
            config: Arc::new(config),
            authenticator: Arc::new(authenticator),
        };
    }

    fn state(&self) -> State {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        state.clone()
    }
}

fn account_of(authorized: &Authorized, config: &Config) -> Account {
    let root = authorized.root.as_ref().unwrap_or(&config.root);
    Account {
        account: authorized.account.clone(),
        root: root.clone(),
        read_only: authorized.read_only,
    }
}

/// The limit of exchanges with this configuration.
pub(super) fn most_exchanges(config: &Config) -> usize {
    /// The end of an exchange arrives with the next question, so there may be some more exchanges than connections.
    const MORE: usize = 1000;

    let most = config.limits.connections;
    most.saturating_add(MORE)
}

/// A delegated credential as a message. Its key was generated in this process, for this delegation.
fn to_send(credential: &Credential) -> Result<Delegated, String> {
    let key = credential.key().exported();
    let chain = credential.chain().iter();
    Ok(Delegated {
        chain: chain
            .map(|certificate| certificate.der().to_vec())
            .collect(),
        key: key
            .ok_or("the delegated credential has no key of ours")?
            .clone(),
    })
}
