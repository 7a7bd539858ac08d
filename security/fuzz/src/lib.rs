//! Common parts of the fuzz targets: valid samples, and changes to them. Arbitrary bytes alone would rarely pass the first
//! length check.

pub mod revocation;

use std::process::Command;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime};

use gridhaul_security::certificate::Certificate;
use gridhaul_security::delegation::DelegationKeys;
use gridhaul_security::files::read_credential;
use gridhaul_security::key::{KeyError, PrivateKey};
use gridhaul_security::tls::TlsSettings;
use gridhaul_security::trust::TrustBuilder;

/// A certificate authority.
pub const AUTHORITY: &[u8] = include_bytes!("../../src/voms/samples/ca.pem");
/// Its signing policy.
pub const SIGNING_POLICY: &[u8] = include_bytes!("../../src/voms/samples/ca.signing_policy");
const PROXY: &[u8] = include_bytes!("../../src/voms/samples/plain.pem");

/// Changes to a sample: positions and new bytes.
pub type Edits = Vec<(u16, u8)>;

/// A sample with some changes.
pub fn edited(sample: &[u8], edits: &Edits) -> Vec<u8> {
    let mut bytes = sample.to_vec();
    for (position, value) in edits {
        if let Some(byte) = bytes.get_mut(usize::from(*position)) {
            *byte = *value;
        }
    }
    bytes
}

/// A VOMS proxy and the certificates above it.
pub fn chain() -> &'static [Certificate] {
    static CHAIN: LazyLock<Vec<Certificate>> =
        LazyLock::new(|| Certificate::all_from_pem(PROXY).expect("a sound sample"));
    &CHAIN
}

/// A time at which the samples are valid.
pub fn now() -> SystemTime {
    let authority = Certificate::all_from_pem(AUTHORITY).expect("a sound sample");
    let begins = chain()
        .iter()
        .chain(&authority)
        .map(|certificate| certificate.validity().not_before);
    begins.max().expect("there are some") + Duration::from_secs(60)
}

/// Settings of a peer that trusts only itself.
pub fn settings() -> TlsSettings {
    static SETTINGS: LazyLock<TlsSettings> = LazyLock::new(|| {
        let directory = tempfile::tempdir().expect("a directory");
        let certificate = directory.path().join("cert.pem");
        let key = directory.path().join("key.pem");
        let status = Command::new("openssl")
            .args(["req", "-x509", "-nodes", "-subj", "/CN=fuzz"])
            .args(["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"])
            .args(["-addext", "basicConstraints=critical,CA:FALSE"])
            .arg("-keyout")
            .arg(&key)
            .arg("-out")
            .arg(&certificate)
            .status()
            .expect("openssl is installed");
        assert!(status.success());
        let credential = read_credential(&certificate, &key).expect("a sound credential");
        let (trust, _) = TrustBuilder::default().build();
        let trust = trust.with_anchors(credential.chain());
        TlsSettings::new(Arc::new(credential), Arc::new(trust))
    });
    SETTINGS.clone()
}

/// Generates EC keys, which is fast.
#[derive(Debug)]
pub struct Keys;

impl DelegationKeys for Keys {
    fn take(&self) -> Result<PrivateKey, KeyError> {
        PrivateKey::generate_ec()
    }
}
