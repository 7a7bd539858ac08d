//! X.509 certificates, parsed once.
//!
//! The reader is as lenient as the field needs: serial numbers may be long or negative, roots may be of
//! version 1, names may hold any kind of string. What a certificate means is read strictly.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::SystemTime;

use der::Tag;
use der::asn1::ObjectIdentifier;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use x509_cert::time::Time;

use crate::asn1::{Element, Elements, is_identifier};
use crate::name::Name;
use crate::proxy::{ProxyFamily, ProxyInfo};

pub use crate::malformed::CertificateError;

/// The largest certificate that is read. With the attributes of several virtual organizations they have
/// some ten thousand bytes.
const MAX_BYTES: usize = 256 * 1024;
const MAX_EXTENSIONS: usize = 64;

const SUBJECT_KEY_IDENTIFIER: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.14");
pub(crate) const KEY_USAGE: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.15");
pub(crate) const SUBJECT_ALTERNATIVE_NAME: ObjectIdentifier =
    ObjectIdentifier::new_unwrap("2.5.29.17");
pub(crate) const BASIC_CONSTRAINTS: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.19");
const AUTHORITY_KEY_IDENTIFIER: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.35");

/// A certificate whose structure is sound; nothing is said of its signature. A clone is cheap.
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
    /// How many authorities may follow below it.
    pub(crate) path_length: Option<u32>,
}

/// What a key may be used for (RFC 5280 4.2.1.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyUsage {
    pub(crate) may_sign: bool,
    pub(crate) may_sign_certificates: bool,
    pub(crate) may_sign_lists: bool,
}

/// Where an extension is.
struct Extension {
    identifier: Range<usize>,
    is_critical: bool,
    content: Range<usize>,
}

/// From when to when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// Not valid before.
    pub not_before: SystemTime,
    /// Not valid after.
    pub not_after: SystemTime,
}

impl Certificate {
    /// Reads one DER certificate; nothing may follow.
    pub fn from_der(der: &[u8]) -> Result<Self, CertificateError> {
        let malformed = CertificateError::malformed("the certificate");
        if der.len() > MAX_BYTES {
            return Err(malformed(format!("it has more than {MAX_BYTES} bytes")));
        }
        let parts = Parts::parse(der).map_err(CertificateError::malformed("the certificate"))?;
        Ok(Self(Arc::new(parts)))
    }

    /// The certificates of a PEM text, in order; other PEM sections and text between are skipped.
    pub fn all_from_pem(pem: &[u8]) -> Result<Vec<Self>, CertificateError> {
        CertificateDer::pem_slice_iter(pem)
            .map(|section| {
                let der = section.map_err(CertificateError::malformed("the PEM text"))?;
                Self::from_der(&der)
            })
            .collect()
    }

    /// The encoding, byte for byte as it was read.
    pub fn der(&self) -> &[u8] {
        &self.0.der
    }

    /// Whose it is.
    pub fn subject(&self) -> &Name {
        &self.0.subject
    }

    /// Who signed it.
    pub fn issuer(&self) -> &Name {
        &self.0.issuer
    }

    /// The value bytes of the serial number.
    pub fn serial(&self) -> &[u8] {
        &self.0.der[self.0.serial.clone()]
    }

    /// When it is valid.
    pub fn validity(&self) -> Validity {
        self.0.validity
    }

    /// The DER `SubjectPublicKeyInfo`.
    pub fn public_key_info(&self) -> &[u8] {
        &self.0.der[self.0.public_key_info.clone()]
    }

    /// What kind of proxy it is, if it is one.
    pub fn proxy(&self) -> Option<&ProxyInfo> {
        self.0.proxy.as_ref()
    }

    /// Whether it names itself as its issuer.
    pub fn is_self_issued(&self) -> bool {
        self.subject().matches(self.issuer())
    }

    /// The `dNSName`s among its alternative names.
    pub fn dns_names(&self) -> &[String] {
        &self.0.dns_names
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

    /// Whether the key identifiers do not speak against `issuer`; names and signatures are another matter.
    pub(crate) fn may_be_signed_with_key_of(&self, issuer: &Self) -> bool {
        match (self.issuer_key_identifier(), issuer.key_identifier()) {
            (Some(one), Some(other)) => one == other,
            _ => true,
        }
    }

    /// RFC 5280 4.2.1.1; `None` if there is none that can be read.
    fn issuer_key_identifier(&self) -> Option<&[u8]> {
        let extension = self.find_extension(&AUTHORITY_KEY_IDENTIFIER)?;
        let mut fields = Elements::only(extension, Tag::Sequence).ok()?.children();
        Some(fields.optional_context(0).ok()??.content())
    }

    /// RFC 5280 4.2.1.2; `None` if there is none that can be read.
    fn key_identifier(&self) -> Option<&[u8]> {
        let extension = self.find_extension(&SUBJECT_KEY_IDENTIFIER)?;
        let identifier = Elements::only(extension, Tag::OctetString).ok()?;
        Some(identifier.content())
    }

    /// What the issuer has signed.
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

    /// `None` is for everything.
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

impl Parts {
    // RFC 5280 4.1
    fn parse(der: &[u8]) -> der::Result<Self> {
        let mut outer = Elements::only(der, Tag::Sequence)?.children();
        let signed = outer.expect(Tag::Sequence)?;
        let signature_algorithm = outer.expect(Tag::Sequence)?;
        let signature = outer.expect(Tag::BitString)?.bit_string()?;
        outer.finish()?;

        let mut fields = signed.children();
        // Whatever the version: roots of version 1 are trusted by their bytes, and an extension counts
        // wherever it is.
        let _version = fields.optional_context(0)?;
        let serial = fields.expect(Tag::Integer)?;
        let inner_algorithm = fields.expect(Tag::Sequence)?;
        // RFC 5280 4.1.1.2
        if inner_algorithm.encoding() != signature_algorithm.encoding() {
            return Err(Tag::Sequence.value_error().into());
        }
        let issuer = Name::parse(fields.expect(Tag::Sequence)?.encoding())?;
        let validity = validity(&fields.expect(Tag::Sequence)?)?;
        let subject = Name::parse(fields.expect(Tag::Sequence)?.encoding())?;
        let public_key_info = fields.expect(Tag::Sequence)?.range();
        // The unique identifiers are not used.
        let _ = fields.optional_context(1)?;
        let _ = fields.optional_context(2)?;
        let extensions = match fields.optional_context(3)? {
            Some(tagged) => extensions(tagged.children().expect(Tag::Sequence)?)?,
            None => Vec::new(),
        };
        fields.finish()?;

        let find = |identifier: &ObjectIdentifier| {
            let mut extensions = extensions.iter();
            extensions
                .find(|extension| is_identifier(&der[extension.identifier.clone()], identifier))
                .map(|extension| &der[extension.content.clone()])
        };
        let mut proxy = None;
        for family in [ProxyFamily::Rfc3820, ProxyFamily::Gsi3] {
            if let Some(content) = find(&family.extension_identifier()) {
                let info = ProxyInfo::from_extension(family, content)?;
                if proxy.replace(info).is_some() {
                    return Err(Tag::Sequence.value_error().into());
                }
            }
        }
        let dns_names = find(&SUBJECT_ALTERNATIVE_NAME).map_or(Ok(Vec::new()), dns_names)?;
        let basic_constraints = find(&BASIC_CONSTRAINTS)
            .map(basic_constraints)
            .transpose()?;
        let key_usage = find(&KEY_USAGE).map(key_usage).transpose()?;
        Ok(Self {
            signed: signed.range(),
            subject,
            issuer,
            serial: serial.content_range(),
            validity,
            public_key_info,
            signature_algorithm: signature_algorithm.range(),
            signature,
            proxy,
            basic_constraints,
            key_usage,
            dns_names,
            extensions,
            der: der.to_vec(),
        })
    }
}

fn validity(element: &Element<'_>) -> der::Result<Validity> {
    let mut times = element.children();
    let not_before = time(&times.next()?)?;
    let not_after = time(&times.next()?)?;
    times.finish()?;
    Ok(Validity {
        not_before,
        not_after,
    })
}

/// A `Time`, in certificates and revocation lists.
pub(crate) fn time(element: &Element<'_>) -> der::Result<SystemTime> {
    Ok(element.decode::<Time>()?.to_system_time())
}

fn extensions(sequence: Element<'_>) -> der::Result<Vec<Extension>> {
    let mut found: Vec<Extension> = Vec::new();
    let mut identifiers = Vec::new();
    let mut elements = sequence.children();
    while !elements.is_empty() {
        let mut fields = elements.expect(Tag::Sequence)?.children();
        let identifier = fields.expect(Tag::ObjectIdentifier)?;
        let critical = fields.optional(Tag::Boolean)?;
        let content = fields.expect(Tag::OctetString)?;
        fields.finish()?;
        // RFC 5280 4.2: no extension is there twice.
        if identifiers.contains(&identifier.content()) || found.len() == MAX_EXTENSIONS {
            return Err(Tag::Sequence.value_error().into());
        }
        identifiers.push(identifier.content());
        found.push(Extension {
            identifier: identifier.content_range(),
            is_critical: critical.is_some_and(|flag| flag.content() != [0]),
            content: content.content_range(),
        });
    }
    Ok(found)
}

fn basic_constraints(content: &[u8]) -> der::Result<BasicConstraints> {
    let mut fields = Elements::only(content, Tag::Sequence)?.children();
    let flag = fields.optional(Tag::Boolean)?;
    let path_length = fields.optional(Tag::Integer)?;
    fields.finish()?;
    Ok(BasicConstraints {
        is_authority: flag.is_some_and(|flag| flag.content() != [0]),
        path_length: path_length
            .map(|number| number.small_number())
            .transpose()?,
    })
}

fn key_usage(content: &[u8]) -> der::Result<KeyUsage> {
    // The first byte counts unused bits at the end; the first bit is the highest of the second byte.
    let bits = Elements::only(content, Tag::BitString)?.content();
    let first = bits.get(1).copied().unwrap_or(0);
    Ok(KeyUsage {
        may_sign: first & 0x80 != 0,
        may_sign_certificates: first & 0x04 != 0,
        may_sign_lists: first & 0x02 != 0,
    })
}

/// The `dNSName`s of a `GeneralNames`.
fn dns_names(content: &[u8]) -> der::Result<Vec<String>> {
    let mut names = Vec::new();
    let mut elements = Elements::only(content, Tag::Sequence)?.children();
    while !elements.is_empty() {
        let element = elements.next()?;
        if element.is_context(2) && element.content().is_ascii() {
            names.extend(String::from_utf8(element.content().to_vec()));
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests;
