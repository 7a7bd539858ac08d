//! TLS as GSI uses it, without I/O: chains with proxies, no resumption, any server name.
//!
//! rustls makes the handshake. [`TlsEngine`] is for bulk data: it protects records itself, with the keys
//! that rustls agreed on, since that saves two copies and an allocation for each record. Contexts
//! ([`crate::context`]) exchange small tokens and leave the records to rustls.

mod acceptance;
mod config;
mod connection;
mod describe;
mod engine;
#[cfg(test)]
pub(crate) mod fixtures;
mod handover;
mod hello;
#[cfg(test)]
mod interop;
mod keys;
mod protection;
mod provider;
#[cfg(test)]
mod tests;
mod traffic;
mod verifier;

use std::fmt;
use std::sync::Arc;

use crate::credential::Credential;
use crate::name::Name;
use crate::trust::{ChainError, TrustStore};

pub use acceptance::TlsAcceptance;
pub(crate) use connection::Connection;
pub use connection::HandedConnection;
pub use engine::TlsEngine;
pub use handover::ConnectionKeys;
pub use keys::{Direction, RecordCipher, RecordKeys, RecordVersion};
use protection::MAX_OVERHEAD;

/// The largest record: header, content, and what protection adds (RFC 5246 6.2.3; RFC 8446 5.2 allows
/// less).
pub const MAX_RECORD: usize = RECORD_HEADER + MAX_FRAGMENT + 2048;

/// Type, version and length: what has to be read to know where a record ends.
pub const RECORD_HEADER: usize = 5;

/// The largest content of a record.
const MAX_FRAGMENT: usize = 1 << 14;

/// The length of the message that announces other keys (RFC 8446 4.6.3).
const KEY_UPDATE_MESSAGE: usize = 5;

/// What a handshake needs.
#[derive(Clone, Debug)]
pub struct TlsSettings {
    /// What we present.
    pub credential: Arc<Credential>,
    /// Whom we accept.
    pub trust: Arc<TrustStore>,
    /// What we agree to.
    pub versions: TlsVersions,
}

/// The versions of TLS that a side agrees to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsVersions {
    /// TLS 1.2 and 1.3.
    #[default]
    From12To13,
    /// TLS 1.2 only.
    Only12,
    /// TLS 1.3 only.
    Only13,
}

/// A chain that is not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct RefusedChain {
    /// What is wrong with it.
    #[source]
    pub reason: ChainError,
    /// The claimed identity: the subject of the first certificate that is no proxy. It is not verified.
    pub claimed: Option<Name>,
}

/// Why a connection failed.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The peer's chain is not accepted.
    #[error(transparent)]
    Chain(#[from] Box<RefusedChain>),
    /// The peer broke the protocol, or we do not agree on anything.
    #[error("{0}")]
    Protocol(String),
}

impl TlsSettings {
    /// Settings with every version that we know.
    pub fn new(credential: Arc<Credential>, trust: Arc<TrustStore>) -> Self {
        Self {
            credential,
            trust,
            versions: TlsVersions::default(),
        }
    }
}

impl fmt::Display for RefusedChain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reason = self.reason.to_string();
        f.write_str(&reason)?;
        match &self.claimed {
            // The reason may be another certificate's, and an administrator looks for the user.
            Some(claimed) if !reason.contains(claimed.one_line()) => {
                write!(f, "; the certificate presented is that of {claimed}")
            }
            _ => Ok(()),
        }
    }
}

impl TlsError {
    fn protocol(reason: impl Into<String>) -> Self {
        Self::Protocol(reason.into())
    }
}

/// How long the records with so many bytes of plaintext are at most.
pub const fn wrapped_length(plaintext: usize) -> usize {
    // Each record may have a change of keys before it, which is a record too.
    let overhead = 2 * MAX_OVERHEAD + KEY_UPDATE_MESSAGE;
    plaintext + plaintext.div_ceil(MAX_FRAGMENT) * overhead
}

/// The length of the record that `bytes` begin with, with its header; `None` if the header is not whole.
pub fn record_length(bytes: &[u8]) -> Option<usize> {
    match bytes {
        [_, _, _, high, low, ..] => {
            Some(RECORD_HEADER + usize::from(u16::from_be_bytes([*high, *low])))
        }
        _ => None,
    }
}
