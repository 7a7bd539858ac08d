//! Users that servers accept, and the accounts that they are mapped to.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use super::authority::{Authority, Issue, Key};
use super::bad;
use super::command::{PkiError, run};
use super::files::write_credential;
use super::names::{AUTHORITY, ORGANISATION};
use crate::support::client::Client;
use crate::support::program::Kind;

/// The user who has no certificate, but a password.
pub const PASSWORD_USER: &str = "ada";

/// The password of [`PASSWORD_USER`].
pub const PASSWORD: &str = "byron 1815";

/// The virtual organisation of [`UserKind::Voms`].
const VO: &str = "testvo";

/// The host of that organisation's VOMS server, which does not exist.
const VOMS_HOST: &str = "voms.test";

/// A user and the kind of credential.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum UserKind {
    /// A user certificate itself, without a proxy; the common name could be a host name.
    Plain,
    /// A proxy; the name has spaces and digits.
    Spaces,
    /// A proxy; the name is not ASCII.
    Utf8,
    /// A proxy of the plain user with attributes of a virtual organisation.
    Voms,
    /// A limited proxy of the plain user.
    Limited,
    /// A proxy of a proxy of the plain user.
    ProxyOfProxy,
    /// Another user, with another account, who may also use the first user's account.
    Second,
    /// A user of an authority that may only issue certificates for some names.
    Constrained,
}

impl UserKind {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Plain,
        Self::Spaces,
        Self::Utf8,
        Self::Voms,
        Self::Limited,
        Self::ProxyOfProxy,
        Self::Second,
        Self::Constrained,
    ];

    /// The word that names of cases and files use.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Spaces => "spaces",
            Self::Utf8 => "UTF-8",
            Self::Voms => "VOMS",
            Self::Limited => "limited",
            Self::ProxyOfProxy => "proxy of proxy",
            Self::Second => "second",
            Self::Constrained => "constrained",
        }
    }

    fn common_name(self) -> &'static str {
        match self {
            Self::Spaces => "Alice Smith 12345",
            Self::Utf8 => "Jörg Müller",
            Self::Second => "Bob Jones: 77",
            Self::Constrained => "carol",
            Self::Plain | Self::Voms | Self::Limited | Self::ProxyOfProxy => "alice",
        }
    }

    /// The user who has the end-entity certificate: some proxies are those of the plain user.
    fn certified(self) -> Self {
        match self {
            Self::Voms | Self::Limited | Self::ProxyOfProxy => Self::Plain,
            _ => self,
        }
    }

    fn file_name(self) -> String {
        self.name().replace(' ', "-")
    }

    /// The common name in the one-line form of OpenSSL, with escaped non-ASCII bytes.
    fn printed_name(self) -> String {
        self.common_name()
            .bytes()
            .fold(String::new(), |mut name, byte| {
                if byte.is_ascii() {
                    name.push(byte.into());
                } else {
                    // Writing to a string does not fail.
                    let _ = write!(name, "\\x{byte:02X}");
                }
                name
            })
    }
}

/// The files, subject and account of a user.
#[derive(Debug)]
pub struct UserCredential {
    /// The certificate that the authority has signed.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// The file for `X509_USER_PROXY`: certificate, key and chain.
    pub credential: PathBuf,
    /// The subject in its one-line form.
    pub subject: String,
    /// The local account.
    pub account: String,
}

/// Local accounts of this machine: three fixed ones if root runs the tests, else the account that runs them.
#[derive(Debug)]
pub struct Accounts {
    /// The account of all users but the second.
    pub first: String,
    /// The account of the second user.
    pub second: String,
    /// An account that no user is mapped to.
    pub foreign: String,
}

impl Accounts {
    pub(super) fn of_this_machine() -> Result<Self, PkiError> {
        if rustix::process::geteuid().is_root() {
            // Every Debian system has these accounts.
            return Ok(Self {
                first: "nobody".into(),
                second: "games".into(),
                foreign: "daemon".into(),
            });
        }
        let own = run(Path::new("/"), Client::new("id").args(["-u", "-n"]))?;
        let own = own.output().trim_end().to_owned();
        if own.is_empty() {
            return Err(PkiError::NoAccount);
        }
        Ok(Self {
            first: own.clone(),
            second: own,
            foreign: "daemon".into(),
        })
    }

    /// Whether the two users have different accounts.
    pub fn differ(&self) -> bool {
        self.first != self.second
    }
}

/// All users, in the order of their kinds, in the directory `top`.
pub(super) fn all(top: &Path, accounts: &Accounts) -> Vec<UserCredential> {
    let file = |name: &str, kind: &str| top.join(format!("{name}.{kind}"));
    UserKind::ALL
        .into_iter()
        .map(|kind| UserCredential {
            certificate: file(&kind.certified().file_name(), "pem"),
            key: file("user", "key"),
            credential: file(&kind.file_name(), "credential"),
            subject: format!("{ORGANISATION}/CN={}", kind.printed_name()),
            account: match kind {
                UserKind::Second => accounts.second.clone(),
                _ => accounts.first.clone(),
            },
        })
        .collect()
}

/// Makes the credentials of all users.
pub(super) fn make(
    top: &Path,
    [authority, narrow]: [&Authority; 2],
    key: &Key,
) -> Result<(), PkiError> {
    make_vo(top, authority)?;
    for kind in UserKind::ALL {
        let name = kind.file_name();
        let subject = format!("{ORGANISATION}/CN={}", kind.common_name());
        let issuer = match kind {
            UserKind::Constrained => narrow,
            _ => authority,
        };
        let certified = kind.certified();
        let certificate = match certified == kind {
            true => issuer.issue(&Issue::new(&name, &subject, key))?,
            false => top.join(format!("{}.pem", certified.file_name())),
        };
        let credential = top.join(format!("{name}.credential"));
        let proxy = || Client::new("grid-proxy-init").arg("-q");
        match kind {
            UserKind::Plain => write_credential(&credential, &certificate, &key.file, &[])?,
            UserKind::Constrained => {
                let above = [narrow.certificate()];
                write_credential(&credential, &certificate, &key.file, &above)?;
            }
            UserKind::Spaces | UserKind::Utf8 | UserKind::Second => {
                sign_proxy(top, proxy(), [&certificate, &key.file, &credential])?;
            }
            UserKind::Limited => {
                let limited = proxy().arg("-limited");
                sign_proxy(top, limited, [&certificate, &key.file, &credential])?;
            }
            UserKind::ProxyOfProxy => {
                let above = top.join("plain.proxy");
                sign_proxy(top, proxy(), [&certificate, &key.file, &above])?;
                sign_proxy(top, proxy(), [&above, &above, &credential])?;
            }
            UserKind::Voms => {
                sign_proxy(top, voms_proxy(top), [&certificate, &key.file, &credential])?;
            }
        }
    }
    Ok(())
}

/// Runs a program that makes a proxy from a certificate and its key.
fn sign_proxy(top: &Path, program: Client, files: [&Path; 3]) -> Result<(), PkiError> {
    let [certificate, key, proxy] = files;
    let program = program
        .arg("-cert")
        .arg(certificate)
        .arg("-key")
        .arg(key)
        .arg("-out")
        .arg(proxy)
        .env("X509_CERT_DIR", top.join("certificates"));
    run(top, program)?;
    Ok(())
}

/// The certificate of the organisation's VOMS server, and the `.lsc` file that lists it.
fn make_vo(top: &Path, authority: &Authority) -> Result<(), PkiError> {
    let subject = format!("{ORGANISATION}/CN={VOMS_HOST}");
    authority.issue(&Issue::new("voms", &subject, &Key::new(top, "voms")?))?;
    let directory = top.join("vomsdir").join(VO);
    fs::create_dir(&directory)?;
    let chain = format!("{subject}\n{}\n", AUTHORITY);
    fs::write(directory.join(format!("{VOMS_HOST}.lsc")), chain)?;
    Ok(())
}

fn voms_proxy(top: &Path) -> Client {
    let (role, uri) = (format!("/{VO}/production"), format!("{VOMS_HOST}:15000"));
    Client::new("voms-proxy-fake")
        .args([
            "-quiet",
            "-rfc",
            "-hours",
            "24",
            "-vomslife",
            "24",
            "-bits",
            "2048",
        ])
        .args([
            "-voms",
            VO,
            "-uri",
            &uri,
            "-fqan",
            &format!("/{VO}"),
            "-fqan",
            &role,
        ])
        .arg("-certdir")
        .arg(top.join("certificates"))
        .arg("-hostcert")
        .arg(top.join("voms.pem"))
        .arg("-hostkey")
        .arg(top.join("voms.key"))
}

/// Writes the grid-mapfile. Most bad credentials are in it, so that a missing mapping is not the cause of a refusal.
pub(super) fn write_map(top: &Path, accounts: &Accounts) -> Result<(), PkiError> {
    let Accounts { first, second, .. } = accounts;
    let (users, bad) = (all(top, accounts), bad::all(top));
    let mut map = String::from("# subject, and the accounts that it may use\n");
    let mut subjects: Vec<(&str, String)> = Vec::new();
    for user in &users {
        let accounts = if user.account == *second && first != second {
            format!("{second},{first}")
        } else {
            user.account.clone()
        };
        if subjects.iter().all(|(known, _)| *known != user.subject) {
            subjects.push((&user.subject, accounts));
        }
    }
    for bad in bad.iter().filter(|bad| bad.mapped) {
        subjects.push((&bad.subject, first.clone()));
    }
    for (subject, accounts) in subjects {
        // Writing to a string does not fail.
        let _ = writeln!(map, "\"{subject}\" {accounts}");
    }
    fs::write(top.join("grid-mapfile"), map)?;
    Ok(())
}

/// Makes the password file with our server program. Without the program no server of ours can start either.
pub(super) fn write_passwords(top: &Path) -> Result<(), PkiError> {
    let Ok(program) = Kind::Gridhaul.program() else {
        return Ok(());
    };
    let make = Client::new(program)
        .args(["passwd", "passwords", PASSWORD_USER])
        .input(format!("{PASSWORD}\n"));
    run(top, make)?;
    Ok(())
}
