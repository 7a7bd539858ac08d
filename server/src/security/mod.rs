//! What the server knows about security: its certificate, whom it trusts, and what an identity may use.
//!
//! All of it lives in files that change while the server runs. They are looked at when they are needed,
//! at most once a second, so that a new certificate, revocation list or grid-mapfile counts for the
//! next login without a signal. A file that has become unusable leaves what was there.

mod authorization;
mod files;
mod handshakes;
mod host;
mod keys;
mod opener;
#[cfg(test)]
mod tests;

use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use gridhaul_security::context::DelegationKeys;
use gridhaul_security::files::{FileError, GridmapFile, TrustDirectory, VomsDirectory};
use gridhaul_security::name::Name;
use gridhaul_security::tls::{TlsSettings, TlsVersions};
use gridhaul_security::trust::{Peer, TrustStore};
use gridhaul_security::voms;
use rustls::ServerConfig;
use tokio_rustls::TlsAcceptor;
use tracing::info;

use crate::config::{self, KeyKind};

use files::{Source, Told};
use handshakes::Handshakes;
use host::{Held, HostCredential};
use keys::LoginKeys;

pub(crate) use authorization::{Authorized, Denied};
pub(crate) use handshakes::{HandshakePermit, HandshakeRefusal};
pub use host::HostError;
pub(crate) use opener::Opener;

/// What sessions with GSI and TLS are accepted with.
#[derive(Debug)]
pub(crate) struct Security {
    host: Arc<HostCredential>,
    gsi: Option<Gsi>,
    keys: Arc<LoginKeys>,
    offers_tls: bool,
    handshakes: Arc<Handshakes>,
    /// How many handshakes may be under way with an address, and how many may fail in a minute.
    handshake_limits: (usize, usize),
}

/// Who may log in with a certificate.
#[derive(Debug)]
struct Gsi {
    config: config::Gsi,
    trust: Arc<Told<TrustDirectory>>,
    gridmap: Option<Arc<Told<GridmapFile>>>,
    vomsdir: Option<Arc<Told<VomsDirectory>>>,
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
}

impl Security {
    /// Reads the files that a configuration names. Those that `previous` read already are not read
    /// again: they are looked at when they are needed. Without a certificate there is no security.
    pub(crate) fn load(
        config: &config::Security,
        opener: &Opener,
        previous: Option<&Self>,
    ) -> Result<Option<Arc<Self>>, SecurityError> {
        let Some(files) = &config.host else {
            return Ok(None);
        };
        let host = match previous.filter(|previous| previous.host.files() == files) {
            Some(previous) => Arc::clone(&previous.host),
            None => Arc::new(HostCredential::open(files, opener.clone())?),
        };
        let gsi = match &config.gsi {
            Some(gsi) => {
                let previous = previous.and_then(|previous| previous.gsi.as_ref());
                Some(Gsi::load(gsi, previous)?)
            }
            None => None,
        };
        let kind = config
            .gsi
            .as_ref()
            .map_or_else(KeyKind::default, |gsi| gsi.delegation_keys);
        let keys = match previous.filter(|previous| previous.keys.kind() == kind) {
            Some(previous) => Arc::clone(&previous.keys),
            None => Arc::new(LoginKeys::new(kind)),
        };
        let limits = (config.handshakes_per_address, config.failed_handshakes);
        let handshakes = match previous {
            Some(previous) => Arc::clone(&previous.handshakes),
            None => Handshakes::new(limits.0, limits.1),
        };
        Ok(Some(Arc::new(Self {
            host,
            gsi,
            keys,
            offers_tls: config.tls,
            handshakes,
            handshake_limits: limits,
        })))
    }

    /// Takes up its work: makes keys in advance, and counts by its own limits. Must not be called
    /// before the process may have threads.
    pub(crate) fn start(&self) -> io::Result<()> {
        let (under_way, failed) = self.handshake_limits;
        self.handshakes.set(under_way, failed);
        match &self.gsi {
            Some(_) => self.keys.start(),
            None => Ok(()),
        }
    }

    /// Whether `AUTH GSSAPI` is offered.
    pub(crate) fn offers_gsi(&self) -> bool {
        self.gsi.is_some()
    }

    /// What a GSI login needs: the certificate and the trust as they are now. Blocks on files.
    pub(crate) fn login(&self) -> TlsSettings {
        TlsSettings {
            versions: self.tls_versions(),
            ..TlsSettings::new(self.host.current().credential, self.trust())
        }
    }

    /// The versions of TLS in GSI sessions and on their data channels.
    pub(crate) fn tls_versions(&self) -> TlsVersions {
        let gsi = self.gsi.as_ref();
        gsi.map(|gsi| gsi.config.tls_versions).unwrap_or_default()
    }

    /// The keys of delegated credentials.
    pub(crate) fn delegation_keys(&self) -> Arc<dyn DelegationKeys> {
        Arc::clone(&self.keys) as Arc<dyn DelegationKeys>
    }

    /// Whom data channels trust now; nobody without GSI. Blocks on files.
    pub(crate) fn trust(&self) -> Arc<TrustStore> {
        let gsi = self.gsi.as_ref();
        gsi.map(|gsi| gsi.trust.current()).unwrap_or_default()
    }

    /// For `AUTH TLS`, if it is offered: the server's certificate, and none is asked of the client.
    /// Blocks on files.
    pub(crate) fn tls_acceptor(&self) -> Option<TlsAcceptor> {
        self.ftps().map(TlsAcceptor::from)
    }

    /// The same for the data channels of such a session.
    pub(crate) fn ftps(&self) -> Option<Arc<ServerConfig>> {
        let Held { tls, .. } = self.offers_tls.then(|| self.host.current())?;
        Some(tls)
    }

    /// Which account an identity may use. `requested` is the name after `USER`, `None` for
    /// `:globus-mapping:`. A limited proxy is as good as a full one: it is what clients delegate for
    /// file transfers. Blocks on files.
    pub(crate) fn authorize(
        &self,
        peer: &Peer,
        requested: Option<&str>,
    ) -> Result<Authorized, Denied> {
        let identity = peer.identity.one_line();
        let Some(gsi) = &self.gsi else {
            return Err(Denied::NotMapped {
                identity: identity.to_owned(),
            });
        };
        if let Some(proxy) = peer.independent_proxy()
            && !gsi.config.allow_independent_proxies
        {
            return Err(Denied::IndependentProxy {
                proxy: proxy.one_line().to_owned(),
            });
        }
        let (memberships, problems) = match &gsi.vomsdir {
            Some(vomsdir) => {
                let servers = vomsdir.current();
                let host = self.host.current().credential;
                let names = host.leaf().dns_names();
                let trust = gsi.trust.current();
                voms::memberships(peer, &trust, &servers, names, SystemTime::now())
            }
            None => (Vec::new(), Vec::new()),
        };
        // Without a grid-mapfile there are only rules.
        let gridmap = gsi.gridmap.as_ref();
        let gridmap = gridmap.map(|gridmap| gridmap.current()).unwrap_or_default();
        let subjects: Vec<&str> = peer.subjects().map(Name::one_line).collect();
        let decided = authorization::decide(
            &gsi.config.rules,
            &gridmap,
            (identity, &subjects),
            &memberships,
            requested,
        );
        match decided {
            Ok(authorized) => Ok(Authorized {
                notes: problems.iter().map(ToString::to_string).collect(),
                ..authorized
            }),
            Err(denied) => {
                // They may be why.
                for problem in problems {
                    info!(identity, %problem, "VOMS attributes do not count");
                }
                Err(denied)
            }
        }
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
    fn load(config: &config::Gsi, previous: Option<&Self>) -> Result<Self, SecurityError> {
        let trust = read("trust", &config.trust, previous.map(|gsi| &gsi.trust))?;
        let gridmap = match &config.gridmap {
            Some(path) => {
                let previous = previous.and_then(|gsi| gsi.gridmap.as_ref());
                Some(read("gridmap", path, previous)?)
            }
            None => None,
        };
        let vomsdir = match &config.vomsdir {
            Some(path) => {
                let previous = previous.and_then(|gsi| gsi.vomsdir.as_ref());
                Some(read("vomsdir", path, previous)?)
            }
            None => None,
        };
        Ok(Self {
            config: config.clone(),
            trust,
            gridmap,
            vomsdir,
        })
    }
}

/// What is at `path`, which may be what was there before. `setting` names it.
fn read<S: Source>(
    setting: &'static str,
    path: &Path,
    previous: Option<&Arc<Told<S>>>,
) -> Result<Arc<Told<S>>, SecurityError> {
    match previous.filter(|previous| previous.path() == path) {
        Some(previous) => Ok(Arc::clone(previous)),
        None => Told::open(path)
            .map(Arc::new)
            .map_err(|error| SecurityError::File { setting, error }),
    }
}
