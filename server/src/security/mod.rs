//! Certificates and authorization in the server.
//!
//! The process that decides logins has [`Identities`]: the host's key, the maps and the rules. The process that has clients
//! has [`Security`]: the offered mechanisms, the trust of data channels, and the limits of handshakes. These are two
//! processes with a login process: [`crate::login`].

mod authorization;
mod files;
mod gsi_authz;
mod handshakes;
mod host;
mod identities;
mod identity_end;
mod inventory;
mod keys;
mod opener;
mod passphrase;
mod pools;
#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gridhaul_security::files::{FileError, TrustDirectory};
use gridhaul_security::tls::TlsVersions;
use gridhaul_security::trust::TrustStore;

use crate::config;

use handshakes::Handshakes;

pub(crate) use authorization::Authorized;
pub use gsi_authz::GsiAuthzError;
pub(crate) use gsi_authz::{GsiAuthz, read as read_gsi_authz};
pub(crate) use handshakes::{HandshakePermit, HandshakeRefusal};
pub use host::HostError;
pub(crate) use host::{HostCredential, chain, server_config};
pub(crate) use identities::{AskCallout, Identities};
pub(crate) use identity_end::ends_soon;
pub(crate) use inventory::{DelegatedMark, Inventory};
pub(crate) use opener::Opener;
pub(crate) use passphrase::Passphrase;

/// The interval of messages about failures that clients can repeat.
const REPEAT_INTERVAL: Duration = Duration::from_secs(5);

/// What the side that talks to clients knows.
#[derive(Debug)]
pub(crate) struct Security {
    gsi: Option<Gsi>,
    offers_tls: bool,
    handshakes: Arc<Handshakes>,
    /// How many handshakes may be under way with an address, and how many may fail in a minute.
    handshake_limits: (usize, usize),
}

/// What data channels of GSI sessions are made with.
#[derive(Debug)]
struct Gsi {
    /// Read apart from that of the other side, whose log tells what is wrong with its files.
    trust: Option<Arc<TrustDirectory>>,
    directory: PathBuf,
    tls_versions: TlsVersions,
}

/// Why the security files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SecurityError {
    /// The server's own certificate.
    #[error(transparent)]
    Host(#[from] HostError),
    /// Whom it trusts, or what identities may use.
    #[error("{setting}: {error}")]
    File {
        /// The setting that names the file.
        setting: &'static str,
        /// What is wrong.
        error: FileError,
    },
    /// Callouts of globus-gridftp-server would be ignored.
    #[error(transparent)]
    GsiAuthz(#[from] GsiAuthzError),
}

impl Security {
    /// Takes over a configuration. Without a certificate there is no security. `has_data_channels`: this process makes
    /// data channels, and reads whom they trust.
    pub(crate) fn load(
        config: &config::Security,
        has_data_channels: bool,
        previous: Option<&Self>,
    ) -> Result<Option<Arc<Self>>, SecurityError> {
        if config.host.is_none() {
            return Ok(None);
        }
        let gsi = match &config.gsi {
            Some(gsi) => {
                let previous = previous.and_then(|previous| previous.gsi.as_ref());
                Some(Gsi::load(gsi, has_data_channels, previous)?)
            }
            None => None,
        };
        let limits = (config.handshakes_per_address, config.failed_handshakes);
        let handshakes = match previous {
            Some(previous) => Arc::clone(&previous.handshakes),
            None => Handshakes::new(limits.0, limits.1),
        };
        Ok(Some(Arc::new(Self {
            gsi,
            offers_tls: config.tls,
            handshakes,
            handshake_limits: limits,
        })))
    }

    /// Counts by its own limits from now on.
    pub(crate) fn start(&self) {
        let (under_way, failed) = self.handshake_limits;
        self.handshakes.set(under_way, failed);
    }

    /// Whether `AUTH GSSAPI` is offered.
    pub(crate) fn offers_gsi(&self) -> bool {
        self.gsi.is_some()
    }

    /// Whether `AUTH TLS` is offered.
    pub(crate) fn offers_tls(&self) -> bool {
        self.offers_tls
    }

    /// The versions of TLS on the data channels of GSI sessions.
    pub(crate) fn tls_versions(&self) -> TlsVersions {
        let gsi = self.gsi.as_ref();
        gsi.map(|gsi| gsi.tls_versions).unwrap_or_default()
    }

    /// The trust of data channels now; empty without GSI. Blocks on files.
    pub(crate) fn trust(&self) -> Arc<TrustStore> {
        let gsi = self.gsi.as_ref();
        let trust = gsi.and_then(|gsi| gsi.trust.as_ref());
        trust.map(|trust| trust.current()).unwrap_or_default()
    }

    /// Counts a handshake with `peer`, or says why there may be none now.
    pub(crate) fn admit_handshake(
        &self,
        peer: IpAddr,
    ) -> Result<HandshakePermit, HandshakeRefusal> {
        self.handshakes.admit(peer, Instant::now())
    }
}

impl Gsi {
    fn load(
        config: &config::Gsi,
        reads_trust: bool,
        previous: Option<&Self>,
    ) -> Result<Self, SecurityError> {
        let same = previous.filter(|previous| previous.directory == config.trust);
        let trust = match same {
            Some(previous) => previous.trust.clone(),
            None if !reads_trust => None,
            None => {
                let opened = TrustDirectory::open(&config.trust);
                let opened = opened.map_err(|error| SecurityError::File {
                    setting: "trust",
                    error,
                })?;
                Some(Arc::new(opened))
            }
        };
        Ok(Self {
            trust,
            directory: config.trust.clone(),
            tls_versions: config.tls_versions,
        })
    }
}
