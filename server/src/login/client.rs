//! The client side in the front process and the serving process: it asks the login process.

use std::collections::HashSet;
use std::fs::File;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gridhaul_accounts::{AccountRequest, BrokerSource};
use gridhaul_security::certificate::Certificate;
use gridhaul_security::context::MessageProtection;
use gridhaul_security::credential::Credential;
use gridhaul_security::key::PrivateKey;
use gridhaul_security::node_authority::{NodeIdentity, Role};
use gridhaul_security::tls::{HostCertificate, HostSettings};
use gridhaul_security::voms::Fqan;
use rustix::io::Errno;
use rustls::pki_types::CertificateDer;
use rustls::sign::SigningKey;
use rustls::{ServerConfig, SignatureScheme};
use zeroize::Zeroizing;

use crate::locks::lock;
use crate::passwords::{CheckPassword, Grant};
use crate::security::{Authorized, server_config};

use super::host_key::{KeyElsewhere, Signs};
use super::messages::{Account, Answer, Asked, Delegated, Established, Host, Question};
use super::sockets::{LOST, NoAnswer, Sockets};
use super::{Accepted, Claimed, Exchange, ExchangeError, Logins, Progress, Proof};

/// The host's certificate is asked for again after this time.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Asks the login process, one question at a time on each socket.
#[derive(Debug)]
pub(crate) struct LoginClient {
    starts_brokers: bool,
    sockets: Sockets,
    /// For signatures, which a thread of the runtime waits for. They must not wait for files or passwords.
    signing: Sockets,
    /// For the watch, which must not wait for anything else.
    pub(super) watched: Sockets,
    /// The watch gets no answer: the login process hangs.
    pub(super) is_silent: AtomicBool,
    /// Exchanges that have ended. The next question carries them.
    ended: Mutex<Vec<u64>>,
    host: Mutex<Option<HostTls>>,
    for_nodes: Mutex<Option<HostTls>>,
}

/// The certificates of this host.
#[derive(Debug, Clone, Copy)]
enum Whom {
    /// Clients see it.
    Clients,
    /// Enrolled data nodes see it.
    Nodes,
}

/// The host's certificate at the time of the last question.
#[derive(Debug, Clone)]
struct HostTls {
    host: u64,
    chain: Vec<CertificateDer<'static>>,
    key: Arc<dyn SigningKey>,
    config: Arc<ServerConfig>,
    looked: Instant,
}

/// The number of sockets for signatures.
pub(super) const SIGNING_SOCKETS: usize = 2;

impl LoginClient {
    /// The first [`SIGNING_SOCKETS`] are for signatures.
    pub(crate) fn new(mut sockets: Vec<OwnedFd>, starts_brokers: bool) -> Self {
        let others = sockets.split_off(SIGNING_SOCKETS.min(sockets.len()));
        Self {
            starts_brokers,
            sockets: Sockets::new(others),
            signing: Sockets::new(sockets),
            watched: Sockets::new(Vec::new()),
            is_silent: AtomicBool::new(false),
            ended: Mutex::default(),
            host: Mutex::default(),
            for_nodes: Mutex::default(),
        }
    }

    /// The watch asks on this socket.
    pub(super) fn watching(self, socket: Option<OwnedFd>) -> Self {
        Self {
            watched: Sockets::new(socket.into_iter().collect()),
            ..self
        }
    }

    /// Whether local accounts have brokers.
    pub(super) fn starts_brokers(&self) -> bool {
        self.starts_brokers
    }

    /// Makes the login process read its configuration again. Returns what its files have now, and which ones
    /// would keep a server from starting.
    ///
    /// # Errors
    ///
    /// When the login process keeps its old configuration: the reason.
    pub(crate) fn reload(&self) -> Result<(Vec<String>, Vec<String>), String> {
        match self.ask(Question::Reload) {
            Some(Answer::Reloaded { files, unusable }) => Ok((files, unusable)),
            Some(Answer::Failed(reason)) => Err(reason),
            _ => Err(LOST.to_owned()),
        }
    }

    /// Asks, and waits `within` this time.
    pub(super) fn ask_within(
        &self,
        question: Question<'_>,
        within: Duration,
    ) -> Result<Answer, NoAnswer> {
        let ended = Vec::new();
        let message = postcard::to_stdvec(&Asked { ended, question });
        self.sockets
            .ask_within(&message.map_err(|_| NoAnswer::Ended)?, within)
    }

    /// The exchanges of clients that are served and whom a ban list or a rule refuses now.
    pub(super) fn refused(&self) -> HashSet<u64> {
        match self.ask(Question::Refused) {
            Some(Answer::Exchanges(refused)) => refused.into_iter().collect(),
            _ => HashSet::new(),
        }
    }

    /// Makes the login process open the configuration file.
    ///
    /// # Errors
    ///
    /// The reason.
    pub(super) fn open_configuration(&self) -> Result<File, String> {
        match self.ask_for_descriptor(Question::Configuration) {
            // The kernel leaves out a descriptor for which the process has no room.
            Some((Answer::Opened, file)) => file
                .map(File::from)
                .ok_or_else(|| "too many open files".to_owned()),
            Some((Answer::Failed(reason), _)) => Err(reason),
            _ => Err(LOST.to_owned()),
        }
    }

    fn ask(&self, question: Question<'_>) -> Option<Answer> {
        self.ask_for_descriptor(question).map(|(answer, _)| answer)
    }

    /// Asks, and waits for the answer. `None` if the login process has ended. A question of an administrator fails at once if
    /// the process hangs; the login timeout bounds those of clients.
    fn ask_for_descriptor(&self, question: Question<'_>) -> Option<(Answer, Option<OwnedFd>)> {
        let is_administrators = matches!(
            question,
            Question::Configuration | Question::Reload | Question::ReopenLogs | Question::Refused
        );
        if is_administrators && self.is_silent.load(Ordering::Relaxed) {
            return None;
        }
        let asked = Asked {
            ended: std::mem::take(&mut *lock(&self.ended)),
            question,
        };
        let message = Zeroizing::new(postcard::to_stdvec(&asked).ok()?);
        let sockets = match &asked.question {
            Question::Sign { .. } | Question::SignForNodes { .. } => &self.signing,
            _ => &self.sockets,
        };
        sockets.ask(&message)
    }

    fn end(&self, exchange: u64) {
        lock(&self.ended).push(exchange);
    }

    fn granted(&self, question: Question<'_>) -> Option<Grant> {
        match self.ask(question)? {
            Answer::Granted(granted) => granted.map(Grant::from),
            _ => None,
        }
    }
}

impl CheckPassword for Arc<LoginClient> {
    fn password(&self, name: &str, password: &[u8]) -> Option<Grant> {
        self.granted(Question::Password { name, password })
    }
}

impl Logins for Arc<LoginClient> {
    fn exchange(&self) -> Box<dyn Exchange> {
        Box::new(ExchangeElsewhere {
            client: Self::clone(self),
            exchange: None,
        })
    }

    fn without_password(&self, name: &str) -> Option<Grant> {
        self.granted(Question::WithoutPassword(name))
    }

    fn redeem(&self, name: &str) -> Option<Grant> {
        self.granted(Question::Redeem(name))
    }

    fn claim(&self, exchange: u64) -> Result<Claimed, String> {
        match self.ask(Question::Claim(exchange)) {
            Some(Answer::Claimed(claimed)) => Ok(Claimed {
                identity: claimed.identity,
                delegated: claimed
                    .delegated
                    .and_then(|delegated| credential(&delegated))
                    .map(Arc::new),
                proof: Arc::new(ProofElsewhere {
                    client: Self::clone(self),
                    exchange,
                }),
            }),
            Some(Answer::Refused(reason)) => Err(reason),
            _ => Err(LOST.to_owned()),
        }
    }

    fn grants(&self) -> Vec<Grant> {
        match self.ask(Question::Grants) {
            Some(Answer::Grants(grants)) => grants.into_iter().map(Grant::from).collect(),
            _ => Vec::new(),
        }
    }

    fn host_chain(&self) -> Vec<Certificate> {
        let host = self.certificates(Whom::Clients);
        host.map_or(Vec::new(), |host| host.parsed())
    }

    fn host_certificate(&self) -> Option<HostCertificate> {
        let host = self.certificates(Whom::Clients)?;
        HostCertificate::new(&host.parsed(), host.key).ok()
    }

    fn for_nodes(&self) -> Option<HostSettings> {
        let own = self.certificates(Whom::Nodes)?;
        let identity = NodeIdentity::new(Role::ControlServer, &own.parsed()).ok()?;
        identity.settings(own.key).ok()
    }

    fn host_tls(&self) -> Option<Arc<ServerConfig>> {
        self.certificates(Whom::Clients).map(|host| host.config)
    }
}

impl HostTls {
    fn parsed(&self) -> Vec<Certificate> {
        let parsed = self.chain.iter().map(|der| Certificate::from_der(der));
        // The login process has parsed them too.
        parsed.filter_map(Result::ok).collect()
    }
}

impl LoginClient {
    /// The certificates as they were at the last question. Asks, if it is time to.
    fn certificates(self: &Arc<Self>, whom: Whom) -> Option<HostTls> {
        let mut held = lock(match whom {
            Whom::Clients => &self.host,
            Whom::Nodes => &self.for_nodes,
        });
        if let Some(held) = held
            .as_ref()
            .filter(|held| held.looked.elapsed() < LOOK_EVERY)
        {
            return Some(held.clone());
        }
        let known = held.as_ref().map(|held| held.host);
        let question = match whom {
            Whom::Clients => Question::Host { known },
            Whom::Nodes => Question::HostForNodes { known },
        };
        let Answer::Host(Some(answer)) = self.ask(question)? else {
            return None;
        };
        match (answer, held.as_mut()) {
            (Host::Same, Some(held)) => held.looked = Instant::now(),
            (Host::Same, None) => return None,
            (
                Host::New {
                    host,
                    chain,
                    schemes,
                },
                _,
            ) => {
                let key: Arc<dyn SigningKey> = Arc::new(KeyElsewhere {
                    schemes: schemes.into_iter().map(SignatureScheme::from).collect(),
                    signs: Arc::new(HostSigns {
                        client: Arc::clone(self),
                        whom,
                        host,
                    }),
                });
                let chain: Vec<_> = chain.into_iter().map(CertificateDer::from).collect();
                let config = server_config(chain.clone(), Arc::clone(&key)).ok()?;
                *held = Some(HostTls {
                    host,
                    chain,
                    key,
                    config: Arc::new(config),
                    looked: Instant::now(),
                });
            }
        }
        held.clone()
    }
}

impl BrokerSource for LoginClient {
    fn broker(&self, request: &AccountRequest) -> Result<OwnedFd, Errno> {
        let account = Account {
            account: request.account.clone(),
            root: request.root.clone(),
            read_only: request.read_only,
        };
        match self.ask_for_descriptor(Question::Broker(account)) {
            // The kernel leaves out a descriptor for which the process has no room.
            Some((Answer::Broker(Ok(())), socket)) => socket.ok_or(Errno::MFILE),
            Some((Answer::Broker(Err(errno)), _)) => Err(Errno::from_raw_os_error(errno)),
            _ => Err(Errno::PIPE),
        }
    }
}

#[derive(Debug)]
struct HostSigns {
    client: Arc<LoginClient>,
    whom: Whom,
    host: u64,
}

impl Signs for HostSigns {
    fn sign(&self, scheme: SignatureScheme, message: &[u8]) -> Result<Vec<u8>, String> {
        let (host, scheme) = (self.host, scheme.into());
        let question = match self.whom {
            Whom::Clients => Question::Sign {
                host,
                scheme,
                message,
            },
            Whom::Nodes => Question::SignForNodes {
                host,
                scheme,
                message,
            },
        };
        match self.client.ask(question) {
            Some(Answer::Signature(signature)) => Ok(signature),
            Some(Answer::Failed(reason)) => Err(reason),
            _ => Err(LOST.to_owned()),
        }
    }
}

#[derive(Debug)]
struct ExchangeElsewhere {
    client: Arc<LoginClient>,
    exchange: Option<u64>,
}

impl Exchange for ExchangeElsewhere {
    fn step(&mut self, token: &[u8]) -> Result<Progress, ExchangeError> {
        let question = Question::Token {
            exchange: self.exchange,
            token,
        };
        match self.client.ask(question) {
            Some(Answer::Token { exchange, token }) => {
                self.exchange = Some(exchange);
                Ok(Progress::Continue(token))
            }
            Some(Answer::Established(established)) => {
                self.exchange = None;
                let proof = ProofElsewhere {
                    client: Arc::clone(&self.client),
                    exchange: established.exchange,
                };
                accepted(*established, proof).map(|accepted| Progress::Accepted(Box::new(accepted)))
            }
            Some(Answer::Refused(reason)) => {
                self.exchange = None;
                Err(ExchangeError::Client(reason))
            }
            Some(Answer::Failed(reason)) => {
                self.exchange = None;
                Err(ExchangeError::Server(reason))
            }
            _ => Err(ExchangeError::Server(LOST.to_owned())),
        }
    }
}

impl Drop for ExchangeElsewhere {
    fn drop(&mut self) {
        if let Some(exchange) = self.exchange {
            self.client.end(exchange);
        }
    }
}

fn accepted(established: Established, proof: ProofElsewhere) -> Result<Accepted, ExchangeError> {
    let failed = |error: &dyn std::fmt::Display| ExchangeError::Server(error.to_string());
    Ok(Accepted {
        token: established.token,
        description: established.keys.description().to_owned(),
        protection: MessageProtection::new(established.keys).map_err(|error| failed(&error))?,
        identity: established.identity,
        delegated: established.delegated.map(|()| None),
        proof: Arc::new(proof),
    })
}

fn credential(delegated: &Delegated) -> Result<Credential, String> {
    let chain: Result<Vec<_>, _> = delegated
        .chain
        .iter()
        .map(|der| Certificate::from_der(der))
        .collect();
    let key = PrivateKey::from_exported(&delegated.key).map_err(|error| error.to_string())?;
    Credential::new(chain.map_err(|error| error.to_string())?, key)
        .map_err(|error| error.to_string())
}

/// Dropped when the session ends: then no broker is started for it any more. The front process's proof ends the exchange
/// only if the serving process has not claimed it.
#[derive(Debug)]
struct ProofElsewhere {
    client: Arc<LoginClient>,
    exchange: u64,
}

impl Proof for ProofElsewhere {
    fn authorize(&self, requested: Option<&str>, address: IpAddr) -> Result<Authorized, String> {
        let question = Question::Authorize {
            exchange: self.exchange,
            requested,
            address,
        };
        match self.client.ask(question) {
            Some(Answer::Authorized(authorization)) => Ok(Authorized {
                account: authorization.account,
                root: Some(authorization.root),
                read_only: authorization.read_only,
                attributes: authorization
                    .attributes
                    .iter()
                    .filter_map(|fqan| Fqan::new(fqan))
                    .collect(),
                notes: authorization.notes,
            }),
            Some(Answer::Refused(reason)) => Err(reason),
            _ => Err("The server failed.".to_owned()),
        }
    }

    fn exchange(&self) -> Option<u64> {
        Some(self.exchange)
    }
}

impl Drop for ProofElsewhere {
    fn drop(&mut self) {
        self.client.end(self.exchange);
    }
}
