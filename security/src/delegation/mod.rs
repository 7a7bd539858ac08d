//! Delegation: certification requests, and signing proxies for them.

mod pool;
mod proxy;
mod request;

use std::fmt;

use crate::asn1::Elements;
use crate::certificate::Certificate;
use crate::key::{KeyError, PrivateKey};
use crate::malformed::CertificateError;

pub use pool::KeyPool;
pub use proxy::{issue, sign};
pub use request::request;
pub(crate) use request::{requested, signed_request};

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
    /// The request is malformed.
    #[error("the request for a proxy is malformed: {0}")]
    Request(String),
    /// The request is not signed with the key that it contains.
    #[error("the request for a proxy is not signed with the key that it is for")]
    NoPossession,
    /// The issuer may not sign such a proxy.
    #[error("{issuer} cannot sign this proxy: {reason}")]
    Issuer {
        /// The subject of its certificate.
        issuer: String,
        /// The violated rule.
        reason: &'static str,
    },
    /// A key cannot be used.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The signed certificate cannot be parsed.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
}

/// The certificate at the start of a token. GSI initiators may send further data after it.
pub(crate) fn first_certificate(token: &[u8]) -> Result<Certificate, CertificateError> {
    let malformed = CertificateError::malformed("the certificate");
    let first = Elements::new(token).next().map_err(malformed)?;
    Certificate::from_der(first.encoding())
}
