//! The secrets and files of the process that decides logins: the host's key, the maps, the rules, the keys of delegations.
//!
//! The files change while the server runs. They are examined when they are needed, at most once a second, so that a new
//! certificate, revocation list or grid-mapfile counts for the next login without a signal. If a file becomes unusable, its
//! last content stays in use.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use gridhaul_security::credential::Credential;
use gridhaul_security::delegation::DelegationKeys;
use gridhaul_security::files::{GridmapFile, TrustDirectory, VomsDirectory};
use gridhaul_security::name::Name;
use gridhaul_security::tls::TlsSettings;
use gridhaul_security::trust::Peer;
use gridhaul_security::voms;
use tracing::info;

use crate::config::{self, KeyKind};

use super::authorization::{self, Authorized, Denied};
use super::files::{Source, Told};
use super::host::HostCredential;
use super::keys::LoginKeys;
use super::{Opener, SecurityError};

/// Everything that decides logins with certificates.
#[derive(Debug)]
pub(crate) struct Identities {
    host: Arc<HostCredential>,
    gsi: Option<Gsi>,
    keys: Arc<LoginKeys>,
}

/// Who may log in with a certificate.
#[derive(Debug)]
struct Gsi {
    config: config::Gsi,
    trust: Arc<Told<TrustDirectory>>,
    gridmap: Option<Arc<Told<GridmapFile>>>,
    vomsdir: Option<Arc<Told<VomsDirectory>>>,
}

impl Identities {
    /// Reads the files that a configuration names. Files that `previous` has read are not read again here, but when they are
    /// needed. `None` without a certificate.
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
                Some(Gsi::load(gsi, opener, previous)?)
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
        Ok(Some(Arc::new(Self { host, gsi, keys })))
    }

    /// Begins to generate keys in advance. Must not be called before the process may have threads.
    pub(crate) fn start(&self) -> io::Result<()> {
        match &self.gsi {
            Some(_) => self.keys.start(),
            None => Ok(()),
        }
    }

    /// The present certificate and key. Blocks on files.
    pub(crate) fn host(&self) -> Arc<Credential> {
        self.host.current()
    }

    /// The present settings of a GSI login; `None` without GSI. Blocks on files.
    pub(crate) fn login(&self) -> Option<TlsSettings> {
        let gsi = self.gsi.as_ref()?;
        Some(TlsSettings {
            versions: gsi.config.tls_versions,
            ..TlsSettings::new(self.host.current(), gsi.trust.current())
        })
    }

    /// The keys of delegated credentials.
    pub(crate) fn delegation_keys(&self) -> Arc<dyn DelegationKeys> {
        Arc::clone(&self.keys) as Arc<dyn DelegationKeys>
    }

    /// The authorization of an identity. `requested` is the name after `USER`, `None` for `:globus-mapping:`. A limited
    /// proxy counts as a full one, because clients delegate limited proxies for file transfers. Blocks on files.
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
                let host = self.host.current();
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
                // They may be the reason.
                for problem in problems {
                    info!(identity, %problem, "VOMS attributes do not count");
                }
                Err(denied)
            }
        }
    }
}

impl Gsi {
    fn load(
        config: &config::Gsi,
        opener: &Opener,
        previous: Option<&Self>,
    ) -> Result<Self, SecurityError> {
        let trust = previous.map(|gsi| &gsi.trust);
        let trust = read("trust", &config.trust, opener, trust)?;
        let gridmap = match &config.gridmap {
            Some(path) => {
                let previous = previous.and_then(|gsi| gsi.gridmap.as_ref());
                Some(read("gridmap", path, opener, previous)?)
            }
            None => None,
        };
        let vomsdir = match &config.vomsdir {
            Some(path) => {
                let previous = previous.and_then(|gsi| gsi.vomsdir.as_ref());
                Some(read("vomsdir", path, opener, previous)?)
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

/// Opens the file at `path`, or takes the previous one of the same path. `setting` names it in the log.
fn read<S: Source>(
    setting: &'static str,
    path: &Path,
    opener: &Opener,
    previous: Option<&Arc<Told<S>>>,
) -> Result<Arc<Told<S>>, SecurityError> {
    match previous.filter(|previous| previous.path() == path) {
        Some(previous) => {
            // The administrator expects the log to report a file that cannot be read.
            previous.current();
            Ok(Arc::clone(previous))
        }
        None => Told::open(path, opener)
            .map(Arc::new)
            .map_err(|error| SecurityError::File { setting, error }),
    }
}
