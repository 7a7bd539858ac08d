//! Parses the DER encoding of certificates (RFC 5280 4.1).

use std::net::IpAddr;
use std::time::SystemTime;

use der::Tag;
use der::asn1::ObjectIdentifier;
use x509_cert::time::Time;

use super::{
    BASIC_CONSTRAINTS, BasicConstraints, Extension, KEY_USAGE, KeyUsage, Parts,
    SUBJECT_ALTERNATIVE_NAME, Validity,
};
use crate::asn1::{Element, Elements, is_identifier};
use crate::name::Name;
use crate::proxy::{ProxyFamily, ProxyInfo};

const MAX_EXTENSIONS: usize = 64;

impl Parts {
    pub(super) fn parse(der: &[u8]) -> der::Result<Self> {
        let mut outer = Elements::only(der, Tag::Sequence)?.children();
        let signed = outer.expect(Tag::Sequence)?;
        let signature_algorithm = outer.expect(Tag::Sequence)?;
        let signature = outer.expect(Tag::BitString)?.bit_string()?;
        outer.finish()?;

        let mut fields = signed.children();
        // The version is ignored: roots of version 1 are trusted by their bytes, and extensions are evaluated in any version.
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
        // RFC 5280 4.2: no extension occurs twice.
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

/// The `iPAddress`es of a `GeneralNames`; those of another length are no addresses of hosts.
pub(super) fn addresses(content: &[u8]) -> der::Result<Vec<IpAddr>> {
    let mut addresses = Vec::new();
    let mut elements = Elements::only(content, Tag::Sequence)?.children();
    while !elements.is_empty() {
        let element = elements.next()?;
        if element.is_context(7) {
            let v4 = <[u8; 4]>::try_from(element.content()).map(IpAddr::from);
            let v6 = <[u8; 16]>::try_from(element.content()).map(IpAddr::from);
            addresses.extend(v4.or(v6));
        }
    }
    Ok(addresses)
}
