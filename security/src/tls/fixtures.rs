//! Settings for tests.

use std::cell::OnceCell;
use std::sync::Arc;

use super::{TlsSettings, TlsVersions};
use crate::credential::Credential;
use crate::key::PrivateKey;
use crate::test_pki::{Issued, LIMITED, Pki, USER};
use crate::trust::{TrustBuilder, TrustStore};

/// A certificate authority, and credentials that it has issued.
pub(crate) struct Fixture {
    pub(crate) pki: Pki,
    pub(crate) root: Issued,
    pub(crate) trust: Arc<TrustStore>,
    /// Made once, because each certificate needs several runs of openssl.
    pair: OnceCell<[Arc<Credential>; 2]>,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        let pki = Pki::new();
        let root = pki.root("/DC=test/CN=Root");
        let trust = trust(&root);
        Self {
            pki,
            root,
            trust,
            pair: OnceCell::new(),
        }
    }

    /// A user's certificate.
    pub(crate) fn user(&self, name: &str) -> Issued {
        self.pki
            .issue(&self.root, &format!("/DC=test/CN={name}"), USER)
    }

    /// A user's credential: a limited proxy.
    pub(crate) fn proxy(&self, name: &str) -> Arc<Credential> {
        let user = self.user(name);
        let proxy = self.pki.proxy(&user, LIMITED);
        // GSI clients send the root as well.
        credential(&[&proxy, &user, &self.root])
    }

    pub(crate) fn settings(&self, credential: &Arc<Credential>) -> TlsSettings {
        TlsSettings::new(Arc::clone(credential), Arc::clone(&self.trust))
    }

    /// A user's and a host's settings. They are the same each time.
    pub(crate) fn pair(&self, versions: TlsVersions) -> (TlsSettings, TlsSettings) {
        let [user, host] = self.pair.get_or_init(|| {
            let host = credential(&[&self.user("server.test")]);
            [self.proxy("Alice Smith 12345"), host]
        });
        let mut user = self.settings(user);
        user.versions = versions;
        (user, self.settings(host))
    }
}

/// A store that trusts an authority with everything below `/DC=test`.
pub(crate) fn trust(root: &Issued) -> Arc<TrustStore> {
    let policy = format!(
        "access_id_CA X509 '{}'\npos_rights globus CA:sign\ncond_subjects globus '\"/DC=test/*\"'\n",
        root.subject
    );
    let mut builder = TrustBuilder::default();
    builder.add("ca.pem", &root.pem());
    builder.add("ca.signing_policy", policy.as_bytes());
    let (trust, problems) = builder.build();
    assert_eq!(problems, []);
    Arc::new(trust)
}

/// A chain with the key of its first certificate.
pub(crate) fn credential(chain: &[&Issued]) -> Arc<Credential> {
    let key = PrivateKey::from_pem(&chain[0].key_pem()).expect("a key");
    let chain = chain.iter().map(|one| one.certificate.clone()).collect();
    Arc::new(Credential::new(chain, key).expect("a credential"))
}
