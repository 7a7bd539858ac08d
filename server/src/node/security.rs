//! What a data node presents and trusts. Certificate and trust directory are read again when they change.
//!
//! An enrolled node presents its identity to control servers and trusts the authority of that alone. A host certificate and
//! trusted authorities are for data channels then, and it may have none.

use std::sync::Arc;
use std::time::SystemTime;

use gridhaul_security::credential::Credential;
use gridhaul_security::files::TrustDirectory;
use gridhaul_security::node_authority::{IdentityError, NodeIdentity, Role};
use gridhaul_security::tls::{
    HostCertificate, HostCertificateError, HostSettings, PeerFault, Principal, TlsVersions,
    validate_control_server,
};
use gridhaul_security::trust::TrustStore;
use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;

use super::error::NodeError;
use crate::config::{Config, HostFiles};
use crate::security::{HostCredential, Opener, SecurityError, chain, server_config};

/// The certificate of a node, its trust and its control servers.
#[derive(Debug)]
pub(super) struct NodeSecurity {
    host: Option<HostCredential>,
    trust: Option<TrustDirectory>,
    control: Control,
}

/// The control servers of a node.
#[derive(Debug)]
enum Control {
    /// Those with these certificates; without them: those with the host certificate of the node.
    Listed(Option<Arc<[Principal]>>),
    /// That of the authority of this identity.
    Enrolled(Box<HostCredential>),
}

/// For one handshake.
pub(super) struct Current {
    pub(super) settings: HostSettings,
    pub(super) control_servers: Arc<[Principal]>,
}

impl NodeSecurity {
    /// Reads the files. The passphrase of the key may be asked for. `None` if the configuration is not that of a node.
    ///
    /// # Errors
    ///
    /// When a file cannot be used, or the certificate is a proxy.
    pub(super) fn open(config: &Config, opener: Opener) -> Result<Option<Self>, NodeError> {
        let Some(node) = &config.node else {
            return Ok(None);
        };
        let read = |files: &HostFiles| {
            HostCredential::open(files, opener.clone(), None).map_err(SecurityError::from)
        };
        let gsi = config.security.gsi.as_ref();
        let trust = gsi.map(|gsi| TrustDirectory::open(&gsi.trust)).transpose();
        let control = match &node.identity {
            Some(file) => Control::Enrolled(Box::new(read(&HostFiles::one(file))?)),
            None => Control::Listed(node.control_servers.clone().map(Arc::from)),
        };
        let opened = Self {
            host: config.security.host.as_ref().map(read).transpose()?,
            trust: trust.map_err(|error| SecurityError::File {
                setting: "trust",
                error,
            })?,
            control,
        };
        opened.current()?;
        Ok(Some(opened))
    }

    /// The trust of data channels now. Blocks on files, at most once a second.
    pub(super) fn trust(&self) -> Arc<TrustStore> {
        let trust = self.trust.as_ref();
        trust.map(TrustDirectory::current).unwrap_or_default()
    }

    /// The TLS configuration of data channels of `AUTH TLS`. Blocks on files, at most once a second.
    pub(super) fn host_tls(&self) -> Option<Arc<ServerConfig>> {
        let credential = self.host.as_ref()?.current();
        let key = credential.key().signing_key();
        server_config(chain(&credential), key).ok().map(Arc::new)
    }

    /// When the certificate of an enrolled node ends. Blocks on files, at most once a second.
    pub(super) fn end_of_identity(&self) -> Option<SystemTime> {
        match &self.control {
            Control::Enrolled(identity) => Some(identity.current().expires()),
            Control::Listed(_) => None,
        }
    }

    /// The settings for a handshake now. Blocks on files, at most once a second.
    ///
    /// # Errors
    ///
    /// When the certificate was replaced by a proxy, or the identity by another file.
    pub(super) fn current(&self) -> Result<Current, IdentityError> {
        let listed = match &self.control {
            Control::Enrolled(identity) => return enrolled(&identity.current()),
            Control::Listed(listed) => listed,
        };
        let host = self.host.as_ref().ok_or(HostCertificateError::Missing)?;
        let credential = host.current();
        let key = credential.key().signing_key();
        let certificate = HostCertificate::new(credential.chain(), key)?;
        let control_servers = match listed {
            Some(listed) => Arc::clone(listed),
            None => Principal::of_own(certificate.certificate()).into(),
        };
        Ok(Current {
            settings: HostSettings {
                certificate,
                trust: self.trust(),
                // A control server signs for no other version: `login/host_key.rs`.
                versions: TlsVersions::Only13,
            },
            control_servers,
        })
    }

    /// Whether a control server would be accepted now with the chain that it has presented. Blocks on files, at most once a
    /// second.
    ///
    /// # Errors
    ///
    /// Why it would not.
    pub(super) fn validate(&self, presented: &[CertificateDer<'_>]) -> Result<(), PeerFault> {
        // Without a certificate of its own this node cannot judge.
        self.current().map_or(Ok(()), |current| {
            let listed = &current.control_servers;
            validate_control_server(&current.settings, listed, presented, SystemTime::now())
        })
    }
}

/// The settings of an enrolled node.
fn enrolled(credential: &Credential) -> Result<Current, IdentityError> {
    let identity = NodeIdentity::new(Role::Node, credential.chain())?;
    Ok(Current {
        settings: identity.settings(credential.key().signing_key())?,
        control_servers: identity.control_servers(),
    })
}
