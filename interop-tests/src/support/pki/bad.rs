//! Credentials that no server may accept, each with one defect.
//!
//! All but the unmapped ones are in the grid-mapfile, so that a missing mapping is not the cause of the refusal.

use std::path::{Path, PathBuf};

use super::authority::{Authority, Issue, Key};
use super::command::PkiError;
use super::files::write_credential;
use super::names::{AUTHORITY, ORGANISATION};

/// The defect of a credential.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum BadKind {
    /// The authority is in no trust directory.
    UnknownAuthority,
    /// The authority has the name of a trusted one, but another key.
    Impostor,
    /// The authority has no signing policy.
    NoSigningPolicy,
    /// The authority's signing policy does not allow the subject.
    OutsideSigningPolicy,
    /// The certificate is on the authority's revocation list.
    Revoked,
    /// The authority's revocation list has not been renewed in time.
    RevocationListExpired,
    /// The certificate has expired.
    Expired,
    /// The certificate is not valid yet.
    NotYetValid,
    /// The proxy has expired.
    ProxyExpired,
    /// A proxy beneath one that allows none.
    PathLengthExceeded,
    /// The certificate is an authority's.
    AuthorityAsUser,
    /// The certificate was signed by a user, and is no proxy.
    SignedByUser,
    /// The subject of a proxy is not its issuer's subject with one more common name.
    SubjectNotExtended,
    /// A full proxy beneath a limited one.
    FullBelowLimited,
    /// A name constraint of the authority's certificate does not permit the subject.
    NameConstraintBroken,
    /// The identity is in no grid-mapfile.
    Unmapped,
    /// An independent proxy, whose identity is its own and in no grid-mapfile.
    IndependentProxy,
}

impl BadKind {
    /// All of them.
    pub const ALL: [Self; 17] = [
        Self::UnknownAuthority,
        Self::Impostor,
        Self::NoSigningPolicy,
        Self::OutsideSigningPolicy,
        Self::Revoked,
        Self::RevocationListExpired,
        Self::Expired,
        Self::NotYetValid,
        Self::ProxyExpired,
        Self::PathLengthExceeded,
        Self::AuthorityAsUser,
        Self::SignedByUser,
        Self::SubjectNotExtended,
        Self::FullBelowLimited,
        Self::NameConstraintBroken,
        Self::Unmapped,
        Self::IndependentProxy,
    ];

    /// The description in names of cases.
    pub fn name(self) -> &'static str {
        match self {
            Self::UnknownAuthority => "of an unknown authority",
            Self::Impostor => "of an impostor of the authority",
            Self::NoSigningPolicy => "of an authority without a signing policy",
            Self::OutsideSigningPolicy => "outside of the signing policy",
            Self::Revoked => "that is revoked",
            Self::RevocationListExpired => "whose authority's revocation list has expired",
            Self::Expired => "that has expired",
            Self::NotYetValid => "that is not yet valid",
            Self::ProxyExpired => "with a proxy that has expired",
            Self::PathLengthExceeded => "with a proxy below one that allows none",
            Self::AuthorityAsUser => "that is an authority's",
            Self::SignedByUser => "signed by a user, not a proxy",
            Self::SubjectNotExtended => "with a proxy that has a name of its own",
            Self::FullBelowLimited => "with a full proxy below a limited one",
            Self::NameConstraintBroken => "against a name constraint",
            Self::Unmapped => "of a subject that is not mapped",
            Self::IndependentProxy => "with an independent proxy",
        }
    }

    fn file_name(self) -> String {
        format!("bad-{self:?}")
    }

    fn subject(self) -> String {
        match self {
            Self::OutsideSigningPolicy | Self::NameConstraintBroken => {
                format!("/DC=test/O=Elsewhere/CN=Mallory {self:?}")
            }
            _ => format!("{ORGANISATION}/CN=Mallory {self:?}"),
        }
    }

    /// Whether the handshake succeeds and the server refuses the login because of the name.
    pub fn is_authentic(self) -> bool {
        matches!(self, Self::Unmapped | Self::IndependentProxy)
    }
}

/// A credential that must be refused.
#[derive(Debug)]
pub struct BadCredential {
    /// Certificate, key and chain in one file, as for [`super::UserCredential`].
    pub credential: PathBuf,
    /// The claimed subject.
    pub subject: String,
    /// Whether the grid-mapfile has the subject.
    pub(super) mapped: bool,
}

/// The policy language of each kind of proxy (RFC 3820 3.8; the limited one is defined by Globus).
const FULL: &str = "1.3.6.1.5.5.7.21.1";
const INDEPENDENT: &str = "1.3.6.1.5.5.7.21.2";
const LIMITED: &str = "1.3.6.1.4.1.3536.1.1.1.9";

/// Validity periods in the past and in the future.
const PAST: [&str; 2] = ["20200101000000Z", "20210101000000Z"];
const FUTURE: [&str; 2] = ["20900101000000Z", "20910101000000Z"];

/// All of them, in the order of their kinds, in the directory `top`.
pub(super) fn all(top: &Path) -> Vec<BadCredential> {
    BadKind::ALL
        .into_iter()
        .map(|kind| BadCredential {
            credential: top.join(format!("{}.credential", kind.file_name())),
            subject: kind.subject(),
            mapped: !matches!(kind, BadKind::Unmapped),
        })
        .collect()
}

/// Makes all of them.
pub(super) fn make(
    top: &Path,
    [authority, narrow]: [&Authority; 2],
    user: &Key,
) -> Result<(), PkiError> {
    let maker = Maker {
        top,
        authority,
        narrow,
        user,
        proxy: Key::new(top, "proxy")?,
        stranger: Key::new(top, "stranger")?,
    };
    BadKind::ALL
        .into_iter()
        .try_for_each(|kind| maker.make(kind))
}

/// A proxy certificate of a chain.
#[derive(Clone, Copy)]
struct Proxy<'a> {
    /// The subject; `None` for the issuer's subject with one more common name.
    subject: Option<&'a str>,
    policy: &'a str,
    /// The path length constraint in the notation of OpenSSL, or empty.
    path_length: &'a str,
    validity: Option<[&'a str; 2]>,
}

impl<'a> Proxy<'a> {
    fn new(policy: &'a str) -> Self {
        Self {
            subject: None,
            policy,
            path_length: "",
            validity: None,
        }
    }
}

struct Maker<'a> {
    top: &'a Path,
    authority: &'a Authority,
    narrow: &'a Authority,
    user: &'a Key,
    proxy: Key,
    stranger: Key,
}

impl Maker<'_> {
    fn make(&self, kind: BadKind) -> Result<(), PkiError> {
        let (name, subject) = (kind.file_name(), kind.subject());
        let issue = Issue::new(&name, &subject, self.user);
        let authority = self.authority;
        let full = Proxy::new(FULL);
        match kind {
            BadKind::UnknownAuthority => {
                let unknown = self.root("unknown", "/DC=test/O=Grid/CN=Unknown Authority")?;
                self.certificate(&unknown, &issue)
            }
            BadKind::Impostor => {
                let impostor = self.root("impostor", AUTHORITY)?;
                self.certificate(&impostor, &issue)
            }
            BadKind::NoSigningPolicy => {
                let lawless = self.root("lawless", "/DC=test/O=Grid/CN=Lawless Authority")?;
                lawless.trust(self.top, &[])?;
                self.certificate(&lawless, &issue)
            }
            BadKind::RevocationListExpired => {
                let idle = self.root("idle", "/DC=test/O=Grid/CN=Idle Authority")?;
                idle.trust(self.top, &["/DC=test/O=Grid/*"])?;
                idle.stale_revocations(self.top)?;
                self.certificate(&idle, &issue)
            }
            BadKind::OutsideSigningPolicy | BadKind::Unmapped => {
                self.certificate(authority, &issue)
            }
            BadKind::Revoked => {
                self.certificate(authority, &issue)?;
                authority.revoke(&self.top.join(format!("{name}.pem")))
            }
            BadKind::Expired | BadKind::NotYetValid => {
                let validity = match kind {
                    BadKind::Expired => PAST,
                    _ => FUTURE,
                };
                self.certificate(authority, &issue.valid(validity))
            }
            BadKind::AuthorityAsUser => self.certificate(
                authority,
                &Issue {
                    extensions: "basicConstraints = critical,CA:TRUE\n\
                                 keyUsage = critical,digitalSignature,keyCertSign,cRLSign\n",
                    ..issue
                },
            ),
            BadKind::NameConstraintBroken => self.certificate(self.narrow, &issue),
            BadKind::ProxyExpired => {
                let validity = Some(PAST);
                self.proxies(kind, &subject, &[Proxy { validity, ..full }])
            }
            BadKind::PathLengthExceeded => {
                let path_length = ",pathlen:0";
                let first = Proxy {
                    path_length,
                    ..full
                };
                self.proxies(kind, &subject, &[first, full])
            }
            BadKind::FullBelowLimited => self.proxies(kind, &subject, &[Proxy::new(LIMITED), full]),
            BadKind::SubjectNotExtended => {
                let other = format!("{ORGANISATION}/CN=alice/CN=1");
                let proxy = Proxy {
                    subject: Some(&other),
                    ..full
                };
                self.proxies(kind, &subject, &[proxy])
            }
            BadKind::IndependentProxy => self.proxies(kind, &subject, &[Proxy::new(INDEPENDENT)]),
            BadKind::SignedByUser => {
                let signed = Issue {
                    key: &self.proxy,
                    ..issue
                };
                self.certificate(&self.user_as_signer()?, &signed)
            }
        }
    }

    /// A user whose key signs certificates, though the user's certificate is not that of an authority.
    fn user_as_signer(&self) -> Result<Authority, PkiError> {
        let subject = format!("{ORGANISATION}/CN=Signer");
        let issue = Issue::new("signer", &subject, self.user);
        self.authority.issue(&issue)?;
        Authority::of(self.top, "signer", &subject, self.user)
    }

    /// An authority with a key of its own.
    fn root(&self, name: &str, subject: &str) -> Result<Authority, PkiError> {
        Authority::new(self.top, name, subject, &self.stranger)
    }

    /// A user certificate with its authority's certificate.
    fn certificate(&self, by: &Authority, issue: &Issue<'_>) -> Result<(), PkiError> {
        let certificate = by.issue(issue)?;
        let credential = self.top.join(format!("{}.credential", issue.name));
        write_credential(
            &credential,
            &certificate,
            &issue.key.file,
            &[by.certificate()],
        )?;
        Ok(())
    }

    /// A valid user certificate with proxies below it.
    fn proxies(&self, kind: BadKind, subject: &str, proxies: &[Proxy<'_>]) -> Result<(), PkiError> {
        let mut name = format!("{}-0", kind.file_name());
        let mut chain = vec![
            self.authority
                .issue(&Issue::new(&name, subject, self.user))?,
        ];
        let (mut issuer, mut key) = (subject.to_owned(), self.user);
        for (number, proxy) in (1..).zip(proxies) {
            let signer = Authority::of(self.top, &name, &issuer, key)?;
            name = format!("{}-{number}", kind.file_name());
            issuer = match proxy.subject {
                None => format!("{issuer}/CN={number}"),
                Some(subject) => subject.to_owned(),
            };
            key = &self.proxy;
            let extensions = format!(
                "keyUsage = critical,digitalSignature,keyEncipherment\n\
                 proxyCertInfo = critical,language:{}{}\n",
                proxy.policy, proxy.path_length
            );
            let below = signer.issue(&Issue {
                extensions: &extensions,
                validity: proxy.validity,
                ..Issue::new(&name, &issuer, key)
            })?;
            chain.insert(0, below);
        }
        let credential = self.top.join(format!("{}.credential", kind.file_name()));
        let above: Vec<_> = chain[1..].iter().map(PathBuf::as_path).collect();
        write_credential(&credential, &chain[0], &key.file, &above)?;
        Ok(())
    }
}
