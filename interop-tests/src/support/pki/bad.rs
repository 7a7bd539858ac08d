//! Credentials that no server must accept, each with one thing wrong.
//!
//! All but the unmapped ones are in the grid-mapfile: it is not for their names that they are refused.

use std::path::{Path, PathBuf};

use super::authority::{Authority, Issue, Key};
use super::command::PkiError;
use super::files::write_credential;
use super::names::{AUTHORITY, ORGANISATION};

/// What is wrong.
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
    /// The authority has taken the certificate back.
    Revoked,
    /// The authority's revocation list has not been renewed in time.
    RevocationListExpired,
    /// The certificate was valid until some time ago.
    Expired,
    /// The certificate will be valid in some time.
    NotYetValid,
    /// The proxy was valid until some time ago.
    ProxyExpired,
    /// A proxy beneath one that allows none.
    PathLengthExceeded,
    /// The certificate is an authority's.
    AuthorityAsUser,
    /// The certificate was signed by a user, and is no proxy.
    SignedByUser,
    /// The subject of a proxy is not its issuer's and one name more.
    SubjectNotExtended,
    /// A full proxy beneath a limited one.
    FullBelowLimited,
    /// The authority's certificate does not permit names like the subject.
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

    /// What names of cases say.
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
            Self::Unmapped => "of somebody who is not mapped",
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

    /// Whether the handshake itself is good, and the server refuses the login by name.
    pub fn is_authentic(self) -> bool {
        matches!(self, Self::Unmapped | Self::IndependentProxy)
    }
}

/// A credential that must be refused.
#[derive(Debug)]
pub struct BadCredential {
    /// Certificate, key and what is above, in one file as for [`super::UserCredential`].
    pub credential: PathBuf,
    /// The claimed subject.
    pub subject: String,
    /// Whether the grid-mapfile has the subject.
    pub(super) mapped: bool,
}

/// What a proxy of each kind says (RFC 3820 3.8; the limited one is Globus's own).
const FULL: &str = "1.3.6.1.5.5.7.21.1";
const INDEPENDENT: &str = "1.3.6.1.5.5.7.21.2";
const LIMITED: &str = "1.3.6.1.4.1.3536.1.1.1.9";

/// Long ago, and long from now.
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

/// Makes them.
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
            BadKind::Expired => self.certificate(
                authority,
                &Issue {
                    validity: Some(PAST),
                    ..issue
                },
            ),
            BadKind::NotYetValid => self.certificate(
                authority,
                &Issue {
                    validity: Some(FUTURE),
                    ..issue
                },
            ),
            BadKind::AuthorityAsUser => self.certificate(
                authority,
                &Issue {
                    extensions: "basicConstraints = critical,CA:TRUE\n\
                                 keyUsage = critical,digitalSignature,keyCertSign,cRLSign\n",
                    ..issue
                },
            ),
            BadKind::NameConstraintBroken => self.certificate(self.narrow, &issue),
            BadKind::ProxyExpired => self.proxies(kind, &subject, &[("", FULL, "", Some(PAST))]),
            BadKind::PathLengthExceeded => {
                let none = ",pathlen:0";
                self.proxies(
                    kind,
                    &subject,
                    &[("", FULL, none, None), ("", FULL, "", None)],
                )
            }
            BadKind::FullBelowLimited => self.proxies(
                kind,
                &subject,
                &[("", LIMITED, "", None), ("", FULL, "", None)],
            ),
            BadKind::SubjectNotExtended => {
                let own = format!("{ORGANISATION}/CN=alice/CN=1");
                self.proxies(kind, &subject, &[(&own, FULL, "", None)])
            }
            BadKind::IndependentProxy => {
                self.proxies(kind, &subject, &[("", INDEPENDENT, "", None)])
            }
            BadKind::SignedByUser => {
                authority.issue(&Issue::new(
                    "signer",
                    &format!("{ORGANISATION}/CN=Signer"),
                    self.user,
                ))?;
                let signer = format!("{ORGANISATION}/CN=Signer");
                let signer = Authority::of(self.top, "signer", &signer, self.user)?;
                self.certificate(
                    &signer,
                    &Issue {
                        key: &self.proxy,
                        ..issue
                    },
                )
            }
        }
    }

    /// An authority with a key of its own.
    fn root(&self, name: &str, subject: &str) -> Result<Authority, PkiError> {
        Authority::new(self.top, name, subject, &self.stranger)
    }

    /// A user certificate and what its authority shows.
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

    /// A good user certificate with proxies below it, each given as its subject (empty for what it
    /// should be), its policy, a path length, and a validity.
    fn proxies(
        &self,
        kind: BadKind,
        subject: &str,
        proxies: &[(&str, &str, &str, Option<[&str; 2]>)],
    ) -> Result<(), PkiError> {
        let mut name = format!("{}-0", kind.file_name());
        let mut chain = vec![
            self.authority
                .issue(&Issue::new(&name, subject, self.user))?,
        ];
        let (mut issuer, mut key) = (subject.to_owned(), self.user);
        for (number, &(own, policy, path_length, validity)) in (1..).zip(proxies) {
            let signer = Authority::of(self.top, &name, &issuer, key)?;
            name = format!("{}-{number}", kind.file_name());
            issuer = match own {
                "" => format!("{issuer}/CN={number}"),
                own => own.to_owned(),
            };
            key = &self.proxy;
            let extensions = format!(
                "keyUsage = critical,digitalSignature,keyEncipherment\n\
                 proxyCertInfo = critical,language:{policy}{path_length}\n"
            );
            let below = signer.issue(&Issue {
                extensions: &extensions,
                validity,
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
