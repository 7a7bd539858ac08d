//! What an acceptor has when its context is complete, and what protects messages from there on.
//!
//! The two are apart because they may be in two processes: one proves who the client is, and holds the host's key
//! and the maps; the other one reads what the client says from then on. [`MessageKeys`] go from the first to the
//! second.

use serde::{Deserialize, Serialize};

use super::error::ContextError;
use super::handshake::{Context, State};
use super::integrity::{IntegrityKeys, IntegritySecrets, is_integrity_token};
use super::token::check_whole;
use crate::credential::Credential;
use crate::tls::{ConnectionKeys, HandedConnection};
use crate::trust::Peer;

/// The answers to some dozens of key updates.
const MOST_UNSENT: usize = 4096;

/// A complete context, taken apart.
#[derive(Debug)]
pub struct Established {
    /// Who the client is.
    pub peer: Peer,
    /// What it delegated, or why that cannot be used; `None` if it delegated nothing.
    pub delegated: Option<Result<Credential, ContextError>>,
    /// For [`MessageProtection`].
    pub keys: MessageKeys,
}

/// The keys of an established context, at some point of what is said under its protection.
#[derive(Debug, Serialize, Deserialize)]
pub struct MessageKeys {
    connection: ConnectionKeys,
    integrity: Option<IntegritySecrets>,
    /// The number of the next integrity-only token.
    integrity_sequence: u64,
    /// Records of TLS itself that go out with the next message.
    unsent: Vec<u8>,
}

/// Protects the messages of an established context.
#[derive(Debug)]
pub struct MessageProtection {
    connection: HandedConnection,
    secrets: Option<IntegritySecrets>,
    /// Made when the first integrity-only token comes.
    integrity: Option<IntegrityKeys>,
    /// Records of TLS itself, such as the answer to a key update. They go out with the next message.
    unsent: Vec<u8>,
    failed: bool,
}

impl Context {
    /// Takes a complete context of the accepting side apart.
    ///
    /// # Errors
    ///
    /// When it is not complete, or the client presented no certificate.
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
    /// When the keys cannot be used.
    pub fn new(keys: MessageKeys) -> Result<Self, ContextError> {
        if keys.unsent.len() > MOST_UNSENT {
            return Err(ContextError::protocol("too much is unsent"));
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

    /// The keys as they are now, for another process.
    ///
    /// # Errors
    ///
    /// When the context is lost.
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
    /// When the context is lost.
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
    /// When the token is not the next one that the peer made, or not whole. The context is lost then.
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
                "the peer changes its keys without end",
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
