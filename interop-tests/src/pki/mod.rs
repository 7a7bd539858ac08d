//! A small public key infrastructure for the tests: authorities, a host, users, and those who must not get in.
//!
//! Everything is made with the programs that sites use: `openssl`, `grid-proxy-init`,
//! `voms-proxy-fake`. It takes some seconds, so the test programs of a run share it ([`Pki::shared`]).

mod authority;
mod bad;
mod kept;
mod users;

use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use authority::{Authority, Issue, Key};

use crate::{Client, ClientError, Finished, Kind};

pub use bad::{BadCredential, BadKind};
pub use users::{Accounts, PASSWORD, PASSWORD_USER, UserCredential, UserKind};

/// The organisation that all good subjects belong to.
const ORGANISATION: &str = "/DC=test/O=Grid";

/// The authority that all servers and clients trust.
const AUTHORITY: &str = "/DC=test/O=Grid/CN=Test Authority";

/// The host, whose servers may be known by another name than its own.
pub const HOST: &str = "/DC=test/O=Grid/CN=localhost";

/// All names by which the clients of the tests know the machine.
const HOST_EXTENSIONS: &str = "basicConstraints = critical,CA:FALSE\n\
    keyUsage = critical,digitalSignature,keyEncipherment\n\
    extendedKeyUsage = serverAuth,clientAuth\n\
    subjectAltName = DNS:localhost,IP:127.0.0.1,IP:::1\n";

/// Files of authorities, the host and users.
#[derive(Debug)]
pub struct Pki {
    users: Vec<UserCredential>,
    bad: Vec<BadCredential>,
    accounts: Accounts,
    top: PathBuf,
}

impl Pki {
    /// The one of this program, made or found at the first call.
    ///
    /// # Errors
    ///
    /// When it could not be made, now or at the first call.
    pub fn shared() -> Result<&'static Self, &'static PkiError> {
        static SHARED: OnceLock<Result<Pki, PkiError>> = OnceLock::new();
        SHARED.get_or_init(Self::new).as_ref()
    }

    fn new() -> Result<Self, PkiError> {
        let accounts = Accounts::of_this_machine()?;
        let top = kept::directory(|top| make(top, &accounts))?;
        Ok(Self {
            users: users::all(&top, &accounts),
            bad: bad::all(&top),
            accounts,
            top,
        })
    }

    /// A variable of the environment, with its value, by which programs in a guest find these files.
    pub(crate) fn variable(&self) -> OsString {
        kept::variable(&self.top)
    }

    /// The certificate that servers show.
    pub fn host_certificate(&self) -> PathBuf {
        self.top.join("host.pem")
    }

    /// The key of [`Self::host_certificate`].
    pub fn host_key(&self) -> PathBuf {
        self.top.join("host.key")
    }

    /// The trust directory, with signing policies and revocation lists.
    pub fn trust(&self) -> PathBuf {
        self.top.join("certificates")
    }

    /// The grid-mapfile.
    pub fn gridmap(&self) -> PathBuf {
        self.top.join("grid-mapfile")
    }

    /// The certificate of the authority that all servers and clients trust.
    pub fn authority(&self) -> PathBuf {
        self.top.join("authority.pem")
    }

    /// A password file for our server, with [`PASSWORD_USER`] and his password.
    pub fn passwords(&self) -> PathBuf {
        self.top.join("passwords")
    }

    /// The directory of `.lsc` files.
    pub fn voms_directory(&self) -> PathBuf {
        self.top.join("vomsdir")
    }

    /// The local accounts that users are mapped to.
    pub fn accounts(&self) -> &Accounts {
        &self.accounts
    }

    /// The credential of a user.
    pub fn user(&self, kind: UserKind) -> &UserCredential {
        // `users` is in the order of the kinds.
        &self.users[kind as usize]
    }

    /// A credential that no server must accept.
    pub fn bad(&self, kind: BadKind) -> &BadCredential {
        // `bad` is in the order of the kinds.
        &self.bad[kind as usize]
    }

    /// The environment in which a client program acts for a user.
    pub fn environment(&self, user: UserKind) -> Vec<(OsString, OsString)> {
        self.environment_of(&self.user(user).credential)
    }

    /// The environment in which a client program uses the credential of a file.
    pub fn environment_of(&self, credential: &Path) -> Vec<(OsString, OsString)> {
        vec![
            ("X509_CERT_DIR".into(), self.trust().into()),
            ("X509_USER_PROXY".into(), credential.into()),
        ]
    }
}

/// Makes everything in the directory `top`.
fn make(top: &Path, accounts: &Accounts) -> Result<(), PkiError> {
    for name in ["certificates", "vomsdir"] {
        let directory = top.join(name);
        fs::create_dir(&directory)?;
        fs::set_permissions(&directory, Permissions::from_mode(0o755))?;
    }
    let authority = Authority::new(top, "authority", AUTHORITY, &Key::new(top, "authority")?)?;
    authority.trust(top, &[&format!("{ORGANISATION}/*")])?;
    authority.issue(&Issue {
        extensions: HOST_EXTENSIONS,
        ..Issue::new("host", HOST, &Key::new(top, "host")?)
    })?;
    let user_key = Key::new(top, "user")?;
    let narrow = authority.narrow(top)?;
    users::make(top, [&authority, &narrow], &user_key)?;
    bad::make(top, [&authority, &narrow], &user_key)?;
    // The last thing that the authority says: whom it has revoked by now.
    authority.revocations(top)?;
    users::write_map(top, accounts)?;
    users::write_passwords(top)
}

/// Why the files could not be made.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// A file or directory.
    #[error("cannot make test certificates: {0}")]
    Files(#[from] io::Error),
    /// A program did not run to its end.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// A program said no.
    #[error("cannot make test certificates\n{0}")]
    Program(Finished),
    /// This account has no name.
    #[error("cannot find out the name of the account that runs the tests")]
    NoAccount,
}

/// Runs a program that makes certificates in `directory`, to its successful end.
fn run(directory: &Path, program: Client) -> Result<Finished, PkiError> {
    let finished = program
        .directory(directory)
        // Where programs keep the state of their random numbers.
        .env("HOME", directory)
        .run()?;
    if finished.status.success() {
        Ok(finished)
    } else {
        Err(PkiError::Program(finished))
    }
}

/// Writes what only the owner may read: the programs of the field insist on it.
fn write_private(path: &Path, content: impl AsRef<[u8]>) -> io::Result<()> {
    fs::write(path, content)?;
    fs::set_permissions(path, Permissions::from_mode(0o600))
}

/// Puts a certificate, its key and the certificates above it into one file, as proxies are kept.
fn write_credential(
    path: &Path,
    certificate: &Path,
    key: &Path,
    above: &[&Path],
) -> io::Result<()> {
    let mut content = fs::read(certificate)?;
    content.extend(fs::read(key)?);
    for issuer in above {
        content.extend(fs::read(issuer)?);
    }
    write_private(path, content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_known_by_the_subjects_that_openssl_prints() {
        let pki = Pki::shared().unwrap();
        for kind in UserKind::ALL {
            let user = pki.user(kind);
            let printed = Client::new("openssl")
                .args(["x509", "-noout", "-subject", "-nameopt", "compat", "-in"])
                .arg(&user.certificate)
                .run()
                .unwrap();
            assert_eq!(
                printed.output().trim_end(),
                format!("subject={}", user.subject)
            );
        }
    }

    #[test]
    fn openssl_agrees_that_users_are_good() {
        let pki = Pki::shared().unwrap();
        for kind in UserKind::ALL {
            let credential = &pki.user(kind).credential;
            let verified = Client::new("openssl")
                .args(["verify", "-allow_proxy_certs", "-CAfile"])
                .arg(pki.authority())
                .arg("-untrusted")
                .args([credential, credential])
                .run()
                .unwrap();
            assert!(verified.status.success(), "{kind:?}: {verified}");
        }
    }
}
