//! Complete contexts of acceptors: the peer's identity, and the protection of messages.
//!
//! The two are separate types because they are used in different processes: one authenticates clients, and holds the host
//! key and the maps; another one reads the client's commands. [`MessageKeys`] are passed from the first to the second.

use serde::{Deserialize, Serialize};

use super::error::ContextError;
use super::handshake::{Context, State};
use super::integrity::{IntegrityKeys, IntegritySecrets, is_integrity_token};
use super::token::check_whole;
use crate::credential::Credential;
use crate::tls::{ConnectionKeys, HandedConnection};
use crate::trust::Peer;

/// The maximum length of buffered records: the answers to some dozens of key updates.
const MOST_UNSENT: usize = 4096;

/// The parts of a complete context.
#[derive(Debug)]
pub struct Established {
    /// The identity of the client.
    pub peer: Peer,
    /// The delegated credential, or why it cannot be used; `None` if the client has not delegated.
    pub delegated: Option<Result<Credential, ContextError>>,
    /// The input of [`MessageProtection`].
    pub keys: MessageKeys,
}

/// The keys and sequence numbers of an established context at some point of the conversation.
#[derive(Debug, Serialize, Deserialize)]
pub struct MessageKeys {
    connection: ConnectionKeys,
    integrity: Option<IntegritySecrets>,
    /// The sequence number of the next integrity-only token.
    integrity_sequence: u64,
    /// Records of TLS itself that are sent with the next message.
    unsent: Vec<u8>,
}

/// Protects the messages of an established context.
#[derive(Debug)]
pub struct MessageProtection {
    connection: HandedConnection,
    secrets: Option<IntegritySecrets>,
    /// Created when the first integrity-only token arrives.
    integrity: Option<IntegrityKeys>,
    /// Records of TLS itself, such as the answer to a key update. They are sent with the next message.
    unsent: Vec<u8>,
    failed: bool,
}

impl Context {
    /// Divides a complete context of an acceptor into its parts.
    ///
    /// # Errors
    ///
    /// When it is not complete, or the client has presented no certificate.
    pub fn into_established(mut self) -> Result<Established, ContextError> {
        if !matches!(self.state, State::Complete) {
            return Err(ContextError::protocol("the context is not complete yet"));
        }
        let peer = self
            .peer()
            .cloned()
            .ok_or_else(|| ContextError::protocol("no certificate was presented"))?;
        let integrity = IntegritySecrets::new(&self.tls)?;
        Ok(Established {
            peer,
            delegated: self.take_delegated(),
            keys: MessageKeys {
                integrity,
                connection: self.tls.hand_over()?,
                integrity_sequence: 0,
                unsent: Vec::new(),
            },
        })
    }
}

impl MessageKeys {
    /// `TLS 1.3, TLS13_AES_256_GCM_SHA384`, for the log.
    pub fn description(&self) -> &str {
        self.connection.description()
    }
}

impl MessageProtection {
    /// Continues a context with its keys.
    ///
    /// # Errors
    ///
    /// When the keys are invalid.
    pub fn new(keys: MessageKeys) -> Result<Self, ContextError> {
        if keys.unsent.len() > MOST_UNSENT {
            return Err(ContextError::protocol("too many records are unsent"));
        }
        let secrets = keys.integrity;
        let integrity = match keys.integrity_sequence {
            0 => None,
            sequence => Some(IntegrityKeys::new(secrets.as_ref(), sequence)?),
        };
        Ok(Self {
            connection: HandedConnection::new(keys.connection)?,
            secrets,
            integrity,
            unsent: keys.unsent,
            failed: false,
        })
    }

    /// The present keys, for another process.
    ///
    /// # Errors
    ///
    /// When the context has failed.
    pub fn hand_over(self) -> Result<MessageKeys, ContextError> {
        self.check()?;
        let integrity = self.integrity.as_ref();
        Ok(MessageKeys {
            connection: self.connection.hand_over()?,
            integrity_sequence: integrity.map_or(0, IntegrityKeys::sequence),
            integrity: self.secrets,
            unsent: self.unsent,
        })
    }

    /// Protects a message; the token is sent as `632`.
    ///
    /// # Errors
    ///
    /// When the context has failed.
    pub fn wrap(&mut self, message: &[u8]) -> Result<Vec<u8>, ContextError> {
        self.check()?;
        let mut token = std::mem::take(&mut self.unsent);
        self.connection.wrap(message, &mut token)?;
        Ok(token)
    }

    /// The message in a token: TLS records, or the integrity-only token of type 26.
    ///
    /// # Errors
    ///
    /// When the token is out of sequence, modified or incomplete. The context cannot be used afterwards.
    pub fn unwrap(&mut self, token: &[u8]) -> Result<Vec<u8>, ContextError> {
        self.check()?;
        let result = self.open(token);
        self.failed = result.is_err();
        result
    }

    fn open(&mut self, token: &[u8]) -> Result<Vec<u8>, ContextError> {
        if is_integrity_token(token) {
            let keys = match &mut self.integrity {
                Some(keys) => keys,
                none => none.insert(IntegrityKeys::new(self.secrets.as_ref(), 0)?),
            };
            return keys.open(token);
        }
        check_whole(token)?;
        let mut message = Vec::new();
        self.connection
            .advance(token, &mut self.unsent, &mut message)?;
        if self.unsent.len() > MOST_UNSENT {
            return Err(ContextError::protocol(
                "the peer sends too many key updates",
            ));
        }
        Ok(message)
    }

    fn check(&self) -> Result<(), ContextError> {
        match self.failed {
            false => Ok(()),
            true => Err(ContextError::protocol("the context has failed before")),
        }
    }
}
