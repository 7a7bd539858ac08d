//! What a data node presents and trusts. Certificate and trust directory are read again when they change.

use std::sync::Arc;

use gridhaul_security::files::TrustDirectory;
use gridhaul_security::tls::{
    HostCertificate, HostCertificateError, HostSettings, Principal, TlsVersions,
};
use gridhaul_security::trust::TrustStore;
use rustls::ServerConfig;

use super::error::NodeError;
use crate::config::Config;
use crate::security::{HostCredential, Opener, SecurityError, chain, server_config};

/// The certificate of a node, its trust and its control servers.
#[derive(Debug)]
pub(super) struct NodeSecurity {
    host: HostCredential,
    trust: TrustDirectory,
    /// Without them: those with the certificate of the node.
    control_servers: Option<Arc<[Principal]>>,
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
        let security = &config.security;
        let (Some(host), Some(gsi), Some(node)) = (&security.host, &security.gsi, &config.node)
        else {
            return Ok(None);
        };
        let host = HostCredential::open(host, opener, None).map_err(SecurityError::from)?;
        let trust = TrustDirectory::open(&gsi.trust).map_err(|error| SecurityError::File {
            setting: "trust",
            error,
        })?;
        let opened = Self {
            host,
            trust,
            control_servers: node.control_servers.clone().map(Arc::from),
        };
        opened.current()?;
        Ok(Some(opened))
    }

    /// The trust of data channels now. Blocks on files, at most once a second.
    pub(super) fn trust(&self) -> Arc<TrustStore> {
        self.trust.current()
    }

    /// The TLS configuration of data channels of `AUTH TLS`. Blocks on files, at most once a second.
    pub(super) fn host_tls(&self) -> Option<Arc<ServerConfig>> {
        let credential = self.host.current();
        let key = credential.key().signing_key();
        server_config(chain(&credential), key).ok().map(Arc::new)
    }

    /// The settings for a handshake now. Blocks on files, at most once a second.
    ///
    /// # Errors
    ///
    /// When the certificate was replaced by a proxy.
    pub(super) fn current(&self) -> Result<Current, HostCertificateError> {
        let credential = self.host.current();
        let key = credential.key().signing_key();
        let certificate = HostCertificate::new(credential.chain(), key)?;
        let control_servers = match &self.control_servers {
            Some(listed) => Arc::clone(listed),
            None => Principal::of_own(certificate.certificate()).into(),
        };
        Ok(Current {
            settings: HostSettings {
                certificate,
                trust: self.trust.current(),
                // A control server signs for no other version: `login/host_key.rs`.
                versions: TlsVersions::Only13,
            },
            control_servers,
        })
    }
}
