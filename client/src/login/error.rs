//! Why a user has no identity.

use std::path::PathBuf;

use gridhaul_security::files::FileError;

/// Why there is no identity.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// None of the usual places has a credential.
    #[error(
        "there is no proxy and no certificate: make a proxy with 'gridhaul proxy create', or give --proxy FILE; looked for {0}"
    )]
    NoCredential(String),
    /// None of the usual places has a certificate to make a proxy from.
    #[error(
        "there is no certificate to make a proxy from: give --cert FILE and --key FILE, or set X509_USER_CERT and X509_USER_KEY; looked for {0}"
    )]
    NoCertificate(String),
    /// The certificate is in a file of another format.
    #[error(
        "{0}: PKCS#12 files are not read: convert it with 'openssl pkcs12 -in {0} -clcerts -nokeys -out ~/.globus/usercert.pem' and 'openssl pkcs12 -in {0} -nocerts -out ~/.globus/userkey.pem', and chmod 0600 the key"
    )]
    Pkcs12(String),
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
    #[error("{}: the certificate has expired: make a new proxy with 'gridhaul proxy create'", .0.display())]
    Expired(PathBuf),
}
