//! A certificate chain with the key of its first certificate.

mod pem;
mod self_signed;

use std::sync::Arc;
use std::time::SystemTime;

use der::Tag;

use crate::asn1::Elements;
use crate::certificate::{Certificate, CertificateError};
use crate::key::{KeyError, PrivateKey};
use crate::name::Name;
use crate::proxy::ProxyPolicy;

pub use pem::credential_pem;

/// The maximum length of a chain.
pub(crate) const MAX_CHAIN: usize = 32;

/// A chain and its key: of a host, a user's proxy, or a delegated proxy.
#[derive(Clone, Debug)]
pub struct Credential {
    /// Never empty.
    chain: Vec<Certificate>,
    key: Arc<PrivateKey>,
}

/// Why a credential cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CredentialError {
    /// A certificate is malformed.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// The key is unusable.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// There is no certificate.
    #[error("there is no certificate in it")]
    NoCertificate,
    /// There are too many certificates.
    #[error("there are more than {MAX_CHAIN} certificates in it: only the chain belongs there")]
    TooLong,
    /// The key does not belong to the first certificate.
    #[error("the private key does not belong to the certificate {0}")]
    KeyMismatch(String),
}

impl Credential {
    /// Combines a chain, leaf first, with its key.
    ///
    /// # Errors
    ///
    /// When the chain is empty or too long, or the key does not belong to it.
    pub fn new(chain: Vec<Certificate>, key: PrivateKey) -> Result<Self, CredentialError> {
        let leaf = chain.first().ok_or(CredentialError::NoCertificate)?;
        if chain.len() > MAX_CHAIN {
            return Err(CredentialError::TooLong);
        }
        if !is_same_key(leaf.public_key_info(), &key.public_key_info()) {
            let subject = leaf.subject().one_line().to_owned();
            return Err(CredentialError::KeyMismatch(subject));
        }
        let key = Arc::new(key);
        Ok(Self { chain, key })
    }

    /// Parses certificates and key from one PEM text, as in proxy files.
    ///
    /// # Errors
    ///
    /// When the text has no certificate or no key, or they cannot be used together.
    pub fn from_pem(pem: &[u8]) -> Result<Self, CredentialError> {
        Self::parse(pem, PrivateKey::from_pem)
    }

    /// As [`Credential::from_pem`], for a credential that a client gives to its session (`DCSC P`): another machine that makes
    /// data channels for the session may have its key ([`PrivateKey::exported`]).
    ///
    /// # Errors
    ///
    /// As for [`Credential::from_pem`].
    pub fn of_session(pem: &[u8]) -> Result<Self, CredentialError> {
        Self::parse(pem, PrivateKey::exportable_from_pem)
    }

    fn parse(
        pem: &[u8],
        read_key: impl FnOnce(&[u8]) -> Result<PrivateKey, KeyError>,
    ) -> Result<Self, CredentialError> {
        let chain = Certificate::all_from_pem(pem)?;
        if chain.is_empty() {
            return Err(CredentialError::NoCertificate);
        }
        Self::new(chain, read_key(pem)?)
    }

    /// The chain, leaf first.
    pub fn chain(&self) -> &[Certificate] {
        &self.chain
    }

    /// The first certificate of the chain.
    pub fn leaf(&self) -> &Certificate {
        &self.chain[0]
    }

    /// The key of the first certificate.
    pub fn key(&self) -> &Arc<PrivateKey> {
        &self.key
    }

    /// The subject of the first certificate that is neither a full nor a limited proxy.
    pub fn identity(&self) -> &Name {
        identity(&self.chain).unwrap_or_else(|| self.leaf().subject())
    }

    /// The earliest end of validity in the chain.
    pub fn expires(&self) -> SystemTime {
        let leaf = self.leaf().validity().not_after;
        let ends = self.chain.iter().map(|one| one.validity().not_after);
        ends.fold(leaf, SystemTime::min)
    }
}

/// The subject of the first certificate of a chain that is neither a full nor a limited proxy.
pub(crate) fn identity(chain: &[Certificate]) -> Option<&Name> {
    let is_identity = |certificate: &&Certificate| match certificate.proxy() {
        Some(proxy) => !matches!(proxy.policy, ProxyPolicy::InheritAll | ProxyPolicy::Limited),
        None => true,
    };
    chain.iter().find(is_identity).map(Certificate::subject)
}

/// Whether two DER `SubjectPublicKeyInfo` contain the same key. Parameters are ignored: some encoders omit a NULL that
/// others write.
fn is_same_key(one: &[u8], other: &[u8]) -> bool {
    fn parts(info: &[u8]) -> der::Result<(&[u8], &[u8])> {
        let mut fields = Elements::only(info, Tag::Sequence)?.children();
        let mut algorithm = fields.expect(Tag::Sequence)?.children();
        let identifier = algorithm.expect(Tag::ObjectIdentifier)?.content();
        Ok((identifier, fields.expect(Tag::BitString)?.content()))
    }
    match (parts(one), parts(other)) {
        (Ok(one), Ok(other)) => one == other,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_pki::{FULL, INDEPENDENT, LIMITED, Pki, Request, USER};

    #[test]
    fn a_proxy_file_is_read_whole() {
        let pki = Pki::new();
        let root = pki.root("/DC=test/CN=Root");
        let user = pki.issue(&root, "/DC=test/CN=Alice", USER);
        let proxy = pki.proxy(&user, FULL);
        let file = [proxy.pem(), proxy.key_pem(), user.pem()].concat();
        let credential = Credential::from_pem(&file).expect("a credential");
        assert_eq!(credential.chain(), [proxy.certificate, user.certificate]);
        assert_eq!(credential.identity().one_line(), "/DC=test/CN=Alice");
    }

    #[test]
    fn the_identity_is_behind_full_and_limited_proxies() {
        let pki = Pki::new();
        let root = pki.root("/DC=test/CN=Root");
        let user = pki.issue(&root, "/DC=test/CN=Alice", USER);
        let independent = pki.proxy(&user, INDEPENDENT);
        let limited = pki.proxy(&independent, LIMITED);
        let chain = [limited, independent, user].map(|issued| issued.certificate);
        assert_eq!(identity(&chain), Some(chain[1].subject()));
        assert_eq!(identity(&chain[2..]), Some(chain[2].subject()));
        assert_eq!(identity(&chain[..1]), None);
    }

    #[test]
    fn keys_of_all_kinds_belong_to_their_certificates() {
        let pki = Pki::new();
        for key in [
            &["rsa:2048"][..],
            &["ec", "-pkeyopt", "ec_paramgen_curve:P-256"],
            &["ec", "-pkeyopt", "ec_paramgen_curve:P-384"],
        ] {
            let request = Request {
                key,
                ..Request::default()
            };
            let issued = pki.make(&request, None);
            let file = [issued.key_pem(), issued.pem()].concat();
            Credential::from_pem(&file).expect("a credential");
        }
    }

    #[test]
    fn the_key_of_another_certificate_is_refused() {
        let pki = Pki::new();
        let (one, other) = (pki.root("/CN=One"), pki.root("/CN=Other"));
        let error = Credential::from_pem(&[one.pem(), other.key_pem()].concat());
        let expected = CredentialError::KeyMismatch("/CN=One".to_owned());
        assert_eq!(error.expect_err("not its key"), expected);
    }

    #[test]
    fn a_file_without_certificate_or_key_is_refused() {
        let pki = Pki::new();
        let root = pki.root("/CN=One");
        let error = Credential::from_pem(&root.key_pem()).expect_err("no certificate");
        assert_eq!(error, CredentialError::NoCertificate);
        let error = Credential::from_pem(&root.pem()).expect_err("no key");
        assert!(matches!(error, CredentialError::Key(_)));
    }

    #[test]
    fn a_credential_ends_with_the_first_of_its_certificates() {
        let pki = Pki::new();
        let root = pki.root("/CN=Root");
        let short = Request {
            subject: "/CN=Alice",
            extensions: USER,
            days: 1,
            ..Request::default()
        };
        let user = pki.make(&short, Some(&root));
        let proxy = pki.proxy(&user, FULL);
        let file = [proxy.pem(), proxy.key_pem(), user.pem()].concat();
        let credential = Credential::from_pem(&file).expect("a credential");
        assert_eq!(credential.expires(), user.certificate.validity().not_after);
    }
}
