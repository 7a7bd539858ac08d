//! The error of parsers of DER structures.

use std::fmt;

/// Why bytes are not a certificate or a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CertificateError {
    /// Not DER, or not of the required structure.
    #[error("{what} is malformed: {reason}")]
    Malformed {
        /// The structure that was expected.
        what: &'static str,
        /// The reason.
        reason: String,
    },
}

impl CertificateError {
    pub(crate) fn malformed<E: fmt::Display>(what: &'static str) -> impl FnOnce(E) -> Self {
        move |reason| Self::Malformed {
            what,
            reason: reason.to_string(),
        }
    }
}
