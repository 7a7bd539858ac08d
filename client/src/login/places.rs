//! Where Globus programs look for credentials and authorities.

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::error::IdentityError;

/// What the places depend on.
pub(crate) struct Environment {
    variable: fn(&str) -> Option<OsString>,
    exists: fn(&Path) -> bool,
    /// Whether a file, no link, belongs to this user.
    is_own: fn(&Path, u32) -> bool,
    uid: u32,
}

impl Environment {
    pub(crate) fn of_process() -> Self {
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
    pub(super) fn credential(
        &self,
        proxy: Option<&Path>,
    ) -> Result<(PathBuf, PathBuf), IdentityError> {
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
        self.certificate().ok_or_else(|| {
            let places = format!("{} and ~/.globus/usercert.pem", proxy.display());
            IdentityError::NoCredential(places)
        })
    }

    /// Where a proxy is made and looked for.
    pub(crate) fn proxy(&self) -> PathBuf {
        let usual = || PathBuf::from(format!("/tmp/x509up_u{}", self.uid));
        self.path("X509_USER_PROXY").unwrap_or_else(usual)
    }

    /// The certificate and its key that a proxy is made from.
    pub(crate) fn issuer(&self) -> Result<(PathBuf, PathBuf), IdentityError> {
        if let Some(found) = self.certificate() {
            return Ok(found);
        }
        let pkcs12 = self.home(".globus/usercred.p12");
        Err(match pkcs12.filter(|file| (self.exists)(file)) {
            Some(file) => IdentityError::Pkcs12(file.display().to_string()),
            None => IdentityError::NoCertificate("~/.globus/usercert.pem".to_owned()),
        })
    }

    fn certificate(&self) -> Option<(PathBuf, PathBuf)> {
        let certificate = self.path("X509_USER_CERT");
        let key = self.path("X509_USER_KEY");
        let usual = || {
            let certificate = self.home(".globus/usercert.pem")?;
            let key = self.home(".globus/userkey.pem")?;
            (self.exists)(&certificate).then_some((certificate, key))
        };
        certificate.zip(key).or_else(usual)
    }

    pub(super) fn trust(&self, given: Option<&Path>) -> Result<PathBuf, IdentityError> {
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
    fn a_proxy_is_made_from_the_certificate_of_the_user() {
        let home = |name: &str| (name == "HOME").then(|| "/home/a".into());
        let all = environment(home, |_| true);
        let (certificate, key) = all.issuer().expect("found");
        assert_eq!(certificate, PathBuf::from("/home/a/.globus/usercert.pem"));
        assert_eq!(key, PathBuf::from("/home/a/.globus/userkey.pem"));
        assert_eq!(all.proxy(), PathBuf::from("/tmp/x509up_u7"));
        let other = environment(home, |path| path.ends_with("usercred.p12"));
        let error = other.issuer().expect_err("another format").to_string();
        assert!(error.contains("openssl pkcs12"), "{error}");
        let nothing = environment(home, |_| false);
        let error = nothing.issuer().expect_err("none").to_string();
        assert!(error.contains("--cert FILE"), "{error}");
        let set = |name: &str| name.starts_with("X509").then(|| "/given".into());
        assert_eq!(environment(set, |_| true).proxy(), PathBuf::from("/given"));
    }

    #[test]
    fn without_a_credential_the_error_says_what_to_do() {
        let nothing = environment(|_| None, |_| false);
        let error = nothing.credential(None).expect_err("none").to_string();
        assert!(
            error.contains("gridhaul proxy create") && error.contains("/tmp/x509up_u7"),
            "{error}"
        );
        let error = nothing.trust(None).expect_err("none").to_string();
        assert!(error.contains("--trust DIR"), "{error}");
    }
}
