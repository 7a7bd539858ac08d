//! Files with the roots of web servers and others, which have no signing policies.

use std::path::Path;

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

use super::FileError;
use super::read::{failed, open_file, read_opened};
use crate::certificate::Certificate;
use crate::trust::TrustStore;

/// The maximum size of a file. Those of distributions have 200 kB.
const MAX_BYTES: u64 = 16 << 20;

/// A store that trusts all certificates of a PEM file, such as `/etc/ssl/certs/ca-certificates.crt`. Those that cannot be parsed
/// are skipped: one bad root must not disable the others.
///
/// # Errors
///
/// When the file cannot be read, or has no usable certificate.
pub fn read_roots(path: &Path) -> Result<TrustStore, FileError> {
    let pem = open_file(path).and_then(|file| read_opened(file, MAX_BYTES));
    let pem = pem.map_err(failed(path))?;
    let roots: Vec<Certificate> = CertificateDer::pem_slice_iter(&pem)
        .filter_map(|section| Certificate::from_der(&section.ok()?).ok())
        .collect();
    match roots.is_empty() {
        true => Err(FileError::NoRoots(path.to_owned())),
        false => Ok(TrustStore::default().with_anchors(&roots)),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::SystemTime;

    use super::*;
    use crate::test_pki::{Pki, USER};

    #[test]
    fn a_bad_root_does_not_disable_the_others() {
        let pki = Pki::new();
        let root = pki.root("/CN=Root");
        let leaf = pki.issue(&root, "/CN=host", USER);
        let file = pki.path().join("roots");
        let bad = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_vec();
        fs::write(&file, [bad.clone(), root.pem()].concat()).expect("written");
        let trust = read_roots(&file).expect("one root");
        let chain = [leaf.certificate];
        assert!(trust.validate(&chain, SystemTime::now()).is_ok());
        fs::write(&file, bad).expect("written");
        let error = read_roots(&file).expect_err("no root").to_string();
        assert!(error.contains("no certificate of an authority"), "{error}");
    }
}
