//! The server's own certificate, read again when its files change.
//!
//! Programs renew certificates while the server runs, by replacing the two files one after the other. In between they do not
//! match, and the old certificate stays in use.

use std::cell::Cell;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use gridhaul_security::credential::Credential;
use gridhaul_security::files::{FileError, OpenFiles as _, read_encrypted_credential};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use rustls::server::NoServerSessionStorage;
use rustls::sign::{CertifiedKey, SigningKey, SingleCertAndKey};
use tracing::{info, warn};

use super::opener::Opener;
use super::passphrase::Passphrase;
use crate::config::HostFiles;

/// The interval of looking at the files.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The certificate and the key.
#[derive(Debug)]
pub(crate) struct HostCredential {
    files: HostFiles,
    opener: Opener,
    passphrase: Passphrase,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    held: Arc<Credential>,
    /// The state of the files when they were read last, even if they could not be used.
    stamp: Stamp,
    looked: Instant,
}

/// A host certificate that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// A file cannot be read, or has another format.
    #[error("the server's certificate: {0}")]
    File(#[from] FileError),
    /// TLS rejects the certificate.
    #[error("the server's certificate {}: {error}", path.display())]
    Tls {
        /// The file.
        path: std::path::PathBuf,
        /// The reason.
        error: rustls::Error,
    },
}

/// The fingerprint of one state of the two files.
#[derive(Debug, PartialEq, Eq)]
struct Stamp([Option<FileStamp>; 2]);

#[derive(Debug, PartialEq, Eq)]
struct FileStamp {
    file: (u64, u64),
    bytes: u64,
    /// The status change time too: a key becomes usable when its permissions are corrected.
    changed: (i64, i64),
}

impl HostCredential {
    /// Reads the files. `previous` is the credential that a running server has; without one the passphrase of the key may be
    /// asked for.
    pub(crate) fn open(
        files: &HostFiles,
        opener: Opener,
        previous: Option<&Self>,
    ) -> Result<Self, HostError> {
        let stamp = Stamp::of(files, &opener);
        let known = previous.map(|previous| &previous.passphrase);
        let passphrase = Passphrase::new(files.passphrase.as_deref(), known);
        let held = read(files, &opener, &passphrase, previous.is_none())?;
        tell(&held, files, "the server's certificate was read");
        Ok(Self {
            files: files.clone(),
            opener,
            passphrase,
            state: Mutex::new(State {
                held,
                stamp,
                looked: Instant::now(),
            }),
        })
    }

    /// Whether the files could be used now.
    ///
    /// # Errors
    ///
    /// The reason why not.
    pub(super) fn check(&self) -> Result<(), HostError> {
        read(&self.files, &self.opener, &self.passphrase, false).map(drop)
    }

    /// The path of the certificate.
    pub(super) fn files(&self) -> &HostFiles {
        &self.files
    }

    /// The credential in use. Blocks on files, at most once a second.
    pub(crate) fn current(&self) -> Arc<Credential> {
        self.current_at(Instant::now())
    }

    fn current_at(&self, now: Instant) -> Arc<Credential> {
        // The state is complete at every unlock, so a panic elsewhere leaves no partial state.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if now.saturating_duration_since(state.looked) < LOOK_EVERY {
            return state.held.clone();
        }
        state.looked = now;
        let stamp = Stamp::of(&self.files, &self.opener);
        if stamp != state.stamp {
            match read(&self.files, &self.opener, &self.passphrase, false) {
                Ok(held) => {
                    tell(
                        &held,
                        &self.files,
                        "the server's certificate was read again",
                    );
                    state.held = held;
                }
                Err(error) => {
                    warn!(
                        %error,
                        "the server's certificate has changed and cannot be used, and the one before \
                         stays in use"
                    );
                }
            }
            state.stamp = stamp;
        }
        state.held.clone()
    }
}

/// Reads the files, and checks that TLS accepts the credential.
fn read(
    files: &HostFiles,
    opener: &Opener,
    passphrase: &Passphrase,
    may_ask: bool,
) -> Result<Arc<Credential>, HostError> {
    let open = |path: &Path| opener.open(path);
    let is_encrypted = Cell::new(false);
    let unlock = || {
        is_encrypted.set(true);
        passphrase.of(&files.key, opener, may_ask)
    };
    let credential = read_encrypted_credential(&files.certificates, &files.key, open, unlock)?;
    if !is_encrypted.get() {
        passphrase.forget();
    }
    server_config(chain(&credential), credential.key().signing_key()).map_err(|error| {
        HostError::Tls {
            path: files.certificates.clone(),
            error,
        }
    })?;
    Ok(Arc::new(credential))
}

fn tell(credential: &Credential, files: &HostFiles, what: &str) {
    let subject = credential.leaf().subject().one_line();
    let file = files.certificates.display();
    if credential.expires() < std::time::SystemTime::now() {
        warn!(subject, %file, "{what}, and has expired: clients will refuse it");
    } else {
        info!(subject, %file, "{what}");
    }
}

/// The certificates of a credential in the order of the TLS message.
pub(crate) fn chain(credential: &Credential) -> Vec<CertificateDer<'static>> {
    let certificates = credential.chain().iter();
    certificates
        .map(|certificate| CertificateDer::from(certificate.der().to_vec()))
        .collect()
}

/// A configuration for `AUTH TLS` with this certificate only. Client certificates are not requested: these users log in by
/// name.
///
/// No session tickets: a client that only sends data would not read them before the end of a data connection, and the reset
/// that follows would lose the last data.
pub(crate) fn server_config(
    chain: Vec<CertificateDer<'static>>,
    key: Arc<dyn SigningKey>,
) -> Result<ServerConfig, rustls::Error> {
    let certified = CertifiedKey::new(chain, key);
    let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(config)
}

impl Stamp {
    fn of(files: &HostFiles, opener: &Opener) -> Self {
        Self([&files.certificates, &files.key].map(|path| FileStamp::of(path, opener).ok()))
    }
}

impl FileStamp {
    fn of(path: &Path, opener: &Opener) -> io::Result<Self> {
        let metadata = opener.metadata(path)?;
        Ok(Self {
            file: (metadata.dev(), metadata.ino()),
            bytes: metadata.size(),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use tempfile::TempDir;

    use super::*;

    const HOST: [&[u8]; 2] = [
        include_bytes!("samples/host.pem"),
        include_bytes!("samples/host.key"),
    ];
    const RENEWED: [&[u8]; 2] = [
        include_bytes!("samples/renewed.pem"),
        include_bytes!("samples/renewed.key"),
    ];

    /// A directory with a certificate and its key.
    struct Installed {
        directory: TempDir,
        files: HostFiles,
    }

    impl Installed {
        fn new() -> Self {
            let directory = tempfile::tempdir().expect("a directory");
            let files = HostFiles {
                certificates: directory.path().join("hostcert.pem"),
                key: directory.path().join("hostkey.pem"),
                passphrase: None,
            };
            let installed = Self { directory, files };
            installed.certificate(HOST[0]);
            installed.key(HOST[1]);
            installed
        }

        fn certificate(&self, content: &[u8]) {
            self.replace(&self.files.certificates, content);
        }

        fn key(&self, content: &[u8]) {
            self.replace(&self.files.key, content);
        }

        /// As programs that renew certificates do it: in one step.
        fn replace(&self, path: &Path, content: &[u8]) {
            let new = self.directory.path().join("new");
            fs::write(&new, content).expect("written");
            fs::set_permissions(&new, fs::Permissions::from_mode(0o600)).expect("set");
            fs::rename(new, path).expect("renamed");
        }
    }

    fn serial(held: &Credential) -> Vec<u8> {
        held.leaf().serial().to_vec()
    }

    #[test]
    fn a_new_certificate_is_used_when_its_key_is_there_too() {
        let installed = Installed::new();
        let host = HostCredential::open(&installed.files, Opener::default(), None).expect("usable");
        let opened = Instant::now();
        assert_eq!(serial(&host.current_at(opened)), [2]);
        installed.certificate(RENEWED[0]);
        assert_eq!(serial(&host.current_at(opened + LOOK_EVERY)), [2]);
        installed.key(RENEWED[1]);
        assert_eq!(serial(&host.current_at(opened + LOOK_EVERY * 2)), [3]);
    }

    #[test]
    fn the_files_are_looked_at_once_a_second() {
        let installed = Installed::new();
        let host = HostCredential::open(&installed.files, Opener::default(), None).expect("usable");
        let opened = Instant::now();
        let first = host.current_at(opened + LOOK_EVERY);
        installed.certificate(RENEWED[0]);
        installed.key(RENEWED[1]);
        let soon = host.current_at(opened + LOOK_EVERY + LOOK_EVERY / 2);
        assert!(Arc::ptr_eq(&first, &soon));
        let later = host.current_at(opened + LOOK_EVERY * 2);
        assert_eq!(serial(&later), [3]);
        let unchanged = host.current_at(opened + LOOK_EVERY * 3);
        assert!(Arc::ptr_eq(&later, &unchanged));
    }

    #[test]
    fn files_that_become_unusable_leave_what_was_there() {
        let installed = Installed::new();
        let host = HostCredential::open(&installed.files, Opener::default(), None).expect("usable");
        let opened = Instant::now();
        installed.certificate(b"nonsense");
        assert_eq!(serial(&host.current_at(opened + LOOK_EVERY)), [2]);
        fs::remove_file(&installed.files.key).expect("removed");
        assert_eq!(serial(&host.current_at(opened + LOOK_EVERY * 2)), [2]);
    }

    #[test]
    fn at_the_start_unusable_files_are_named() {
        let installed = Installed::new();
        installed.key(RENEWED[1]);
        let error = HostCredential::open(&installed.files, Opener::default(), None)
            .expect_err("another key");
        assert!(error.to_string().contains("hostcert.pem"), "{error}");
        installed.key(HOST[1]);
        let open_to_all = fs::Permissions::from_mode(0o644);
        fs::set_permissions(&installed.files.key, open_to_all).expect("set");
        let error =
            HostCredential::open(&installed.files, Opener::default(), None).expect_err("readable");
        assert!(error.to_string().contains("hostkey.pem"), "{error}");
        assert!(error.to_string().contains("chmod"), "{error}");
    }
}
