//! Tests with the files of a site.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use gridhaul_security::certificate::Certificate;
use gridhaul_security::tls::TlsVersions;
use gridhaul_security::trust::Peer;
use tempfile::TempDir;

use super::*;
use crate::config::{HostFiles, KeyKind, Rule};

const ALICE: &str = "/DC=test/O=Samples/CN=Alice Smith";

/// A directory with all files for GSI.
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
                passphrase: None,
            }),
            gsi: Some(config::Gsi {
                trust: path("certificates"),
                gridmap: Some(path("grid-mapfile")),
                vomsdir: None,
                ban_lists: Vec::new(),
                gsi_authz: PathBuf::from("/nonexistent"),
                ignore_gsi_authz: false,
                rules: vec![Rule::gridmap()],
                allow_independent_proxies: false,
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
        previous: Option<&Identities>,
    ) -> Result<Option<Arc<Identities>>, SecurityError> {
        Identities::load(&self.config, false, &Opener::default(), previous)
    }

    fn identities(&self) -> Arc<Identities> {
        self.load(None).expect("usable").expect("configured")
    }

    fn security(&self, previous: Option<&Security>) -> Option<Arc<Security>> {
        Security::load(&self.config, true, previous).expect("usable")
    }
}

/// A user whose chain is valid.
fn alice(identities: &Identities) -> Peer {
    let chain =
        Certificate::all_from_pem(include_bytes!("samples/alice.pem")).expect("a certificate");
    let when = chain[0].validity().not_before + Duration::from_secs(3600);
    let settings = identities.login().expect("GSI");
    settings.trust.validate(&chain, when).expect("valid")
}

#[test]
fn an_identity_may_use_the_accounts_that_it_is_mapped_to() {
    let identities = Site::new().identities();
    let alice = alice(&identities);
    let account = |requested| {
        let authorized = identities.authorize(&alice, requested, None);
        authorized.map(|authorized| authorized.account)
    };
    assert_eq!(account(None), Ok("alice".to_owned()));
    assert_eq!(account(Some("grid")), Ok("grid".to_owned()));
    assert!(account(Some("root")).is_err());
}

#[test]
fn what_is_offered_is_what_is_configured() {
    let mut site = Site::new();
    let offered = |site: &Site| {
        let security = site.security(None);
        security.map(|security| (security.offers_gsi(), security.offers_tls()))
    };
    assert_eq!(offered(&site), Some((true, true)));
    let versions = site.identities().login().map(|settings| settings.versions);
    assert_eq!(versions, Some(TlsVersions::Only13));
    site.config.tls = false;
    assert_eq!(offered(&site), Some((true, false)));
    site.config.gsi = None;
    assert_eq!(offered(&site), Some((false, false)));
    assert!(site.identities().login().is_none());
    site.config.host = None;
    assert_eq!(offered(&site), None);
    assert!(site.load(None).expect("nothing to read").is_none());
}

#[test]
fn a_reload_reads_new_files_and_keeps_what_the_server_may_not_read_again() {
    let mut site = Site::new();
    let running = site.identities();
    // The rights of a server that has given up root.
    fs::remove_file(site.directory.path().join("host.key")).expect("removed");
    let map = site.directory.path().join("map.new");
    fs::write(&map, format!("\"{ALICE}\" bob\n")).expect("written");
    site.config.gsi.as_mut().expect("configured").gridmap = Some(map.clone());
    let reloaded = site.load(Some(&running)).expect("usable").expect("there");
    let alice = alice(&reloaded);
    let authorized = reloaded.authorize(&alice, None, None).expect("mapped");
    assert_eq!(authorized.account, "bob");
    assert!(Arc::ptr_eq(&running.host(), &reloaded.host()));

    let missing = site.directory.path().join("missing");
    site.config.gsi.as_mut().expect("configured").gridmap = Some(missing.clone());
    let error = site.load(Some(&running)).expect_err("missing").to_string();
    assert!(error.starts_with("gridmap: "), "{error}");
    assert!(error.contains(&missing.display().to_string()), "{error}");
}

#[test]
fn limits_count_from_the_moment_the_server_works_with_them() {
    let mut site = Site::new();
    let running = site.security(None).expect("configured");
    site.config.handshakes_per_address = 1;
    let reloaded = site.security(Some(&running)).expect("configured");
    let peer = IpAddr::from([192, 0, 2, 1]);
    let _first = running.admit_handshake(peer).expect("admitted");
    let _second = running.admit_handshake(peer).expect("as before");
    reloaded.start();
    assert!(running.admit_handshake(peer).is_err());
}
