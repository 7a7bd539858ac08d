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

use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use gridhaul_security::context::DelegationKeys;
use gridhaul_security::files::{FileError, GridmapFile, TrustDirectory, VomsDirectory};
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
    /// again: they are looked at when they are needed, and the server may have lost the right to read
    /// its key. Without a certificate there is no security.
    pub(crate) fn load(
        config: &config::Security,
        previous: Option<&Self>,
    ) -> Result<Option<Arc<Self>>, SecurityError> {
        let Some(files) = &config.host else {
            return Ok(None);
        };
        let host = match previous.filter(|previous| previous.host.files() == files) {
            Some(previous) => Arc::clone(&previous.host),
            None => Arc::new(HostCredential::open(files)?),
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
        let decided = authorization::decide(
            &gsi.config.rules,
            &gridmap,
            identity,
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::time::Duration;

    use gridhaul_security::certificate::Certificate;
    use gridhaul_security::tls::TlsVersions;
    use tempfile::TempDir;

    use super::*;
    use crate::config::{HostFiles, Rule};

    const ALICE: &str = "/DC=test/O=Samples/CN=Alice Smith";

    /// A directory with everything that a server with GSI needs.
    struct Site {
        directory: TempDir,
        config: config::Security,
    }

    impl Site {
        fn new() -> Self {
            let directory = tempfile::tempdir().expect("a directory");
            let path = |name| directory.path().join(name);
            fs::create_dir(path("certificates")).expect("made");
            for (name, content) in [
                (
                    "certificates/ca.pem",
                    include_bytes!("samples/ca.pem").as_slice(),
                ),
                (
                    "certificates/ca.signing_policy",
                    include_bytes!("samples/ca.signing_policy"),
                ),
                ("host.pem", include_bytes!("samples/host.pem")),
                ("host.key", include_bytes!("samples/host.key")),
                (
                    "grid-mapfile",
                    format!("\"{ALICE}\" alice,grid\n").as_bytes(),
                ),
            ] {
                fs::write(path(name), content).expect("written");
            }
            let private = fs::Permissions::from_mode(0o600);
            fs::set_permissions(path("host.key"), private).expect("set");
            let config = config::Security {
                host: Some(HostFiles {
                    certificates: path("host.pem"),
                    key: path("host.key"),
                }),
                gsi: Some(config::Gsi {
                    trust: path("certificates"),
                    gridmap: Some(path("grid-mapfile")),
                    vomsdir: None,
                    rules: vec![Rule::gridmap()],
                    delegation_keys: KeyKind::Ec,
                    tls_versions: TlsVersions::Only13,
                }),
                tls: true,
                encrypt_data: false,
                require_dcau: false,
                handshakes_per_address: 10,
                failed_handshakes: 10,
            };
            Self { directory, config }
        }

        fn load(
            &self,
            previous: Option<&Security>,
        ) -> Result<Option<Arc<Security>>, SecurityError> {
            Security::load(&self.config, previous)
        }

        fn security(&self) -> Arc<Security> {
            self.load(None).expect("usable").expect("configured")
        }
    }

    /// A user whose chain is valid.
    fn alice(security: &Security) -> Peer {
        let chain =
            Certificate::all_from_pem(include_bytes!("samples/alice.pem")).expect("a certificate");
        let when = chain[0].validity().not_before + Duration::from_secs(3600);
        security.trust().validate(&chain, when).expect("valid")
    }

    #[test]
    fn an_identity_may_use_the_accounts_that_it_is_mapped_to() {
        let security = Site::new().security();
        let alice = alice(&security);
        let account = |requested| {
            let authorized = security.authorize(&alice, requested);
            authorized.map(|authorized| authorized.account)
        };
        assert_eq!(account(None), Ok("alice".to_owned()));
        assert_eq!(account(Some("grid")), Ok("grid".to_owned()));
        assert!(account(Some("root")).is_err());
    }

    #[test]
    fn what_is_offered_is_what_is_configured() {
        let mut site = Site::new();
        let security = site.security();
        assert!(security.offers_gsi() && security.ftps().is_some());
        let settings = security.login();
        assert_eq!(settings.versions, TlsVersions::Only13);
        site.config.tls = false;
        assert!(site.security().tls_acceptor().is_none());
        site.config.gsi = None;
        assert!(!site.security().offers_gsi());
        site.config.host = None;
        assert!(site.load(None).expect("nothing to read").is_none());
    }

    #[test]
    fn a_reload_reads_new_files_and_keeps_what_the_server_may_not_read_again() {
        let mut site = Site::new();
        let running = site.security();
        // As for a server that has given up root's rights.
        fs::remove_file(site.directory.path().join("host.key")).expect("removed");
        let map = site.directory.path().join("map.new");
        fs::write(&map, format!("\"{ALICE}\" bob\n")).expect("written");
        site.config.gsi.as_mut().expect("configured").gridmap = Some(map.clone());
        let reloaded = site.load(Some(&running)).expect("usable").expect("there");
        let alice = alice(&reloaded);
        let authorized = reloaded.authorize(&alice, None).expect("mapped");
        assert_eq!(authorized.account, "bob");
        assert!(Arc::ptr_eq(&running.handshakes, &reloaded.handshakes));
        assert!(Arc::ptr_eq(&running.keys, &reloaded.keys));

        let missing = site.directory.path().join("missing");
        site.config.gsi.as_mut().expect("configured").gridmap = Some(missing.clone());
        let error = site.load(Some(&running)).expect_err("missing").to_string();
        assert!(error.starts_with("gridmap: "), "{error}");
        assert!(error.contains(&missing.display().to_string()), "{error}");
    }

    #[test]
    fn limits_count_from_the_moment_the_server_works_with_them() {
        let mut site = Site::new();
        let running = site.security();
        site.config.handshakes_per_address = 1;
        let reloaded = site.load(Some(&running)).expect("usable").expect("there");
        let peer = IpAddr::from([192, 0, 2, 1]);
        let _first = running.admit_handshake(peer).expect("admitted");
        let _second = running.admit_handshake(peer).expect("as before");
        reloaded.start().expect("started");
        assert!(running.admit_handshake(peer).is_err());
    }
}
