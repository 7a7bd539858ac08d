//! TLS of the administration page.

use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gridhaul_security::certificate::Certificate;
use gridhaul_security::files::open_file;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use zeroize::Zeroizing;

use crate::config::Administration;

/// Longer files have no certificates.
const MOST_BYTES: u64 = 1 << 20;

/// A file that cannot be used for TLS.
#[derive(Debug, thiserror::Error)]
#[error("{key} {}: {reason}", path.display())]
pub struct AdminTlsError {
    key: &'static str,
    path: PathBuf,
    reason: String,
}

impl AdminTlsError {
    /// The setting that names the file.
    pub(crate) fn key(&self) -> &'static str {
        self.key
    }
}

/// The configuration of TLS, if there is a certificate.
///
/// # Errors
///
/// When a file cannot be read, or has no certificate or key.
pub(super) fn server_config(
    admin: &Administration,
) -> Result<Option<Arc<ServerConfig>>, AdminTlsError> {
    let (Some(certificate), Some(key)) = (&admin.certificate, admin.key_file()) else {
        return Ok(None);
    };
    let wrong = |name, path: &Path, error: &dyn std::fmt::Display| AdminTlsError {
        key: name,
        path: path.to_owned(),
        reason: error.to_string(),
    };
    let chain = certificates("admin-cert", certificate)?;
    let secret = read(key, true).map_err(|error| wrong("admin-key", key, &error))?;
    let secret =
        PrivateKeyDer::from_pem_slice(&secret).map_err(|error| wrong("admin-key", key, &error))?;
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong("admin-cert", certificate, &error))?;
    let builder = match &admin.clients {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for authority in certificates("admin-clients", path)? {
                roots
                    .add(authority)
                    .map_err(|error| wrong("admin-clients", path, &error))?;
            }
            // A client without a certificate gets an answer that says what it needs.
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .allow_unauthenticated()
                .build()
                .map_err(|error| wrong("admin-clients", path, &error))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder
        .with_single_cert(chain, secret)
        .map_err(|error| wrong("admin-cert", certificate, &error))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    // A resumed session has no verification of the client's certificate: each connection has a full handshake.
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(Some(Arc::new(config)))
}

/// The authorities of administrators' certificates, if there are any.
///
/// # Errors
///
/// When the file cannot be read, or has no certificate.
pub(super) fn authorities(
    admin: &Administration,
) -> Result<Option<Arc<[Certificate]>>, AdminTlsError> {
    let Some(path) = &admin.clients else {
        return Ok(None);
    };
    let pem = certificates("admin-clients", path)?;
    let parsed: Result<Vec<_>, _> = pem.iter().map(|one| Certificate::from_der(one)).collect();
    let parsed = parsed.map_err(|error| AdminTlsError {
        key: "admin-clients",
        path: path.clone(),
        reason: error.to_string(),
    })?;
    Ok(Some(parsed.into()))
}

fn certificates(
    key: &'static str,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, AdminTlsError> {
    let wrong = |reason: String| AdminTlsError {
        key,
        path: path.to_owned(),
        reason,
    };
    let pem = read(path, false).map_err(|error| wrong(error.to_string()))?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let found = found.map_err(|error| wrong(error.to_string()))?;
    if found.is_empty() {
        return Err(wrong("there is no certificate in PEM form".to_owned()));
    }
    Ok(found)
}

fn read(path: &Path, is_secret: bool) -> io::Result<Zeroizing<Vec<u8>>> {
    let file = open_file(path)?;
    if is_secret && file.metadata()?.mode() & 0o077 != 0 {
        return Err(io::Error::other(
            "others than the owner may read or write it: chmod 600",
        ));
    }
    let mut content = Zeroizing::new(Vec::new());
    file.take(MOST_BYTES).read_to_end(&mut content)?;
    Ok(content)
}
