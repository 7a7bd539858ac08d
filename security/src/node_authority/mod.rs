//! The certificates of data nodes of sites that have no authority of their own.
//!
//! A control server has a small authority that issues two kinds of certificates: its own, with which it connects to nodes and
//! invites them, and those of nodes, each for one host. The subject tells them apart, so that a node cannot act as a control
//! server. The parts of a deployment trust this authority for connections between control server and nodes only: it is in no
//! trust directory, and issues nothing that a login accepts.
//!
//! ```text
//! authority      issues certificates
//! identity       what one end presents and trusts
//! subject        the names of both kinds
//! token          with which a node gets its certificate
//! ```

mod authority;
mod identity;
mod subject;
mod token;

use crate::delegation::DelegationError;
use crate::host_name::HostName;
use crate::key::KeyError;
use crate::malformed::CertificateError;
use crate::name::Name;

pub use authority::{NodeAuthority, request};
pub use identity::{IdentityError, NodeIdentity};
pub use subject::Role;
pub use token::{Token, TokenError};

/// Why an authority issues no certificate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthorityError {
    /// The file has a credential of another kind.
    #[error("{0} is no authority of data nodes")]
    OtherKind(Name),
    /// The request is malformed, or is not signed with its key.
    #[error("the request for a certificate cannot be used: {0}")]
    Request(DelegationError),
    /// The request names another host.
    #[error("the request is for {asked}, and the token for {invited}")]
    OtherHost {
        /// The subject of the request.
        asked: String,
        /// The host that was invited.
        invited: HostName,
    },
    /// The authority ends.
    #[error("the authority of data nodes has expired")]
    Expired,
    /// The operating system has no random numbers.
    #[error("there are no random numbers")]
    Random,
    /// A key cannot be used.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// What was issued cannot be parsed.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
}

#[cfg(test)]
mod tests;
