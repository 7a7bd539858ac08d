//! Files of a trust directory: the kinds, by name, and their content.

use std::sync::Arc;

use rustls_pki_types::CertificateRevocationListDer;
use rustls_pki_types::pem::PemObject;

use super::revocation::{ListError, RevocationList};
use super::signing_policy::SigningPolicy;
use crate::certificate::Certificate;
use crate::name::Name;

/// The kind of a file, which its name determines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum TrustFileKind {
    Certificates,
    RevocationLists,
    /// `is_hashed` if the file is named after the hash of an authority's name.
    SigningPolicy {
        is_hashed: bool,
    },
}

/// The parsed content of a file, which several stores can share.
#[derive(Clone, Debug)]
pub(crate) enum TrustFile {
    Certificates(Arc<[Certificate]>),
    RevocationLists(Arc<[Arc<RevocationList>]>),
    SigningPolicy(Arc<SigningPolicy>),
}

/// Why a file cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileDefect {
    /// The cause and the remedy.
    pub(crate) reason: String,
    /// The issuers of its revocation lists, as far as they could be parsed.
    pub(crate) issuers: Vec<Name>,
}

impl From<String> for FileDefect {
    fn from(reason: String) -> Self {
        Self {
            reason,
            issuers: Vec::new(),
        }
    }
}

impl TrustFileKind {
    /// The kind of a file: `HASH.0`, `HASH.signing_policy`, `HASH.r0`, or plain names such as `ca.pem`, `ca.signing_policy` and
    /// `ca.crl`. `None` for other names.
    pub(crate) fn of(file: &str) -> Option<Self> {
        let (stem, extension) = file.rsplit_once('.')?;
        let is_number =
            |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let is_hashed = stem.len() == 8 && stem.bytes().all(|byte| byte.is_ascii_hexdigit());
        match extension {
            "signing_policy" => Some(Self::SigningPolicy { is_hashed }),
            "pem" | "crt" => Some(Self::Certificates),
            "crl" => Some(Self::RevocationLists),
            // fetch-crl uses this extension for revocation lists with IGTF names.
            "r0" => Some(Self::RevocationLists),
            number if is_hashed && is_number(number) => Some(Self::Certificates),
            number if is_hashed && number.strip_prefix('r').is_some_and(is_number) => {
                Some(Self::RevocationLists)
            }
            _ => None,
        }
    }
}

/// The common part of the names of an authority's files: `ca` of `ca.pem`, `ca.signing_policy` and `ca.r0`, or the hash of
/// `HASH.0`, `HASH.signing_policy` and `HASH.r0`.
pub(super) fn stem(file: &str) -> &str {
    file.rsplit_once('.').map_or(file, |(stem, _)| stem)
}

impl TrustFile {
    /// Parses the content of a file.
    pub(crate) fn parse(kind: TrustFileKind, content: &[u8]) -> Result<Self, FileDefect> {
        match kind {
            TrustFileKind::Certificates => Ok(certificates(content).map(Self::Certificates)?),
            TrustFileKind::RevocationLists => lists(content).map(Self::RevocationLists),
            TrustFileKind::SigningPolicy { .. } => {
                let policy = SigningPolicy::parse(content)?;
                Ok(Self::SigningPolicy(Arc::new(policy)))
            }
        }
    }

    pub(super) fn revocation_lists(&self) -> &[Arc<RevocationList>] {
        match self {
            Self::RevocationLists(lists) => lists,
            _ => &[],
        }
    }
}

fn certificates(content: &[u8]) -> Result<Arc<[Certificate]>, String> {
    let read = match is_der(content) {
        true => Certificate::from_der(content).map(|certificate| vec![certificate]),
        false => Certificate::all_from_pem(content),
    };
    let certificates = read.map_err(|error| format!("{error}: fetch it anew"))?;
    match certificates.is_empty() {
        true => Err("there is no certificate in it: remove it, or fetch it anew".to_owned()),
        false => Ok(certificates.into()),
    }
}

/// All lists of a file, or an error: an unusable list may contain the relevant revocation.
fn lists(content: &[u8]) -> Result<Arc<[Arc<RevocationList>]>, FileDefect> {
    let mut lists = Vec::new();
    let mut defect: Option<FileDefect> = None;
    let mut note = |ListError { issuer, reason }| {
        let defect =
            defect.get_or_insert_with(|| format!("{reason}: fetch it anew (fetch-crl)").into());
        defect.issuers.extend(issuer);
    };
    let mut add = |der| match RevocationList::from_der(der) {
        Ok(list) => lists.push(Arc::new(list)),
        Err(error) => note(error),
    };
    if is_der(content) {
        add(content.to_vec());
    } else {
        for section in CertificateRevocationListDer::pem_slice_iter(content) {
            match section {
                Ok(der) => add(der.to_vec()),
                Err(error) => {
                    note(ListError {
                        issuer: None,
                        reason: format!("the PEM text is malformed: {error}"),
                    });
                    break;
                }
            }
        }
    }
    if let Some(mut defect) = defect {
        defect
            .issuers
            .extend(lists.iter().map(|list| list.issuer().clone()));
        return Err(defect);
    }
    match lists.is_empty() {
        true => {
            let reason = "there is no revocation list in it: fetch it anew (fetch-crl)";
            Err(reason.to_owned().into())
        }
        false => Ok(lists.into()),
    }
}

/// DER of a certificate or a list begins with a SEQUENCE with a long length. In PEM text, 0x30 is a digit, and the second
/// byte is ASCII.
fn is_der(content: &[u8]) -> bool {
    matches!(content, [0x30, 0x80..=0x84, ..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_determines_the_kind() {
        let hashed = TrustFileKind::SigningPolicy { is_hashed: true };
        let plain = TrustFileKind::SigningPolicy { is_hashed: false };
        for (file, kind) in [
            ("5ca1ab1e.0", Some(TrustFileKind::Certificates)),
            ("5CA1AB1E.12", Some(TrustFileKind::Certificates)),
            ("My.CA.pem", Some(TrustFileKind::Certificates)),
            ("ca.crt", Some(TrustFileKind::Certificates)),
            ("ca.r0", Some(TrustFileKind::RevocationLists)),
            ("5ca1ab1e.r1", Some(TrustFileKind::RevocationLists)),
            ("ca.crl", Some(TrustFileKind::RevocationLists)),
            ("5ca1ab1e.signing_policy", Some(hashed)),
            ("My CA.signing_policy", Some(plain)),
            ("5ca1ab1e.namespaces", None),
            ("ca.info", None),
            ("ca.0", None),
            ("5ca1ab1e.", None),
            ("5ca1ab1e.r", None),
            ("ca.r1", None),
            ("5ca1ab1e.rx", None),
            ("pem", None),
        ] {
            assert_eq!(TrustFileKind::of(file), kind, "{file}");
        }
    }
}
