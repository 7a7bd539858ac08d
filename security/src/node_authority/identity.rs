//! What a control server or an enrolled node presents to the other, and whom it trusts.

use std::sync::Arc;
use std::time::SystemTime;

use rustls::sign::SigningKey;

use super::subject::{self, Role};
use crate::certificate::Certificate;
use crate::name::Name;
use crate::tls::{HostCertificate, HostCertificateError, HostSettings, Principal, TlsVersions};
use crate::trust::{ChainError, TrustStore};

/// A certificate of an authority of data nodes, with that of the authority.
#[derive(Clone, Debug)]
pub struct NodeIdentity {
    leaf: Certificate,
    authority: Certificate,
}

/// Why a chain is not the identity of a control server or a node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// It does not consist of a certificate and that of an authority of data nodes.
    #[error(
        "it has no certificate of an authority of data nodes: `gridhaul-server nodes invite` makes such files"
    )]
    NoAuthority,
    /// It is of the other kind.
    #[error("{subject} is not the certificate of a {}", wanted.words())]
    OtherRole {
        /// The kind that is needed.
        wanted: Role,
        /// The subject of the certificate.
        subject: Name,
    },
    /// The authority has not issued the certificate, or not for now.
    #[error(transparent)]
    Chain(#[from] ChainError),
    /// It is good for no host.
    #[error(transparent)]
    Host(#[from] HostCertificateError),
}

impl NodeIdentity {
    /// Takes the chain of an identity apart: the certificate, and that of its authority.
    ///
    /// # Errors
    ///
    /// When it is none, or one of the other kind. Its time is not examined.
    pub fn new(role: Role, chain: &[Certificate]) -> Result<Self, IdentityError> {
        let [leaf, authority] = chain else {
            return Err(IdentityError::NoAuthority);
        };
        let id = subject::id(authority).ok_or(IdentityError::NoAuthority)?;
        let is_of_role = match role {
            Role::ControlServer => leaf.subject().as_der() == subject::of(role, &id),
            Role::Node => {
                let name = leaf.subject().first_common_name().unwrap_or_default();
                leaf.subject().as_der() == subject::of(role, &name)
            }
        };
        match is_of_role {
            true => Ok(Self {
                leaf: leaf.clone(),
                authority: authority.clone(),
            }),
            false => Err(IdentityError::OtherRole {
                wanted: role,
                subject: leaf.subject().clone(),
            }),
        }
    }

    /// Whether the authority has issued the certificate, and it is valid now.
    ///
    /// # Errors
    ///
    /// The reason why not.
    pub fn verify(&self, now: SystemTime) -> Result<(), IdentityError> {
        let chain = [self.leaf.clone(), self.authority.clone()];
        self.trust().validate(&chain, now)?;
        Ok(())
    }

    /// The certificate.
    pub fn certificate(&self) -> &Certificate {
        &self.leaf
    }

    /// The certificate of the authority.
    pub fn authority(&self) -> &Certificate {
        &self.authority
    }

    /// For connections with the other kind.
    ///
    /// # Errors
    ///
    /// When the certificate is that of no host.
    pub fn settings(&self, key: Arc<dyn SigningKey>) -> Result<HostSettings, IdentityError> {
        Ok(HostSettings {
            certificate: HostCertificate::new(std::slice::from_ref(&self.leaf), key)?,
            trust: Arc::new(self.trust()),
            // The process with the key signs for no other version as a client.
            versions: TlsVersions::Only13,
        })
    }

    /// The control servers that a node with this identity accepts.
    pub fn control_servers(&self) -> Arc<[Principal]> {
        let name = subject::of_control_server(&self.authority);
        let names = name.map(|name| Principal::Subject(name.one_line().to_owned()));
        names.into_iter().collect()
    }

    /// The authority alone.
    fn trust(&self) -> TrustStore {
        TrustStore::default().with_only_anchors(std::slice::from_ref(&self.authority))
    }
}
