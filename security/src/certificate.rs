//! X.509 certificates, parsed once.
//!
//! The parser accepts deviations that existing certificates have: long or negative serial numbers, roots of version 1,
//! unusual string types in names. Extensions are parsed strictly.

mod parse;
#[cfg(test)]
mod tests;

use std::fmt;
use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::SystemTime;

use aws_lc_rs::digest::{SHA256, digest};
use der::Tag;
use der::asn1::ObjectIdentifier;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

use crate::asn1::{Elements, is_identifier};
use crate::name::Name;
use crate::proxy::ProxyInfo;
use crate::signature::describe_key;

pub use crate::malformed::CertificateError;
pub(crate) use parse::time;

/// The largest certificate that is parsed. A proxy with attributes of several virtual organizations has some ten thousand
/// bytes.
const MAX_BYTES: usize = 256 * 1024;

const SUBJECT_KEY_IDENTIFIER: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.14");
pub(crate) const KEY_USAGE: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.15");
pub(crate) const SUBJECT_ALTERNATIVE_NAME: ObjectIdentifier =
    ObjectIdentifier::new_unwrap("2.5.29.17");
pub(crate) const BASIC_CONSTRAINTS: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.19");
pub(crate) const NAME_CONSTRAINTS: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.30");
const AUTHORITY_KEY_IDENTIFIER: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.35");

/// A well-formed certificate, whose signature is not verified. Cloning is cheap.
#[derive(Clone, PartialEq, Eq)]
pub struct Certificate(Arc<Parts>);

struct Parts {
    der: Vec<u8>,
    signed: Range<usize>,
    subject: Name,
    issuer: Name,
    serial: Range<usize>,
    validity: Validity,
    public_key_info: Range<usize>,
    signature_algorithm: Range<usize>,
    signature: Range<usize>,
    extensions: Vec<Extension>,
    proxy: Option<ProxyInfo>,
    basic_constraints: Option<BasicConstraints>,
    key_usage: Option<KeyUsage>,
    dns_names: Vec<String>,
}

/// RFC 5280 4.2.1.9
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BasicConstraints {
    pub(crate) is_authority: bool,
    /// The number of authorities that may be below it; `None` is any number.
    pub(crate) path_length: Option<u32>,
}

/// The permitted uses of a key (RFC 5280 4.2.1.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyUsage {
    pub(crate) may_sign: bool,
    pub(crate) may_sign_certificates: bool,
    pub(crate) may_sign_lists: bool,
}

/// The position of an extension.
struct Extension {
    identifier: Range<usize>,
    is_critical: bool,
    content: Range<usize>,
}

/// The period of validity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// Not valid before.
    pub not_before: SystemTime,
    /// Not valid after.
    pub not_after: SystemTime,
}

/// SHA-256 of the encoding of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint(pub [u8; 32]);

impl Fingerprint {
    /// That of a DER certificate.
    pub fn of(der: &[u8]) -> Self {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest(&SHA256, der).as_ref());
        Self(bytes)
    }
}

impl Certificate {
    /// Parses a DER certificate, without trailing data.
    pub fn from_der(der: &[u8]) -> Result<Self, CertificateError> {
        let malformed = CertificateError::malformed("the certificate");
        if der.len() > MAX_BYTES {
            return Err(malformed(format!("it has more than {MAX_BYTES} bytes")));
        }
        let parts = Parts::parse(der).map_err(CertificateError::malformed("the certificate"))?;
        Ok(Self(Arc::new(parts)))
    }

    /// The certificates of a PEM text, in order. Other PEM sections and text between them are skipped.
    pub fn all_from_pem(pem: &[u8]) -> Result<Vec<Self>, CertificateError> {
        CertificateDer::pem_slice_iter(pem)
            .map(|section| {
                let der = section.map_err(CertificateError::malformed("the PEM text"))?;
                Self::from_der(&der)
            })
            .collect()
    }

    /// The fingerprint.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(self.der())
    }

    /// The encoding, as it was parsed.
    pub fn der(&self) -> &[u8] {
        &self.0.der
    }

    /// The subject.
    pub fn subject(&self) -> &Name {
        &self.0.subject
    }

    /// The issuer.
    pub fn issuer(&self) -> &Name {
        &self.0.issuer
    }

    /// The value bytes of the serial number.
    pub fn serial(&self) -> &[u8] {
        &self.0.der[self.0.serial.clone()]
    }

    /// The period of validity.
    pub fn validity(&self) -> Validity {
        self.0.validity
    }

    /// The DER `SubjectPublicKeyInfo`.
    pub fn public_key_info(&self) -> &[u8] {
        &self.0.der[self.0.public_key_info.clone()]
    }

    /// The kind and the length of its key, for people: `RSA, 2048 bits`.
    pub fn key_description(&self) -> String {
        describe_key(self.public_key_info())
    }

    /// The ProxyCertInfo extension, if it is a proxy.
    pub fn proxy(&self) -> Option<&ProxyInfo> {
        self.0.proxy.as_ref()
    }

    /// Whether subject and issuer are the same.
    pub fn is_self_issued(&self) -> bool {
        self.subject().matches(self.issuer())
    }

    /// The `dNSName`s among its alternative names.
    pub fn dns_names(&self) -> &[String] {
        &self.0.dns_names
    }

    /// The `iPAddress`es among its alternative names.
    pub fn addresses(&self) -> Vec<IpAddr> {
        let extension = self.find_extension(&SUBJECT_ALTERNATIVE_NAME);
        extension.map_or(Vec::new(), |content| {
            parse::addresses(content).unwrap_or_default()
        })
    }

    /// The content of the extension with this object identifier (dotted decimals).
    pub fn extension(&self, identifier: &str) -> Option<&[u8]> {
        self.find_extension(&ObjectIdentifier::new(identifier).ok()?)
    }

    pub(crate) fn find_extension(&self, identifier: &ObjectIdentifier) -> Option<&[u8]> {
        let mut extensions = self.extensions();
        let found = extensions.find(|extension| is_identifier(extension.identifier, identifier));
        found.map(|extension| extension.content)
    }

    /// All extensions, in order.
    pub(crate) fn extensions(&self) -> impl Iterator<Item = ExtensionRef<'_>> {
        let der = &self.0.der;
        self.0.extensions.iter().map(|extension| ExtensionRef {
            identifier: &der[extension.identifier.clone()],
            is_critical: extension.is_critical,
            content: &der[extension.content.clone()],
        })
    }

    /// Whether the key identifiers permit that `issuer` has signed it. Names and signature are not checked.
    pub(crate) fn may_be_signed_with_key_of(&self, issuer: &Self) -> bool {
        match (self.issuer_key_identifier(), issuer.key_identifier()) {
            (Some(one), Some(other)) => one == other,
            _ => true,
        }
    }

    /// RFC 5280 4.2.1.1; `None` if it is missing or malformed.
    fn issuer_key_identifier(&self) -> Option<&[u8]> {
        let extension = self.find_extension(&AUTHORITY_KEY_IDENTIFIER)?;
        let mut fields = Elements::only(extension, Tag::Sequence).ok()?.children();
        Some(fields.optional_context(0).ok()??.content())
    }

    /// RFC 5280 4.2.1.2; `None` if it is missing or malformed.
    fn key_identifier(&self) -> Option<&[u8]> {
        let extension = self.find_extension(&SUBJECT_KEY_IDENTIFIER)?;
        let identifier = Elements::only(extension, Tag::OctetString).ok()?;
        Some(identifier.content())
    }

    /// The signed bytes (TBSCertificate).
    pub(crate) fn signed(&self) -> &[u8] {
        &self.0.der[self.0.signed.clone()]
    }

    /// The DER `AlgorithmIdentifier` of the signature.
    pub(crate) fn signature_algorithm(&self) -> &[u8] {
        &self.0.der[self.0.signature_algorithm.clone()]
    }

    pub(crate) fn signature(&self) -> &[u8] {
        &self.0.der[self.0.signature.clone()]
    }

    /// Whether it may issue certificates: basicConstraints with `cA` (RFC 5280 4.2.1.9).
    pub(crate) fn is_authority(&self) -> bool {
        let constraints = self.basic_constraints();
        constraints.is_some_and(|constraints| constraints.is_authority)
    }

    pub(crate) fn basic_constraints(&self) -> Option<BasicConstraints> {
        self.0.basic_constraints
    }

    /// Whether an authority limits the names that it certifies (RFC 5280 4.2.1.10).
    pub(crate) fn has_name_constraints(&self) -> bool {
        self.find_extension(&NAME_CONSTRAINTS).is_some()
    }

    /// `None` permits all uses.
    pub(crate) fn key_usage(&self) -> Option<KeyUsage> {
        self.0.key_usage
    }
}

/// One extension.
#[derive(Clone, Copy)]
pub(crate) struct ExtensionRef<'a> {
    /// The content of its OBJECT IDENTIFIER.
    pub(crate) identifier: &'a [u8],
    pub(crate) is_critical: bool,
    pub(crate) content: &'a [u8],
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Certificate({})", self.subject())
    }
}

impl PartialEq for Parts {
    fn eq(&self, other: &Self) -> bool {
        self.der == other.der
    }
}

impl Eq for Parts {}
