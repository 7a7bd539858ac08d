//! Parses attribute certificates of VOMS servers (RFC 5755).

use der::Tag;
use der::asn1::{GeneralizedTime, ObjectIdentifier};

use super::Fqan;
use crate::asn1::{Element, Elements, is_identifier};
use crate::certificate::{Certificate, CertificateError, Validity};
use crate::name::Name;

/// The attribute that contains the FQANs.
const FQANS: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.4.1.8005.100.100.4");
/// The extension that contains the certificates of the issuer.
const CERTIFICATES: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.4.1.8005.100.100.10");
const TARGETS: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.55");

const MAX_FQANS: usize = 1000;
const MAX_CERTIFICATES: usize = 16;
const MAX_TARGETS: usize = 100;

/// A well-formed attribute certificate whose signature is not verified yet.
#[derive(Debug)]
pub(super) struct AttributeCertificate<'a> {
    /// The signed bytes.
    pub(super) signed: &'a [u8],
    /// The DER `AlgorithmIdentifier` of the signature.
    pub(super) signature_algorithm: &'a [u8],
    pub(super) signature: &'a [u8],
    /// The issuer of the holder's certificate. Some VOMS servers write the holder's subject instead.
    pub(super) holder_issuer: Name,
    /// The value bytes of the holder's serial number.
    pub(super) holder_serial: &'a [u8],
    pub(super) issuer: Name,
    pub(super) validity: Validity,
    /// The virtual organization, and the host of its server.
    pub(super) vo: String,
    pub(super) host: String,
    pub(super) attributes: Vec<Fqan>,
    /// The issuer's certificate and those above it, if they were sent.
    pub(super) certificates: Vec<Certificate>,
    /// The hosts to which it is restricted, if any.
    pub(super) targets: Option<Vec<String>>,
}

/// Why an attribute certificate is malformed.
#[derive(Debug)]
pub(super) struct Malformed(pub(super) String);

impl From<der::Error> for Malformed {
    fn from(error: der::Error) -> Self {
        Self(error.to_string())
    }
}

impl From<CertificateError> for Malformed {
    fn from(error: CertificateError) -> Self {
        Self(error.to_string())
    }
}

/// The encodings of the attribute certificates in an extension of a proxy, up to `limit` of them.
pub(super) fn split(extension: &[u8], limit: usize) -> Result<Vec<&[u8]>, Malformed> {
    let mut outer = Elements::only(extension, Tag::Sequence)?.children();
    let mut elements = outer.expect(Tag::Sequence)?.children();
    outer.finish()?;
    let mut found = Vec::new();
    while !elements.is_empty() {
        if found.len() == limit {
            return Err(malformed(format!(
                "there are more than {limit} certificates"
            )));
        }
        found.push(elements.expect(Tag::Sequence)?.encoding());
    }
    Ok(found)
}

impl<'a> AttributeCertificate<'a> {
    // RFC 5755 4.1
    pub(super) fn parse(der: &'a [u8]) -> Result<Self, Malformed> {
        let mut outer = Elements::only(der, Tag::Sequence)?.children();
        let signed = outer.expect(Tag::Sequence)?;
        let signature_algorithm = outer.expect(Tag::Sequence)?;
        let signature = outer.expect(Tag::BitString)?.bit_string()?;
        outer.finish()?;

        let mut fields = signed.children();
        // RFC 5755 4.2.1: version 2, which is encoded as 1.
        if fields.expect(Tag::Integer)?.small_number()? != 1 {
            return Err(malformed("it is not of version 2"));
        }
        let (holder_issuer, holder_serial) = holder(&fields.expect(Tag::Sequence)?)?;
        let issuer = issuer(&fields.next()?)?;
        // RFC 5755 4.2.4
        if fields.expect(Tag::Sequence)?.encoding() != signature_algorithm.encoding() {
            return Err(malformed(
                "its two fields for the signature algorithm differ",
            ));
        }
        fields.expect(Tag::Integer)?;
        let validity = validity(&fields.expect(Tag::Sequence)?)?;
        let Memberships {
            vo,
            host,
            attributes,
        } = memberships(&fields.expect(Tag::Sequence)?)?;
        fields.optional(Tag::BitString)?;
        let extensions = match fields.optional(Tag::Sequence)? {
            Some(sequence) => extensions(&sequence)?,
            None => Extensions::default(),
        };
        fields.finish()?;
        Ok(Self {
            signed: signed.encoding(),
            signature_algorithm: signature_algorithm.encoding(),
            signature: &der[signature],
            holder_issuer,
            holder_serial,
            issuer,
            validity,
            vo,
            host,
            attributes,
            certificates: extensions.certificates,
            targets: extensions.targets,
        })
    }
}

/// Issuer and serial number of the certificate that the attributes belong to.
// RFC 5755 4.2.2: of three fields that may name the holder, VOMS uses baseCertificateID.
fn holder<'a>(sequence: &Element<'a>) -> Result<(Name, &'a [u8]), Malformed> {
    let mut fields = sequence.children();
    let certificate = fields
        .optional_context(0)?
        .ok_or_else(|| malformed("the holder is not named by issuer and serial number"))?;
    fields.finish()?;
    let mut fields = certificate.children();
    let issuer = directory_name(&fields.expect(Tag::Sequence)?)?;
    let serial = fields.expect(Tag::Integer)?;
    fields.optional(Tag::BitString)?;
    fields.finish()?;
    Ok((issuer, serial.content()))
}

// RFC 5755 4.2.3: `[0]` with only a name.
fn issuer(element: &Element<'_>) -> Result<Name, Malformed> {
    if !element.is_context(0) {
        return Err(malformed("the issuer is not named"));
    }
    let mut fields = element.children();
    let issuer = directory_name(&fields.expect(Tag::Sequence)?)?;
    fields.finish()?;
    Ok(issuer)
}

/// The only name in a `GeneralNames`, which must be a distinguished name.
fn directory_name(names: &Element<'_>) -> Result<Name, Malformed> {
    let mut names = names.children();
    let name = names.next()?;
    names.finish()?;
    if !name.is_context(4) {
        return Err(malformed(
            "the name of the holder or issuer is not a distinguished name",
        ));
    }
    Ok(Name::from_der(name.content())?)
}

fn validity(sequence: &Element<'_>) -> Result<Validity, Malformed> {
    let mut times = sequence.children();
    let not_before: GeneralizedTime = times.expect(Tag::GeneralizedTime)?.decode()?;
    let not_after: GeneralizedTime = times.expect(Tag::GeneralizedTime)?.decode()?;
    times.finish()?;
    Ok(Validity {
        not_before: not_before.to_system_time(),
        not_after: not_after.to_system_time(),
    })
}

struct Memberships {
    vo: String,
    host: String,
    attributes: Vec<Fqan>,
}

/// The FQANs among the attributes. Generic attributes are in an extension, which is ignored.
fn memberships(sequence: &Element<'_>) -> Result<Memberships, Malformed> {
    let mut attributes = sequence.children();
    let mut found = None;
    while !attributes.is_empty() {
        let mut attribute = attributes.expect(Tag::Sequence)?.children();
        let identifier = attribute.expect(Tag::ObjectIdentifier)?;
        let values = attribute.expect(Tag::Set)?;
        attribute.finish()?;
        if !is_identifier(identifier.content(), &FQANS) {
            continue;
        }
        let mut values = values.children();
        let value = values.expect(Tag::Sequence)?;
        values.finish()?;
        if found.replace(fqans(&value)?).is_some() {
            return Err(malformed("it has two lists of attributes"));
        }
    }
    found.ok_or_else(|| malformed("it has no attributes"))
}

// RFC 5755 4.4: IetfAttrSyntax.
fn fqans(value: &Element<'_>) -> Result<Memberships, Malformed> {
    let mut fields = value.children();
    let authority = fields
        .optional_context(0)?
        .ok_or_else(|| malformed("it does not name a virtual organization"))?;
    let mut values = fields.expect(Tag::Sequence)?.children();
    fields.finish()?;
    let (vo, host) = policy_authority(&authority)?;
    let mut attributes = Vec::new();
    while !values.is_empty() {
        if attributes.len() == MAX_FQANS {
            return Err(malformed(format!(
                "it has more than {MAX_FQANS} attributes"
            )));
        }
        let text = values.expect(Tag::OctetString)?.content();
        let fqan = str::from_utf8(text).ok().and_then(Fqan::new);
        let fqan = fqan.ok_or_else(|| malformed("an attribute is not an FQAN"))?;
        // A server may assert memberships of its own organization only.
        if fqan.organization() != vo {
            return Err(malformed(format!(
                "the attribute {} is not one of {vo}",
                fqan.as_str()
            )));
        }
        attributes.push(fqan);
    }
    if attributes.is_empty() {
        return Err(malformed("its list of attributes is empty"));
    }
    Ok(Memberships {
        vo,
        host,
        attributes,
    })
}

/// Organization and host of `vo://host:port`, which must be the only name.
fn policy_authority(names: &Element<'_>) -> Result<(String, String), Malformed> {
    let mut names = names.children();
    let name = names.next()?;
    names.finish()?;
    let text = if name.is_context(6) {
        str::from_utf8(name.content()).ok()
    } else {
        None
    };
    let parts = text.and_then(|text| {
        let (vo, server) = text.split_once("://")?;
        let host = server.rsplit_once(':').map_or(server, |(host, _)| host);
        let is_plain = |part: &str| !part.is_empty() && !part.contains(char::is_control);
        (is_plain(vo) && is_plain(host)).then(|| (vo.to_owned(), host.to_owned()))
    });
    parts.ok_or_else(|| malformed("the organization is not written as vo://host:port"))
}

#[derive(Default)]
struct Extensions {
    certificates: Vec<Certificate>,
    targets: Option<Vec<String>>,
}

fn extensions(sequence: &Element<'_>) -> Result<Extensions, Malformed> {
    let mut found = Extensions::default();
    let mut elements = sequence.children();
    while !elements.is_empty() {
        let mut fields = elements.expect(Tag::Sequence)?.children();
        let identifier = fields.expect(Tag::ObjectIdentifier)?.content();
        let critical = fields.optional(Tag::Boolean)?;
        let content = fields.expect(Tag::OctetString)?.content();
        fields.finish()?;
        if is_identifier(identifier, &CERTIFICATES) {
            found.certificates = certificates(content)?;
        } else if is_identifier(identifier, &TARGETS) {
            found
                .targets
                .get_or_insert_default()
                .extend(targets(content)?);
        } else if critical.is_some_and(|flag| flag.content() != [0]) {
            return Err(malformed(
                "it has a critical extension that is not known here",
            ));
        }
    }
    Ok(found)
}

fn certificates(content: &[u8]) -> Result<Vec<Certificate>, Malformed> {
    split(content, MAX_CERTIFICATES)?
        .into_iter()
        .map(|der| Ok(Certificate::from_der(der)?))
        .collect()
}

/// The host names among the targets. Targets of other kinds match no host.
// RFC 5755 4.3.2
fn targets(content: &[u8]) -> Result<Vec<String>, Malformed> {
    let mut found = Vec::new();
    let mut lists = Elements::only(content, Tag::Sequence)?.children();
    while !lists.is_empty() {
        let mut targets = lists.expect(Tag::Sequence)?.children();
        while !targets.is_empty() {
            let target = targets.next()?;
            if !target.is_context(0) {
                continue;
            }
            let mut names = target.children();
            let name = names.next()?;
            names.finish()?;
            // VOMS writes host names as URIs.
            if !(name.is_context(6) || name.is_context(2)) {
                continue;
            }
            if found.len() == MAX_TARGETS {
                return Err(malformed(format!("it has more than {MAX_TARGETS} targets")));
            }
            found.extend(String::from_utf8(name.content().to_vec()));
        }
    }
    Ok(found)
}

fn malformed(reason: impl Into<String>) -> Malformed {
    Malformed(reason.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An element with a length of one byte.
    fn element(tag: u8, content: &[u8]) -> Vec<u8> {
        let length = u8::try_from(content.len()).expect("short");
        [&[tag, length], content].concat()
    }

    #[test]
    fn targets_are_the_names_of_hosts() {
        let uri = element(0xa0, &element(0x86, b"a.example.org"));
        let dns = element(0xa0, &element(0x82, b"b.example.org"));
        let directory = element(0xa0, &element(0xa4, &element(0x30, b"")));
        let group = element(0xa1, &element(0x86, b"c.example.org"));
        let list = element(0x30, &[uri, dns, directory, group].concat());
        let all = element(0x30, &list);
        let found = targets(&all).map_err(|Malformed(reason)| reason);
        let hosts = ["a.example.org".to_owned(), "b.example.org".to_owned()];
        assert_eq!(found, Ok(hosts.to_vec()));
        assert!(targets(&all[..all.len() - 1]).is_err());
    }

    #[test]
    fn the_policy_authority_names_organization_and_host() {
        let read = |text: &str| {
            let bytes = element(0xa0, &element(0x86, text.as_bytes()));
            let names = Elements::new(&bytes).next().expect("an element");
            policy_authority(&names).ok()
        };
        let parts = |vo: &str, host: &str| Some((vo.to_owned(), host.to_owned()));
        let expected = parts("atlas", "voms.cern.ch");
        assert_eq!(read("atlas://voms.cern.ch:15001"), expected);
        assert_eq!(read("atlas://voms.cern.ch"), expected);
        for text in [
            "",
            "atlas",
            "://voms:1",
            "atlas://",
            "atlas://:1",
            "a\nb://c:1",
        ] {
            assert_eq!(read(text), None, "{text:?}");
        }
    }

    #[test]
    fn extensions_with_too_many_certificates_are_refused() {
        let two = element(0x30, &element(0x30, &[0x30, 0, 0x30, 0]));
        assert_eq!(
            split(&two, 2).map_err(|Malformed(reason)| reason),
            Ok(vec![&[0x30, 0][..]; 2])
        );
        let Malformed(reason) = split(&two, 1).expect_err("two");
        assert!(reason.contains("more than 1"), "{reason}");
    }
}
