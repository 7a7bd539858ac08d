//! Certificate revocation lists (RFC 5280 5).
//!
//! A list is parsed strictly, because an unsupported part could revoke a certificate. Delta and indirect lists, lists for
//! some reasons only, and lists with unknown critical extensions are errors.

mod scope;

use std::ops::Range;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use der::asn1::ObjectIdentifier;
use der::{ErrorKind, Tag};

use crate::asn1::{Element, Elements, is_identifier};
use crate::certificate::{Certificate, time};
use crate::name::{Name, dotted};
use crate::signature;
use scope::Scope;

const AUTHORITY_KEY_IDENTIFIER: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.35");
const CRL_NUMBER: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.20");
const DELTA_INDICATOR: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.27");
const ISSUING_DISTRIBUTION_POINT: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.28");

const REASON_CODE: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.21");
const HOLD_INSTRUCTION: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.23");
const INVALIDITY_DATE: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.24");
const CERTIFICATE_ISSUER: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.29");

/// The largest list that is parsed.
const MAX_BYTES: usize = 128 << 20;

/// RFC 5280 5.1.2.1: version 2 is encoded as 1.
const VERSION_2: &[u8] = &[1];

/// A certificate revocation list.
#[derive(Debug)]
pub struct RevocationList {
    der: Vec<u8>,
    parts: Parts,
    /// The key of the last verification of the signature, and the result. Each login needs it, and hashing a long list is
    /// slow.
    verified: Mutex<Option<(Vec<u8>, bool)>>,
}

/// Why a list is unusable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ListError {
    /// The issuer, if it could be parsed.
    pub(super) issuer: Option<Name>,
    /// The cause.
    pub(super) reason: String,
}

impl RevocationList {
    /// Parses a DER list, without trailing data.
    pub(super) fn from_der(der: Vec<u8>) -> Result<Self, ListError> {
        let malformed = |reason: String| ListError {
            issuer: None,
            reason: format!("the revocation list is malformed: {reason}"),
        };
        if der.len() > MAX_BYTES {
            return Err(malformed(format!("it has more than {MAX_BYTES} bytes")));
        }
        let (parts, unusable) = Parts::parse(&der).map_err(|error| malformed(error.to_string()))?;
        if let Some(kind) = unusable {
            return Err(ListError {
                reason: format!("the revocation list {kind}, which is not supported"),
                issuer: Some(parts.issuer),
            });
        }
        Ok(Self {
            parts,
            verified: Mutex::new(None),
            der,
        })
    }

    /// The issuer.
    pub fn issuer(&self) -> &Name {
        &self.parts.issuer
    }

    /// The time of issue.
    pub fn this_update(&self) -> SystemTime {
        self.parts.this_update
    }

    /// The end of validity; `None` is unlimited.
    pub fn next_update(&self) -> Option<SystemTime> {
        self.parts.next_update
    }

    /// The number of revoked certificates.
    pub fn revoked_count(&self) -> usize {
        self.parts.revoked.len()
    }

    pub(super) fn der(&self) -> &[u8] {
        &self.der
    }

    /// Whether this certificate of the issuer is in the scope of the list.
    pub(super) fn covers(&self, certificate: &Certificate) -> bool {
        self.parts.scope.covers(certificate)
    }

    /// Whether it is a later issue of the list `other`: same issuer and scope.
    pub(super) fn replaces(&self, other: &Self) -> bool {
        self.is_issue_of(other) && self.this_update() > other.this_update()
    }

    /// Whether both are issues of the same list: same issuer and scope.
    pub(super) fn is_issue_of(&self, other: &Self) -> bool {
        self.issuer().matches(other.issuer()) && self.parts.scope == other.parts.scope
    }

    /// Whether the certificate with this serial number is revoked.
    pub(super) fn has_revoked(&self, serial: &[u8]) -> bool {
        let serial = significant(serial);
        self.parts
            .revoked
            .binary_search_by(|range| bytes(&self.der, range).cmp(serial))
            .is_ok()
    }

    /// Whether this authority may sign lists and has signed this one.
    pub(super) fn is_signed_by(&self, authority: &Certificate) -> bool {
        // RFC 5280 6.3.3 (f)
        let usage = authority.key_usage();
        usage.is_none_or(|usage| usage.may_sign_lists)
            && self.is_signed_with(authority.public_key_info())
    }

    fn is_signed_with(&self, public_key_info: &[u8]) -> bool {
        let mut verified = self.verified.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((key, outcome)) = &*verified
            && key == public_key_info
        {
            return *outcome;
        }
        let outcome = signature::verify(
            public_key_info,
            &self.der[self.parts.signature_algorithm.clone()],
            &self.der[self.parts.signed.clone()],
            &self.der[self.parts.signature.clone()],
        );
        *verified = Some((public_key_info.to_vec(), outcome.is_ok()));
        outcome.is_ok()
    }
}

/// The parsed fields of a list, and positions in its encoding.
#[derive(Debug)]
struct Parts {
    issuer: Name,
    this_update: SystemTime,
    next_update: Option<SystemTime>,
    scope: Scope,
    signed: Range<usize>,
    signature_algorithm: Range<usize>,
    signature: Range<usize>,
    /// The positions of the serial numbers, sorted by number.
    revoked: Vec<Range<u32>>,
}

/// Why a well-formed list is unusable: a phrase to follow "the revocation list".
type Unusable = String;

impl Parts {
    // RFC 5280 5.1
    fn parse(der: &[u8]) -> der::Result<(Self, Option<Unusable>)> {
        let mut outer = Elements::only(der, Tag::Sequence)?.children();
        let signed = outer.expect(Tag::Sequence)?;
        let signature_algorithm = outer.expect(Tag::Sequence)?;
        let signature = outer.expect(Tag::BitString)?.bit_string()?;
        outer.finish()?;

        let mut fields = signed.children();
        let version = fields.optional(Tag::Integer)?;
        if version.is_some_and(|version| version.content() != VERSION_2) {
            return Err(Tag::Integer.value_error().into());
        }
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
        let mut unusable = None;
        let revoked = match fields.optional(Tag::Sequence)? {
            Some(entries) => serials(der, &entries, &mut unusable)?,
            None => Vec::new(),
        };
        let mut scope = Scope::default();
        if let Some(tagged) = fields.optional_context(0)? {
            let mut inner = tagged.children();
            let extensions = inner.expect(Tag::Sequence)?;
            inner.finish()?;
            read_extensions(&extensions, &mut scope, &mut unusable)?;
        }
        fields.finish()?;
        let parts = Self {
            issuer,
            this_update,
            next_update,
            scope,
            signed: signed.range(),
            signature_algorithm: signature_algorithm.range(),
            signature,
            revoked,
        };
        Ok((parts, unusable))
    }
}

/// The positions of the serial numbers of the entries, sorted by number.
fn serials(
    der: &[u8],
    entries: &Element<'_>,
    unusable: &mut Option<Unusable>,
) -> der::Result<Vec<Range<u32>>> {
    let mut found = Vec::new();
    let mut elements = entries.children();
    while !elements.is_empty() {
        let mut fields = elements.expect(Tag::Sequence)?.children();
        let serial = fields.expect(Tag::Integer)?;
        let date = fields.next()?.tag();
        if !matches!(date, Tag::UtcTime | Tag::GeneralizedTime) {
            return Err(date.value_error().into());
        }
        if let Some(extensions) = fields.optional(Tag::Sequence)? {
            read_entry_extensions(&extensions, unusable)?;
        }
        fields.finish()?;
        let end = serial.content_range().end;
        let start = end - significant(serial.content()).len();
        found.push(u32::try_from(start)?..u32::try_from(end)?);
    }
    found.sort_unstable_by(|one, other| bytes(der, one).cmp(bytes(der, other)));
    Ok(found)
}

/// Evaluates the extensions of a list (RFC 5280 5.2).
fn read_extensions(
    extensions: &Element<'_>,
    scope: &mut Scope,
    unusable: &mut Option<Unusable>,
) -> der::Result<()> {
    let mut has_scope = false;
    for_each_extension(extensions, |identifier, is_critical, content| {
        if is_identifier(identifier, &DELTA_INDICATOR) {
            unusable.get_or_insert_with(|| "is an addition to another one (delta)".to_owned());
        } else if is_identifier(identifier, &ISSUING_DISTRIBUTION_POINT) {
            // RFC 5280 4.2: no extension occurs twice.
            if has_scope {
                return Err(Tag::Sequence.value_error().into());
            }
            has_scope = true;
            match Scope::parse(content)? {
                Ok(read) => *scope = read,
                Err(kind) => {
                    unusable.get_or_insert_with(|| kind.to_owned());
                }
            }
        } else if is_critical
            && ![AUTHORITY_KEY_IDENTIFIER, CRL_NUMBER]
                .iter()
                .any(|known| is_identifier(identifier, known))
        {
            unusable.get_or_insert_with(|| unknown(identifier));
        }
        Ok(())
    })
}

/// RFC 5280 5.3: a list with an unknown critical entry extension must not be used.
fn read_entry_extensions(
    extensions: &Element<'_>,
    unusable: &mut Option<Unusable>,
) -> der::Result<()> {
    for_each_extension(extensions, |identifier, is_critical, _| {
        if is_identifier(identifier, &CERTIFICATE_ISSUER) {
            unusable.get_or_insert_with(|| {
                "is about certificates of other authorities (indirect)".to_owned()
            });
        } else if is_critical
            && ![REASON_CODE, HOLD_INSTRUCTION, INVALIDITY_DATE]
                .iter()
                .any(|known| is_identifier(identifier, known))
        {
            unusable.get_or_insert_with(|| unknown(identifier));
        }
        Ok(())
    })
}

fn for_each_extension(
    extensions: &Element<'_>,
    mut visit: impl FnMut(&[u8], bool, &[u8]) -> der::Result<()>,
) -> der::Result<()> {
    let mut elements = extensions.children();
    while !elements.is_empty() {
        let mut fields = elements.expect(Tag::Sequence)?.children();
        let identifier = fields.expect(Tag::ObjectIdentifier)?.content();
        let is_critical = match fields.optional(Tag::Boolean)? {
            Some(flag) => boolean(&flag)?,
            None => false,
        };
        let content = fields.expect(Tag::OctetString)?.content();
        fields.finish()?;
        visit(identifier, is_critical, content)?;
    }
    Ok(())
}

fn unknown(identifier: &[u8]) -> Unusable {
    let identifier = dotted(identifier).unwrap_or_else(|_| "?".to_owned());
    format!("has the critical extension {identifier}")
}

/// The value of a BOOLEAN, which may have an implicit tag.
fn boolean(element: &Element<'_>) -> der::Result<bool> {
    match element.content() {
        [value] => Ok(*value != 0),
        _ => Err(ErrorKind::Length { tag: element.tag() }.into()),
    }
}

/// A number without leading zero bytes, whose count differs between authorities.
fn significant(number: &[u8]) -> &[u8] {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    &number[zeros..]
}

fn bytes<'a>(der: &'a [u8], range: &Range<u32>) -> &'a [u8] {
    &der[range.start as usize..range.end as usize]
}

#[cfg(test)]
mod tests;
