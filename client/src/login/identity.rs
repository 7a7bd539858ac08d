//! The user's certificate and the trusted authorities, at the places where Globus programs look for them.

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use gridhaul_security::credential::Credential;
use gridhaul_security::files::{FileError, TrustDirectory, read_credential};
use gridhaul_security::tls::TlsSettings;
use gridhaul_security::trust::TrustStore;

/// Who the user is, and whom the user trusts.
#[derive(Debug, Clone)]
pub struct Identity {
    /// The certificate or proxy, with its key.
    pub credential: Arc<Credential>,
    /// The authorities.
    pub trust: Arc<TrustStore>,
}

/// Where to look instead of the usual places.
#[derive(Debug, Clone, Default)]
pub struct IdentityPlaces {
    /// A file with a proxy or a certificate, and its key.
    pub proxy: Option<PathBuf>,
    /// A directory with authorities.
    pub trust: Option<PathBuf>,
}

/// Why there is no identity.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// None of the usual places has a credential.
    #[error(
        "there is no proxy and no certificate: make a proxy with grid-proxy-init, or give --proxy FILE; looked for {0}"
    )]
    NoCredential(String),
    /// None of the usual places has authorities.
    #[error(
        "there are no trusted authorities: give --trust DIR, set X509_CERT_DIR, or install them; looked for {0}"
    )]
    NoTrust(String),
    /// The system has no file with authorities.
    #[error("there are no authorities for ftps: give --ca FILE or --trust DIR; looked for {0}")]
    NoRoots(String),
    /// A file cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// The credential is of the past.
    #[error("{}: the certificate has expired: make a new proxy", .0.display())]
    Expired(PathBuf),
}

impl Identity {
    /// Reads the credential and the authorities. Blocks.
    ///
    /// # Errors
    ///
    /// When there are none, or they cannot be used.
    pub fn find(places: &IdentityPlaces) -> Result<Self, IdentityError> {
        let environment = Environment::of_process();
        let (certificate, key) = environment.credential(places.proxy.as_deref())?;
        let credential = read_credential(&certificate, &key)?;
        if credential.expires() <= SystemTime::now() {
            return Err(IdentityError::Expired(certificate));
        }
        let trust = TrustDirectory::open(&environment.trust(places.trust.as_deref())?)?;
        Ok(Self {
            credential: Arc::new(credential),
            trust: trust.current(),
        })
    }

    /// For handshakes with this identity.
    pub fn tls_settings(&self) -> TlsSettings {
        TlsSettings::new(Arc::clone(&self.credential), Arc::clone(&self.trust))
    }
}

/// What the places depend on.
struct Environment {
    variable: fn(&str) -> Option<OsString>,
    exists: fn(&Path) -> bool,
    /// Whether a file, no link, belongs to this user.
    is_own: fn(&Path, u32) -> bool,
    uid: u32,
}

impl Environment {
    fn of_process() -> Self {
        Self {
            variable: |name| std::env::var_os(name).filter(|value| !value.is_empty()),
            exists: Path::exists,
            is_own,
            uid: rustix::process::geteuid().as_raw(),
        }
    }

    fn path(&self, variable: &str) -> Option<PathBuf> {
        (self.variable)(variable).map(PathBuf::from)
    }

    fn home(&self, path: &str) -> Option<PathBuf> {
        self.path("HOME").map(|home| home.join(path))
    }

    /// The certificate and its key, in the order of Globus programs.
    fn credential(&self, proxy: Option<&Path>) -> Result<(PathBuf, PathBuf), IdentityError> {
        if let Some(proxy) = proxy {
            return Ok((proxy.to_owned(), proxy.to_owned()));
        }
        // Given places count also if nothing is there: another credential would be a surprise.
        if let Some(proxy) = self.path("X509_USER_PROXY") {
            return Ok((proxy.clone(), proxy));
        }
        let proxy = PathBuf::from(format!("/tmp/x509up_u{}", self.uid));
        // Every user of the machine can make a file of this name.
        if (self.is_own)(&proxy, self.uid) {
            return Ok((proxy.clone(), proxy));
        }
        let certificate = self.path("X509_USER_CERT");
        let key = self.path("X509_USER_KEY");
        if let (Some(certificate), Some(key)) = (certificate, key) {
            return Ok((certificate, key));
        }
        let usual = self
            .home(".globus/usercert.pem")
            .zip(self.home(".globus/userkey.pem"));
        match usual {
            Some((certificate, key)) if (self.exists)(&certificate) => Ok((certificate, key)),
            _ => Err(IdentityError::NoCredential(format!(
                "{} and ~/.globus/usercert.pem",
                proxy.display()
            ))),
        }
    }

    fn trust(&self, given: Option<&Path>) -> Result<PathBuf, IdentityError> {
        if let Some(given) = given
            .map(Path::to_owned)
            .or_else(|| self.path("X509_CERT_DIR"))
        {
            return Ok(given);
        }
        let own = self.home(".globus/certificates");
        let site = PathBuf::from("/etc/grid-security/certificates");
        let places = own.into_iter().chain([site]);
        let found = places.into_iter().find(|place| (self.exists)(place));
        found.ok_or_else(|| {
            IdentityError::NoTrust(
                "~/.globus/certificates and /etc/grid-security/certificates".to_owned(),
            )
        })
    }
}

fn is_own(path: &Path, uid: u32) -> bool {
    let metadata = std::fs::symlink_metadata(path);
    metadata.is_ok_and(|metadata| metadata.is_file() && metadata.uid() == uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(
        variable: fn(&str) -> Option<OsString>,
        exists: fn(&Path) -> bool,
    ) -> Environment {
        Environment {
            variable,
            exists,
            is_own: match exists(Path::new("/tmp")) {
                true => |_, _| true,
                false => |_, _| false,
            },
            uid: 7,
        }
    }

    #[test]
    fn a_proxy_comes_before_the_certificate_of_the_user() {
        let home = |name: &str| (name == "HOME").then(|| "/home/a".into());
        let proxy = PathBuf::from("/tmp/x509up_u7");
        let all = environment(home, |_| true);
        assert_eq!(all.credential(None).expect("found"), (proxy.clone(), proxy));
        let no_proxy = environment(home, |path| !path.starts_with("/tmp"));
        let (certificate, key) = no_proxy.credential(None).expect("found");
        assert_eq!(certificate, PathBuf::from("/home/a/.globus/usercert.pem"));
        assert_eq!(key, PathBuf::from("/home/a/.globus/userkey.pem"));
        let given = all.credential(Some(Path::new("p"))).expect("given");
        assert_eq!(given.0, PathBuf::from("p"));
    }

    #[test]
    fn a_proxy_of_another_user_or_a_link_is_none() {
        let directory = tempfile::tempdir().expect("a directory");
        let (file, link) = (directory.path().join("file"), directory.path().join("link"));
        std::fs::write(&file, "").expect("written");
        std::os::unix::fs::symlink(&file, &link).expect("made");
        let uid = rustix::process::geteuid().as_raw();
        assert!(is_own(&file, uid));
        assert!(!is_own(&file, uid + 1) && !is_own(&link, uid));
    }

    #[test]
    fn given_places_count_also_if_nothing_is_there() {
        let set = |name: &str| name.starts_with("X509").then(|| "/missing".into());
        let nothing = environment(set, |_| false);
        let missing = PathBuf::from("/missing");
        assert_eq!(
            nothing.credential(None).expect("set"),
            (missing.clone(), missing.clone())
        );
        assert_eq!(nothing.trust(None).expect("set"), missing);
    }

    #[test]
    fn without_a_credential_the_error_says_what_to_do() {
        let nothing = environment(|_| None, |_| false);
        let error = nothing.credential(None).expect_err("none").to_string();
        assert!(
            error.contains("grid-proxy-init") && error.contains("/tmp/x509up_u7"),
            "{error}"
        );
        let error = nothing.trust(None).expect_err("none").to_string();
        assert!(error.contains("--trust DIR"), "{error}");
    }
}
