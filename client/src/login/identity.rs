//! The user's certificate and the trusted authorities, at the places where Globus programs look for them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use gridhaul_security::credential::Credential;
use gridhaul_security::files::{TrustDirectory, read_credential};
use gridhaul_security::tls::TlsSettings;
use gridhaul_security::trust::TrustStore;

use super::error::IdentityError;
use super::places::Environment;

/// Who the user is, and whom the user trusts.
#[derive(Debug, Clone)]
pub struct Identity {
    /// The certificate or proxy, with its key.
    pub credential: Arc<Credential>,
    /// The authorities.
    pub trust: Arc<TrustStore>,
}

/// Where to look instead of the usual places.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct IdentityPlaces {
    /// A file with a proxy or a certificate, and its key.
    pub proxy: Option<PathBuf>,
    /// A directory with authorities.
    pub trust: Option<PathBuf>,
}

impl IdentityPlaces {
    /// The file with the proxy or the certificate.
    ///
    /// # Errors
    ///
    /// When there is none.
    pub(crate) fn certificate(&self) -> Result<PathBuf, IdentityError> {
        let found = Environment::of_process().credential(self.proxy.as_deref());
        found.map(|(certificate, _)| certificate)
    }
}

impl Identity {
    /// Reads the credential and the authorities. Blocks.
    ///
    /// # Errors
    ///
    /// When there are none, or they cannot be used.
    pub fn find(places: &IdentityPlaces) -> Result<Self, IdentityError> {
        let environment = Environment::of_process();
        let (certificate, key) = environment.credential(places.proxy.as_deref())?;
        let credential = read_credential(&certificate, &key)?;
        if credential.expires() <= SystemTime::now() {
            return Err(IdentityError::Expired(certificate));
        }
        let trust = TrustDirectory::open(&environment.trust(places.trust.as_deref())?)?;
        Ok(Self {
            credential: Arc::new(credential),
            trust: trust.current(),
        })
    }

    /// For handshakes with this identity.
    pub fn tls_settings(&self) -> TlsSettings {
        TlsSettings::new(Arc::clone(&self.credential), Arc::clone(&self.trust))
    }
}
