//! Delegation: certification requests and the proxies that are signed for them.

mod der;
mod pool;
mod proxy;
mod request;

use std::fmt;

use crate::asn1::Elements;
use crate::certificate::{Certificate, CertificateError};
use crate::key::{KeyError, PrivateKey};

pub use pool::KeyPool;
pub use proxy::sign;
pub use request::request;

/// A source of keys for delegated credentials. Generating an RSA key is slow, so [`KeyPool`] makes
/// them in advance.
pub trait DelegationKeys: Send + Sync + fmt::Debug {
    /// A key that is used for one credential only.
    ///
    /// # Errors
    ///
    /// When no key can be generated.
    fn take(&self) -> Result<PrivateKey, KeyError>;
}

/// Why a delegation failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DelegationError {
    /// The request is not what a request must be.
    #[error("the request for a proxy is malformed: {0}")]
    Request(String),
    /// The requester does not have the key that the request names.
    #[error("the request for a proxy is not signed with the key that it is for")]
    NoPossession,
    /// The issuer may not sign such a proxy.
    #[error("{issuer} cannot sign this proxy: {reason}")]
    Issuer {
        /// The subject of its certificate.
        issuer: String,
        /// The rule.
        reason: &'static str,
    },
    /// A key cannot be used.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// What was made cannot be read.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
}

/// The certificate that a token begins with. GSI initiators may send more behind it.
pub(crate) fn first_certificate(token: &[u8]) -> Result<Certificate, CertificateError> {
    let malformed = |error: ::der::Error| CertificateError::Malformed {
        what: "the certificate",
        reason: error.to_string(),
    };
    let first = Elements::new(token).next().map_err(malformed)?;
    Certificate::from_der(first.encoding())
}
