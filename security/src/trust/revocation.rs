//! Certificate revocation lists (RFC 5280 5).
//!
//! A list is read strictly: what we do not understand might say that a certificate was revoked. Delta and
//! indirect lists, lists for some reasons only and lists with unknown critical extensions are errors.

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

/// The largest list that is read.
const MAX_BYTES: usize = 128 << 20;

/// RFC 5280 5.1.2.1: version 2 is written as 1.
const VERSION_2: &[u8] = &[1];

/// Which certificates an authority has revoked.
#[derive(Debug)]
pub struct RevocationList {
    der: Vec<u8>,
    parts: Parts,
    /// The key that the signature was verified with last, and what came of it: lists are long, and each
    /// login needs the answer.
    verified: Mutex<Option<(Vec<u8>, bool)>>,
}

/// Why a list cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ListError {
    /// Whose list it is, if it could be read that far.
    pub(super) issuer: Option<Name>,
    /// What is wrong.
    pub(super) reason: String,
}

impl RevocationList {
    /// Reads one DER list; nothing may follow.
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

    /// Whose list it is.
    pub fn issuer(&self) -> &Name {
        &self.parts.issuer
    }

    /// When it was made.
    pub fn this_update(&self) -> SystemTime {
        self.parts.this_update
    }

    /// Until when it can be relied on; `None` is for ever.
    pub fn next_update(&self) -> Option<SystemTime> {
        self.parts.next_update
    }

    /// How many certificates are in it.
    pub fn revoked_count(&self) -> usize {
        self.parts.revoked.len()
    }

    pub(super) fn der(&self) -> &[u8] {
        &self.der
    }

    /// Whether it is about this certificate of its issuer, revoked or not.
    pub(super) fn covers(&self, certificate: &Certificate) -> bool {
        self.parts.scope.covers(certificate)
    }

    /// Whether it is a later issue of `other`, of the same authority and about the same certificates.
    pub(super) fn replaces(&self, other: &Self) -> bool {
        self.is_issue_of(other) && self.this_update() > other.this_update()
    }

    /// Whether both are issues of one list.
    pub(super) fn is_issue_of(&self, other: &Self) -> bool {
        self.issuer().matches(other.issuer()) && self.parts.scope == other.parts.scope
    }

    /// Whether the certificate with this serial number is in it.
    pub(super) fn has_revoked(&self, serial: &[u8]) -> bool {
        let serial = significant(serial);
        self.parts
            .revoked
            .binary_search_by(|range| bytes(&self.der, range).cmp(serial))
            .is_ok()
    }

    /// Whether this authority may sign lists, and has signed this one.
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

/// What is read of a list, and where.
#[derive(Debug)]
struct Parts {
    issuer: Name,
    this_update: SystemTime,
    next_update: Option<SystemTime>,
    scope: Scope,
    signed: Range<usize>,
    signature_algorithm: Range<usize>,
    signature: Range<usize>,
    /// Where the serial numbers are, in their order.
    revoked: Vec<Range<u32>>,
}

/// What makes a list unusable that is well-formed, in words that follow "the revocation list".
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

/// Where the serial numbers of the entries are, in their order.
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

/// RFC 5280 5.2: what the extensions of a list say about the certificates that it is for.
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
            // RFC 5280 4.2: no extension is there twice.
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

/// RFC 5280 5.3: a list with an entry that says more than we understand must not be used.
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

/// The value of a BOOLEAN, whose tag may be an implicit one.
fn boolean(element: &Element<'_>) -> der::Result<bool> {
    match element.content() {
        [value] => Ok(*value != 0),
        _ => Err(ErrorKind::Length { tag: element.tag() }.into()),
    }
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
mod tests;
