//! The set of all files, made once and shared by the test programs of a run.

use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::authority::{Authority, Issue, Key};
use super::bad::{self, BadCredential, BadKind};
use super::cache;
use super::command::PkiError;
use super::names::{AUTHORITY, HOST, ORGANISATION, node_address};
use super::users::{self, Accounts, UserCredential, UserKind};

/// The extensions of host certificates, without the names.
const HOST_USE: &str = "basicConstraints = critical,CA:FALSE\n\
    keyUsage = critical,digitalSignature,keyEncipherment\n\
    extendedKeyUsage = serverAuth,clientAuth\n";

/// All names of this host that clients of the tests use.
const HOST_NAMES: &str = "subjectAltName = DNS:localhost,IP:127.0.0.1,IP:::1\n";

/// The number of data nodes with a certificate.
const NODES: u8 = 8;

/// Files of authorities, the host and users.
#[derive(Debug)]
pub struct Pki {
    users: Vec<UserCredential>,
    bad: Vec<BadCredential>,
    accounts: Accounts,
    top: PathBuf,
}

impl Pki {
    /// The shared set, made or found at the first call.
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
        let top = cache::directory(|top| make(top, &accounts))?;
        Ok(Self {
            users: users::all(&top, &accounts),
            bad: bad::all(&top),
            accounts,
            top,
        })
    }

    /// `NAME=VALUE` of the environment variable with which programs in a guest find these files.
    pub(crate) fn variable(&self) -> OsString {
        cache::variable(&self.top)
    }

    /// The certificate of the servers.
    pub fn host_certificate(&self) -> PathBuf {
        self.top.join("host.pem")
    }

    /// The key of [`Self::host_certificate`].
    pub fn host_key(&self) -> PathBuf {
        self.top.join("host.key")
    }

    /// The certificate of a data node, with no other name than its address. There are eight.
    pub fn node_certificate(&self, number: u8) -> PathBuf {
        self.top.join(format!("node{number}.pem"))
    }

    /// The key of [`Self::node_certificate`].
    pub fn node_key(&self) -> PathBuf {
        self.top.join("node.key")
    }

    /// The address of a data node in its certificate.
    pub fn node_address(&self, number: u8) -> Ipv4Addr {
        node_address(number)
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

    /// A password file for our server, with [`PASSWORD_USER`](super::PASSWORD_USER).
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

    /// A credential that no server may accept.
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
        extensions: &format!("{HOST_USE}{HOST_NAMES}"),
        ..Issue::new("host", HOST, &Key::new(top, "host")?)
    })?;
    make_nodes(top, &authority)?;
    let user_key = Key::new(top, "user")?;
    let narrow = authority.narrow(top)?;
    users::make(top, [&authority, &narrow], &user_key)?;
    bad::make(top, [&authority, &narrow], &user_key)?;
    // The revocation list comes last, after every revocation.
    authority.revocations(top)?;
    users::write_map(top, accounts)?;
    users::write_passwords(top)
}

/// Makes the certificates of data nodes. They share a key, because a key takes longer than the certificates.
fn make_nodes(top: &Path, authority: &Authority) -> Result<(), PkiError> {
    let key = Key::new(top, "node")?;
    for number in 0..NODES {
        let address = node_address(number);
        authority.issue(&Issue {
            extensions: &format!("{HOST_USE}subjectAltName = IP:{address}\n"),
            ..Issue::new(
                &format!("node{number}"),
                &format!("{ORGANISATION}/CN={address}"),
                &key,
            )
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::client::Client;

    #[test]
    fn subjects_are_those_that_openssl_prints() {
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
    fn openssl_verifies_users() {
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
