//! TLS for GSI, without I/O: chains with proxies, no resumption, any server name.
//!
//! rustls performs handshakes. [`TlsEngine`] is for bulk data: it protects records itself, with the negotiated keys, which
//! saves two copies and an allocation for each record. Contexts ([`crate::context`]) exchange small tokens, whose records
//! rustls protects.
//!
//! ```text
//! engine          connection, acceptance     handshakes: bulk data; tokens, AUTH TLS
//!    │                │       handover       keys for another process
//!    └───> traffic <──┘                      connections after their handshake
//!             └──> protection                records
//! mutual, peer_fault                         connections between hosts, which rustls protects
//! named                                      connections of clients without certificates
//! pinned                                     a host whose authority is known by its fingerprint
//! config, provider, verifier, hello          rustls
//! ```

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
mod mutual;
mod named;
mod peer_fault;
mod pinned;
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
pub use mutual::{
    HostAcceptor, HostCertificate, HostCertificateError, HostConnector, HostSettings, HostVerifier,
    PeerIdentity, Principal, validate_control_server, validate_node,
};
pub use named::{NamedConnector, NamedServer};
pub use peer_fault::PeerFault;
pub use pinned::{PinnedConnector, PinnedFault, PinnedVerifier, pinned_server};
use protection::MAX_OVERHEAD;

/// The largest record: header, content, and what protection adds (RFC 5246 6.2.3; RFC 8446 5.2 allows
/// less).
pub const MAX_RECORD: usize = RECORD_HEADER + MAX_FRAGMENT + 2048;

/// The header of a record: type, version and length.
pub const RECORD_HEADER: usize = 5;

/// The largest content of a record.
const MAX_FRAGMENT: usize = 1 << 14;

/// The length of a KeyUpdate message (RFC 8446 4.6.3).
const KEY_UPDATE_MESSAGE: usize = 5;

/// The settings of a handshake.
#[derive(Clone, Debug)]
pub struct TlsSettings {
    /// The credential of this side.
    pub credential: Arc<Credential>,
    /// Validates the chain of the peer.
    pub trust: Arc<TrustStore>,
    /// The versions that may be negotiated.
    pub versions: TlsVersions,
}

/// The versions of TLS that may be negotiated.
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

/// A refused chain.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct RefusedChain {
    /// The reason.
    #[source]
    pub reason: ChainError,
    /// The claimed identity, which is not verified: the subject of the first certificate that is not a proxy.
    pub claimed: Option<Name>,
}

/// Why a connection failed.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The peer's chain is not accepted.
    #[error(transparent)]
    Chain(#[from] Box<RefusedChain>),
    /// The peer violated the protocol, or no common version or cipher suite exists.
    #[error("{0}")]
    Protocol(String),
}

impl TlsSettings {
    /// Settings with all supported versions.
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
            // The reason may name another certificate, but administrators search for the user.
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

/// The maximum length of the records for this many bytes of plaintext.
pub const fn wrapped_length(plaintext: usize) -> usize {
    // Each record may be preceded by a key update, which is a record as well.
    let overhead = 2 * MAX_OVERHEAD + KEY_UPDATE_MESSAGE;
    plaintext + plaintext.div_ceil(MAX_FRAGMENT) * overhead
}

/// The length of the record at the start of `bytes`, including its header; `None` if the header is incomplete.
pub fn record_length(bytes: &[u8]) -> Option<usize> {
    match bytes {
        [_, _, _, high, low, ..] => {
            Some(RECORD_HEADER + usize::from(u16::from_be_bytes([*high, *low])))
        }
        _ => None,
    }
}
