//! A trust directory for tests, and validation by the `openssl` program for comparison.

use std::fs;

use super::{ChainError, Peer, TrustBuilder, TrustStore};
use crate::certificate::Certificate;
use crate::test_pki::{Issued, Pki, USER, now, openssl};

/// An authority that may issue `/DC=test/...`, and a user.
pub(super) struct World {
    pub(super) pki: Pki,
    pub(super) root: Issued,
    pub(super) user: Issued,
}

impl World {
    pub(super) fn new() -> Self {
        let pki = Pki::new();
        let root = pki.root("/DC=test/CN=Root");
        let user = pki.issue(&root, "/DC=test/CN=Alice", USER);
        Self { pki, root, user }
    }

    /// A directory with the root.
    pub(super) fn store(&self) -> TrustStore {
        self.store_with(&[])
    }

    /// A directory with the root and other files.
    pub(super) fn store_with(&self, files: &[(&str, Vec<u8>)]) -> TrustStore {
        let root = [
            ("root.pem", self.root.pem()),
            ("root.signing_policy", policy(&self.root, "/DC=test/*")),
        ];
        store(&[&root, files].concat())
    }

    /// Validates against the directory with the root. OpenSSL must agree.
    pub(super) fn validate(&self, chain: &[&Issued]) -> Result<Peer, ChainError> {
        validate(&self.pki, &self.root, chain)
    }

    /// Validates without OpenSSL, for rules that it does not implement or implements differently.
    pub(super) fn validate_alone(&self, chain: &[&Issued]) -> Result<Peer, ChainError> {
        self.store().validate(&certificates(chain), now())
    }
}

/// Validates against a directory with this root, which may issue `/DC=test/...`. OpenSSL must agree.
pub(super) fn validate(pki: &Pki, root: &Issued, chain: &[&Issued]) -> Result<Peer, ChainError> {
    let files = [
        ("root.pem", root.pem()),
        ("root.signing_policy", policy(root, "/DC=test/*")),
    ];
    let verdict = store(&files).validate(&certificates(chain), now());
    assert_eq!(
        verdict.is_ok(),
        openssl_accepts(pki, root, chain),
        "{verdict:?}"
    );
    verdict
}

fn openssl_accepts(pki: &Pki, root: &Issued, chain: &[&Issued]) -> bool {
    let sent: Vec<u8> = chain[1..].iter().flat_map(|one| one.pem()).collect();
    let untrusted = pki.path().join("untrusted.pem");
    fs::write(&untrusted, sent).expect("written");
    let mut command = openssl([
        "verify",
        "-allow_proxy_certs",
        "-auth_level",
        "2",
        "-no-CApath",
    ]);
    command.arg("-CAfile").arg(&root.certificate_file);
    if chain.len() > 1 {
        command.arg("-untrusted").arg(&untrusted);
    }
    let output = command.arg(&chain[0].certificate_file).output();
    output.expect("openssl is installed").status.success()
}

pub(super) fn certificates(chain: &[&Issued]) -> Vec<Certificate> {
    chain.iter().map(|one| one.certificate.clone()).collect()
}

pub(super) fn store(files: &[(&str, Vec<u8>)]) -> TrustStore {
    let mut builder = TrustBuilder::default();
    for (file, content) in files {
        builder.add(file, content);
    }
    let (store, problems) = builder.build();
    assert_eq!(problems, []);
    store
}

/// A signing policy.
pub(super) fn policy(authority: &Issued, pattern: &str) -> Vec<u8> {
    let name = authority.certificate.subject();
    let text = format!(
        "access_id_CA X509 '{name}'\npos_rights globus CA:sign\ncond_subjects globus '\"{pattern}\"'\n"
    );
    text.into_bytes()
}
