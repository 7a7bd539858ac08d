//! The handshake of a context, and messages under its protection in the same process.

use std::sync::Arc;
use std::time::SystemTime;

use super::error::ContextError;
use super::integrity::{self, IntegrityKeys, IntegritySecrets};
use super::token::check_whole;
use crate::certificate::Certificate;
use crate::credential::Credential;
use crate::delegation::{self, DelegationKeys};
use crate::key::PrivateKey;
use crate::proxy::ProxyPolicy;
use crate::tls::{Connection, TlsSettings};
use crate::trust::{Peer, TrustStore};

/// The maximum number of tokens from a peer until the context is complete. On a data channel each record is a token.
pub(super) const MAX_TOKENS: u32 = 64;

const DELEGATE: u8 = b'D';
const DO_NOT_DELEGATE: u8 = b'0';

/// One end of a security context.
#[derive(Debug)]
pub struct Context {
    pub(super) tls: Connection,
    role: Role,
    pub(super) state: State,
    tokens: u32,
    delegated: Option<Result<Credential, ContextError>>,
    integrity: Option<IntegrityKeys>,
}

#[derive(Debug)]
enum Role {
    Initiator {
        /// Signs the delegated proxy; `None` if the initiator does not delegate.
        issuer: Option<Arc<Credential>>,
    },
    Acceptor {
        keys: Option<Arc<dyn DelegationKeys>>,
        trust: Arc<TrustStore>,
    },
}

#[derive(Debug)]
pub(super) enum State {
    Handshake,
    /// The initiator waits for the acceptor's Finished or NUL byte.
    Greeting,
    /// The initiator waits for a certification request.
    Request,
    /// The acceptor waits for `D` or `0`.
    Flag,
    /// The acceptor waits for a proxy with this key.
    Proxy(PrivateKey),
    Complete,
    Failed,
}

/// The result of a token.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// The context needs another token. The bytes, if any, must be sent to the peer.
    Continue(Vec<u8>),
    /// The context is complete. The bytes, if any, must be sent to the peer.
    Done(Vec<u8>),
}

impl Context {
    /// The acceptor of a login, which accepts delegation. A delegation without a usable result does not fail the context:
    /// [`Context::take_delegated`] then returns the reason.
    ///
    /// # Errors
    ///
    /// When the settings cannot be used.
    pub fn acceptor(
        settings: &TlsSettings,
        keys: Arc<dyn DelegationKeys>,
    ) -> Result<Self, ContextError> {
        Self::accept(settings, Some(keys))
    }

    /// The acceptor of a data channel with PROT C, which refuses delegation.
    ///
    /// # Errors
    ///
    /// When the settings cannot be used.
    pub fn data_acceptor(settings: &TlsSettings) -> Result<Self, ContextError> {
        Self::accept(settings, None)
    }

    fn accept(
        settings: &TlsSettings,
        keys: Option<Arc<dyn DelegationKeys>>,
    ) -> Result<Self, ContextError> {
        let trust = Arc::clone(&settings.trust);
        let role = Role::Acceptor { keys, trust };
        Ok(Self::new(Connection::acceptor(settings)?, role))
    }

    /// The initiator; `delegate` signs a limited proxy for the acceptor.
    ///
    /// # Errors
    ///
    /// When the settings cannot be used.
    pub fn initiator(settings: &TlsSettings, delegate: bool) -> Result<Self, ContextError> {
        let issuer = delegate.then(|| Arc::clone(&settings.credential));
        let role = Role::Initiator { issuer };
        Ok(Self::new(Connection::connector(settings)?, role))
    }

    fn new(tls: Connection, role: Role) -> Self {
        Self {
            tls,
            role,
            state: State::Handshake,
            tokens: 0,
            delegated: None,
            integrity: None,
        }
    }

    /// Processes a token of the peer; the initiator begins with an empty one.
    ///
    /// # Errors
    ///
    /// When the context has failed. `alert` then has the TLS alert for the peer.
    pub fn step(&mut self, token: &[u8], alert: &mut Vec<u8>) -> Result<Step, ContextError> {
        let mut output = Vec::new();
        let state = std::mem::replace(&mut self.state, State::Failed);
        match self.advance(state, token, &mut output) {
            Ok(state) => {
                self.state = state;
                Ok(match self.state {
                    State::Complete => Step::Done(output),
                    _ => Step::Continue(output),
                })
            }
            Err(error) => {
                alert.append(&mut output);
                Err(error)
            }
        }
    }

    fn advance(
        &mut self,
        state: State,
        token: &[u8],
        output: &mut Vec<u8>,
    ) -> Result<State, ContextError> {
        if matches!(state, State::Complete | State::Failed) {
            return Err(ContextError::protocol("the context accepts no more tokens"));
        }
        self.tokens += 1;
        if self.tokens > MAX_TOKENS {
            return Err(ContextError::protocol("the peer has sent too many tokens"));
        }
        check_whole(token)?;
        let mut message = Vec::new();
        self.tls.advance(token, output, &mut message)?;
        match state {
            State::Handshake if self.tls.is_handshaking() => Ok(State::Handshake),
            State::Handshake => self.greet(&message, output),
            // A record of TLS itself, such as a session ticket.
            waiting if message.is_empty() => Ok(waiting),
            // The value of the byte is ignored.
            State::Greeting => self.send_flag(output),
            State::Request => self.sign(&message, output),
            State::Flag => self.take_flag(&message, output),
            State::Proxy(key) => {
                self.delegated = Some(self.take_proxy(key, &message));
                Ok(State::Complete)
            }
            done @ (State::Complete | State::Failed) => Ok(done),
        }
    }

    /// Continues after the TLS handshake. If TLS has left output, it is sent first. Otherwise the initiator sends the flag, and
    /// the acceptor sends a NUL byte.
    fn greet(&mut self, message: &[u8], output: &mut Vec<u8>) -> Result<State, ContextError> {
        match self.role {
            Role::Initiator { .. } if output.is_empty() => self.send_flag(output),
            Role::Initiator { .. } => Ok(State::Greeting),
            Role::Acceptor { .. } if !message.is_empty() => self.take_flag(message, output),
            Role::Acceptor { .. } => {
                if output.is_empty() {
                    self.tls.wrap(&[0], output)?;
                }
                Ok(State::Flag)
            }
        }
    }

    fn send_flag(&mut self, output: &mut Vec<u8>) -> Result<State, ContextError> {
        if matches!(self.role, Role::Initiator { issuer: Some(_) }) {
            self.tls.wrap(&[DELEGATE], output)?;
            return Ok(State::Request);
        }
        self.tls.wrap(&[DO_NOT_DELEGATE], output)?;
        Ok(State::Complete)
    }

    fn take_flag(&mut self, message: &[u8], output: &mut Vec<u8>) -> Result<State, ContextError> {
        match (message, &self.role) {
            ([DO_NOT_DELEGATE], _) => Ok(State::Complete),
            (
                [DELEGATE],
                Role::Acceptor {
                    keys: Some(keys), ..
                },
            ) => {
                let key = keys.take()?;
                let request = delegation::request(&key)?;
                self.tls.wrap(&request, output)?;
                Ok(State::Proxy(key))
            }
            ([DELEGATE], _) => Err(ContextError::protocol(
                "the peer wants to delegate a credential on a data channel",
            )),
            _ => Err(ContextError::protocol(
                "the delegation flag of the peer is neither 'D' nor '0'",
            )),
        }
    }

    fn sign(&mut self, request: &[u8], output: &mut Vec<u8>) -> Result<State, ContextError> {
        if let Role::Initiator {
            issuer: Some(issuer),
        } = &self.role
        {
            let policy = ProxyPolicy::Limited;
            let proxy = delegation::sign(issuer, request, policy, SystemTime::now())?;
            self.tls.wrap(proxy.der(), output)?;
        }
        Ok(State::Complete)
    }

    /// The credential that the initiator delegates. The token contains the new certificate; further data in it is ignored.
    fn take_proxy(&self, key: PrivateKey, message: &[u8]) -> Result<Credential, ContextError> {
        let Role::Acceptor { trust, .. } = &self.role else {
            return Err(ContextError::protocol("an initiator accepts no delegation"));
        };
        let issuers = self.tls.peer().map_or(&[][..], |peer| &peer.chain);
        let proxy = delegation::first_certificate(message)?;
        let chain = std::iter::once(proxy)
            .chain(issuers.iter().cloned())
            .collect::<Vec<Certificate>>();
        let credential = Credential::new(chain, key)?;
        let verified = trust
            .validate(credential.chain(), SystemTime::now())
            .map_err(ContextError::Chain)?;
        if verified.chain.get(1) != issuers.first() {
            return Err(ContextError::protocol(
                "the delegated proxy was not signed with the credential that the peer presented",
            ));
        }
        Ok(credential)
    }

    /// The identity of the peer, after the TLS handshake.
    pub fn peer(&self) -> Option<&Peer> {
        self.tls.peer()
    }

    /// The delegated credential, or why it cannot be used. `None` if the initiator has not delegated.
    pub fn take_delegated(&mut self) -> Option<Result<Credential, ContextError>> {
        self.delegated.take()
    }

    /// Protects a message; the token is sent as `632` or `ENC`.
    ///
    /// # Errors
    ///
    /// When the context is not complete.
    pub fn wrap(&mut self, message: &[u8]) -> Result<Vec<u8>, ContextError> {
        self.check_complete()?;
        let mut token = Vec::new();
        self.tls.wrap(message, &mut token)?;
        Ok(token)
    }

    /// The message in a token: TLS records, or the integrity-only token of type 26.
    ///
    /// # Errors
    ///
    /// When the token is out of sequence, modified or incomplete. The context cannot be used afterwards.
    pub fn unwrap(&mut self, token: &[u8]) -> Result<Vec<u8>, ContextError> {
        self.check_complete()?;
        let result = self.open(token);
        if result.is_err() {
            self.state = State::Failed;
        }
        result
    }

    fn open(&mut self, token: &[u8]) -> Result<Vec<u8>, ContextError> {
        if integrity::is_integrity_token(token) {
            let keys = match &mut self.integrity {
                Some(keys) => keys,
                none => {
                    let secrets = IntegritySecrets::new(&self.tls)?;
                    none.insert(IntegrityKeys::new(secrets.as_ref(), 0)?)
                }
            };
            return keys.open(token);
        }
        check_whole(token)?;
        let mut message = Vec::new();
        // Output of TLS itself is buffered in the connection, and sent with the next message.
        let mut output = Vec::new();
        self.tls.advance(token, &mut output, &mut message)?;
        Ok(message)
    }

    fn check_complete(&self) -> Result<(), ContextError> {
        match self.state {
            State::Complete => Ok(()),
            State::Failed => Err(ContextError::protocol("the context has failed before")),
            _ => Err(ContextError::protocol("the context is not complete yet")),
        }
    }

    /// `TLS 1.3, TLS13_AES_256_GCM_SHA384`, for the log.
    pub fn description(&self) -> String {
        self.tls.description()
    }
}
