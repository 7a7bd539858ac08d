//! Certificate revocation lists (RFC 5280 5).

use std::ops::Range;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use der::Tag;
use der::asn1::ObjectIdentifier;

use crate::asn1::{Element, Elements, is_identifier};
use crate::certificate::{CertificateError, time};
use crate::name::Name;
use crate::signature;

const DELTA_INDICATOR: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.27");
const ISSUING_DISTRIBUTION_POINT: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.28");

/// The largest list that is read.
const MAX_BYTES: usize = 128 << 20;

/// Which certificates an authority has revoked.
#[derive(Debug)]
pub struct RevocationList {
    der: Vec<u8>,
    issuer: Name,
    this_update: SystemTime,
    next_update: Option<SystemTime>,
    signed: Range<usize>,
    signature_algorithm: Range<usize>,
    signature: Range<usize>,
    /// Where the serial numbers are, in their order.
    revoked: Vec<Range<u32>>,
    /// The key that the signature was verified with last, and what came of it: lists are long, and each
    /// login needs the answer.
    verified: Mutex<Option<(Vec<u8>, bool)>>,
}

impl RevocationList {
    /// Reads one DER list; nothing may follow.
    pub(super) fn from_der(der: Vec<u8>) -> Result<Self, CertificateError> {
        const WHAT: &str = "the revocation list";
        let malformed = CertificateError::malformed(WHAT);
        if der.len() > MAX_BYTES {
            return Err(malformed(format!("it has more than {MAX_BYTES} bytes")));
        }
        let parts = Parts::parse(&der).map_err(CertificateError::malformed(WHAT))?;
        if let Some(kind) = parts.unusable {
            return Err(malformed(format!(
                "lists that are {kind} are not supported"
            )));
        }
        Ok(Self {
            issuer: parts.issuer,
            this_update: parts.this_update,
            next_update: parts.next_update,
            signed: parts.signed,
            signature_algorithm: parts.signature_algorithm,
            signature: parts.signature,
            revoked: parts.revoked,
            verified: Mutex::new(None),
            der,
        })
    }

    /// Whose list it is.
    pub fn issuer(&self) -> &Name {
        &self.issuer
    }

    /// When it was made.
    pub fn this_update(&self) -> SystemTime {
        self.this_update
    }

    /// Until when it can be relied on; `None` is for ever.
    pub fn next_update(&self) -> Option<SystemTime> {
        self.next_update
    }

    /// How many certificates are in it.
    pub fn revoked_count(&self) -> usize {
        self.revoked.len()
    }

    pub(super) fn der(&self) -> &[u8] {
        &self.der
    }

    /// Whether the certificate with this serial number is in it.
    pub(super) fn has_revoked(&self, serial: &[u8]) -> bool {
        let serial = significant(serial);
        self.revoked
            .binary_search_by(|range| bytes(&self.der, range).cmp(serial))
            .is_ok()
    }

    /// Whether the key has signed it.
    pub(super) fn is_signed_with(&self, public_key_info: &[u8]) -> bool {
        let mut verified = self.verified.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((key, outcome)) = &*verified
            && key == public_key_info
        {
            return *outcome;
        }
        let outcome = signature::verify(
            public_key_info,
            &self.der[self.signature_algorithm.clone()],
            &self.der[self.signed.clone()],
            &self.der[self.signature.clone()],
        );
        *verified = Some((public_key_info.to_vec(), outcome.is_ok()));
        outcome.is_ok()
    }
}

struct Parts {
    issuer: Name,
    this_update: SystemTime,
    next_update: Option<SystemTime>,
    signed: Range<usize>,
    signature_algorithm: Range<usize>,
    signature: Range<usize>,
    revoked: Vec<Range<u32>>,
    unusable: Option<&'static str>,
}

impl Parts {
    // RFC 5280 5.1
    fn parse(der: &[u8]) -> der::Result<Self> {
        let mut outer = Elements::only(der, Tag::Sequence)?.children();
        let signed = outer.expect(Tag::Sequence)?;
        let signature_algorithm = outer.expect(Tag::Sequence)?;
        let signature = outer.expect(Tag::BitString)?.bit_string()?;
        outer.finish()?;

        let mut fields = signed.children();
        let _version = fields.optional(Tag::Integer)?;
        let inner_algorithm = fields.expect(Tag::Sequence)?;
        if inner_algorithm.encoding() != signature_algorithm.encoding() {
            return Err(Tag::Sequence.value_error().into());
        }
        let issuer = Name::parse(fields.expect(Tag::Sequence)?.encoding())?;
        let this_update = time(&fields.next()?)?;
        let mut next_update = None;
        for tag in [Tag::UtcTime, Tag::GeneralizedTime] {
            if let Some(element) = fields.optional(tag)? {
                next_update = Some(time(&element)?);
                break;
            }
        }
        let revoked = match fields.optional(Tag::Sequence)? {
            Some(entries) => serials(der, &entries)?,
            None => Vec::new(),
        };
        let unusable = match fields.optional_context(0)? {
            Some(tagged) => unusable(&tagged.children().expect(Tag::Sequence)?)?,
            None => None,
        };
        fields.finish()?;
        Ok(Self {
            issuer,
            this_update,
            next_update,
            signed: signed.range(),
            signature_algorithm: signature_algorithm.range(),
            signature,
            revoked,
            unusable,
        })
    }
}

/// Where the serial numbers of the entries are, in their order.
fn serials(der: &[u8], entries: &Element<'_>) -> der::Result<Vec<Range<u32>>> {
    let mut found = Vec::new();
    let mut elements = entries.children();
    while !elements.is_empty() {
        let entry = elements.expect(Tag::Sequence)?;
        let serial = entry.children().expect(Tag::Integer)?;
        let end = serial.content_range().end;
        let start = end - significant(serial.content()).len();
        found.push(u32::try_from(start)?..u32::try_from(end)?);
    }
    found.sort_unstable_by(|one, other| bytes(der, one).cmp(bytes(der, other)));
    Ok(found)
}

/// What makes a list one that does not say of every certificate whether it is revoked.
fn unusable(extensions: &Element<'_>) -> der::Result<Option<&'static str>> {
    let mut elements = extensions.children();
    while !elements.is_empty() {
        let mut fields = elements.expect(Tag::Sequence)?.children();
        let identifier = fields.expect(Tag::ObjectIdentifier)?.content();
        let _critical = fields.optional(Tag::Boolean)?;
        let content = fields.expect(Tag::OctetString)?.content();
        if is_identifier(identifier, &DELTA_INDICATOR) {
            return Ok(Some("additions to others (delta)"));
        }
        if is_identifier(identifier, &ISSUING_DISTRIBUTION_POINT) && is_indirect(content)? {
            return Ok(Some("about certificates of other authorities (indirect)"));
        }
    }
    Ok(None)
}

/// RFC 5280 5.2.5: whether `indirectCRL`, `[4]`, is true.
fn is_indirect(distribution_point: &[u8]) -> der::Result<bool> {
    let mut fields = Elements::only(distribution_point, Tag::Sequence)?.children();
    while !fields.is_empty() {
        let field = fields.next()?;
        if field.is_context(4) {
            return Ok(field.content() != [0]);
        }
    }
    Ok(false)
}

/// A number without the zeros before it, which not every authority writes in the same way.
fn significant(number: &[u8]) -> &[u8] {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    &number[zeros..]
}

fn bytes<'a>(der: &'a [u8], range: &Range<u32>) -> &'a [u8] {
    &der[range.start as usize..range.end as usize]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rustls_pki_types::CertificateRevocationListDer;
    use rustls_pki_types::pem::PemObject;

    use super::*;
    use crate::test_pki::{Pki, Request};

    fn read(pem: &[u8]) -> RevocationList {
        let der = CertificateRevocationListDer::from_pem_slice(pem).expect("a list");
        RevocationList::from_der(der.to_vec()).expect("sound")
    }

    #[test]
    fn a_list_has_what_openssl_put_into_it() {
        let pki = Pki::new();
        let root = pki.root("/CN=Root");
        let issued: Vec<_> = (0..4)
            .map(|number| pki.issue(&root, &format!("/CN={number}"), ""))
            .collect();
        let list = read(&pki.revocation_list(&root, &[&issued[0], &issued[2]]));
        let revoked: Vec<_> = issued
            .iter()
            .map(|issued| list.has_revoked(issued.certificate.serial()))
            .collect();
        assert_eq!(revoked, [true, false, true, false]);
        assert_eq!(list.revoked_count(), 2);
        assert_eq!(list.issuer(), root.certificate.subject());
        let next_update = list.next_update().expect("there is one");
        let life = next_update.duration_since(list.this_update());
        assert_eq!(life.expect("in order").as_secs(), 10 * 86400);
        assert!(list.is_signed_with(root.certificate.public_key_info()));
        assert!(!list.is_signed_with(issued[0].certificate.public_key_info()));
        assert!(list.is_signed_with(root.certificate.public_key_info()));
    }

    #[test]
    fn serial_numbers_are_found_in_whatever_order_they_stand() {
        // SEQUENCE { SEQUENCE { INTEGER 5 }, SEQUENCE { INTEGER 256 }, SEQUENCE { INTEGER 2 } }
        let der = [
            0x30, 16, 0x30, 3, 2, 1, 5, 0x30, 4, 2, 2, 1, 0, 0x30, 3, 2, 1, 2,
        ];
        let entries = Elements::only(&der, Tag::Sequence).expect("sound");
        let found = serials(&der, &entries).expect("sound");
        let found: Vec<_> = found.iter().map(|range| bytes(&der, range)).collect();
        assert_eq!(found, [&[1, 0][..], &[2], &[5]]);
    }

    #[test]
    fn zeros_before_a_serial_number_do_not_count() {
        assert_eq!(significant(&[0, 0x80]), [0x80]);
        assert_eq!(significant(&[0]), []);
    }

    #[test]
    fn cut_and_changed_lists_do_not_panic() {
        let pki = Pki::new();
        let root = pki.make(&Request::default(), None);
        let list = read(&pki.revocation_list(&root, &[&root]));
        for length in 0..list.der.len() {
            assert!(RevocationList::from_der(list.der[..length].to_vec()).is_err());
        }
        let key = root.certificate.public_key_info();
        proptest!(|(at in 0..list.der.len(), value in 1..=u8::MAX)| {
            let mut changed = list.der.clone();
            changed[at] ^= value;
            if let Ok(changed) = RevocationList::from_der(changed) {
                prop_assert!(!changed.is_signed_with(key));
            }
        });
    }
}
