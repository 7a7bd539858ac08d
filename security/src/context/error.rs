//! Why a context failed.

use crate::credential::CredentialError;
use crate::delegation::DelegationError;
use crate::key::KeyError;
use crate::malformed::CertificateError;
use crate::tls::TlsError;
use crate::trust::ChainError;

/// Why a context failed.
#[derive(Debug, thiserror::Error)]
pub enum ContextError {
    /// The handshake failed, or a record is invalid.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The delegation failed.
    #[error(transparent)]
    Delegation(#[from] DelegationError),
    /// No key could be generated.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The delegated proxy is malformed.
    #[error("the delegated proxy cannot be read: {0}")]
    Certificate(#[from] CertificateError),
    /// The delegated proxy is for another key.
    #[error("the delegated proxy cannot be used: {0}")]
    Credential(#[from] CredentialError),
    /// The delegated proxy is not accepted.
    #[error("the delegated proxy is not valid: {0}")]
    Chain(ChainError),
    /// The peer violated the protocol after the handshake.
    #[error("{0}")]
    Protocol(String),
}

impl ContextError {
    pub(super) fn protocol(reason: &str) -> Self {
        Self::Protocol(reason.to_owned())
    }
}
