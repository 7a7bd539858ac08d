//! Certificates that the `openssl` program makes.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, LazyLock};

use gridhaul_security::certificate::Certificate;
use gridhaul_security::credential::Credential;
use gridhaul_security::tls::TlsVersions;
use gridhaul_security::trust::TrustStore;
use tempfile::TempDir;

use crate::{ChannelSecurity, Gsi, Protection};

/// A certificate authority and its users.
pub(super) struct Pki {
    directory: TempDir,
    pub(super) trust: Arc<TrustStore>,
}

/// Two independent authorities.
pub(super) static PKI: LazyLock<Pki> = LazyLock::new(Pki::new);
pub(super) static OTHER_PKI: LazyLock<Pki> = LazyLock::new(Pki::new);

const CONFIGURATION: &str = "[req]\ndistinguished_name = name\nprompt = no\n[name]\n";

impl Pki {
    fn new() -> Self {
        let directory = TempDir::new().expect("a temporary directory");
        std::fs::write(directory.path().join("req.cnf"), CONFIGURATION).expect("a file");
        let mut pki = Self {
            directory,
            trust: Arc::default(),
        };
        let extensions = ["basicConstraints=critical,CA:TRUE", "keyUsage=keyCertSign"];
        pki.request("ca", "/DC=test/CN=Test CA", &extensions, &[]);
        let anchors = Certificate::all_from_pem(&pki.pem("ca")).expect("a certificate");
        pki.trust = Arc::new(TrustStore::default().with_anchors(&anchors));
        pki
    }

    fn request(&self, file: &str, subject: &str, extensions: &[&str], more: &[&str]) {
        // Tests run at the same time, and openssl empties a file before it writes to it.
        let is_new = !self.path(&format!("{file}.key")).exists();
        assert!(
            is_new,
            "{file}.key is written twice, and a test may read it"
        );
        let output = Command::new("openssl")
            .current_dir(self.directory.path())
            .args(["req", "-x509", "-config", "req.cnf", "-utf8", "-nodes"])
            .args(["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"])
            .args(["-days", "7", "-subj", subject])
            .args([
                "-keyout",
                &format!("{file}.key"),
                "-out",
                &format!("{file}.pem"),
            ])
            .args(
                extensions
                    .iter()
                    .flat_map(|extension| ["-addext", extension]),
            )
            .args(more)
            .output()
            .expect("the openssl program");
        let words = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words}");
    }

    fn pem(&self, file: &str) -> Vec<u8> {
        std::fs::read(self.path(&format!("{file}.pem"))).expect("a certificate")
    }

    pub(super) fn path(&self, file: &str) -> PathBuf {
        self.directory.path().join(file)
    }

    pub(super) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Makes FILE.pem and FILE.key, and loads the credential.
    pub(super) fn issue(&self, file: &str, subject: &str, names: &[&str]) -> Arc<Credential> {
        let names = names
            .iter()
            .map(|name| format!("subjectAltName=DNS:{name}"));
        let mut extensions = vec!["keyUsage=critical,digitalSignature".to_owned()];
        extensions.extend(names);
        let extensions: Vec<&str> = extensions.iter().map(String::as_str).collect();
        self.request(
            file,
            subject,
            &extensions,
            &["-CA", "ca.pem", "-CAkey", "ca.key"],
        );
        self.load(file)
    }

    fn load(&self, file: &str) -> Arc<Credential> {
        Arc::new(Credential::of_session(&self.both(file)).expect("a credential"))
    }

    /// The certificate and the key in PEM.
    pub(super) fn both(&self, file: &str) -> Vec<u8> {
        let mut pem = self.pem(file);
        pem.extend(std::fs::read(self.path(&format!("{file}.key"))).expect("a key"));
        pem
    }

    /// A self-signed credential, as clients make them for `DCSC P`.
    pub(super) fn self_signed(&self, file: &str, subject: &str) -> Arc<Credential> {
        self.request(file, subject, &["keyUsage=critical,digitalSignature"], &[]);
        self.load(file)
    }

    /// The driver of a session that presents `credential` and expects `expected`.
    pub(super) fn driver(
        &self,
        credential: &Arc<Credential>,
        expected: &str,
        protection: Protection,
    ) -> Gsi {
        Gsi::new(self.security(credential, expected, protection))
    }

    pub(super) fn security(
        &self,
        credential: &Arc<Credential>,
        expected: &str,
        protection: Protection,
    ) -> ChannelSecurity {
        ChannelSecurity {
            credential: Arc::clone(credential),
            trust: Arc::clone(&self.trust),
            anchors: Vec::new(),
            expected: expected.to_owned(),
            protection,
            versions: TlsVersions::default(),
        }
    }
}

/// A user whose name is not a host name, and the identity.
pub(super) static ALICE: LazyLock<Arc<Credential>> =
    LazyLock::new(|| PKI.issue("alice", "/DC=test/CN=Alice Smith 12345", &[]));
pub(super) const ALICE_NAME: &str = "/DC=test/CN=Alice Smith 12345";

pub(super) static BOB: LazyLock<Arc<Credential>> =
    LazyLock::new(|| PKI.issue("bob", "/DC=test/CN=Bob", &[]));
pub(super) const BOB_NAME: &str = "/DC=test/CN=Bob";

/// The security settings of both ends of Alice's session.
pub(super) fn alice(protection: Protection) -> Gsi {
    PKI.driver(&ALICE, ALICE_NAME, protection)
}

/// The same with protection and these TLS versions.
pub(super) fn alice_with(versions: TlsVersions) -> Gsi {
    Gsi::new(ChannelSecurity {
        versions,
        ..PKI.security(&ALICE, ALICE_NAME, Protection::Private)
    })
}
