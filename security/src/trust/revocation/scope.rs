//! The scope of a revocation list: which certificates of its issuer it covers (RFC 5280 5.2.5 and 6.3.3).

use der::Tag;
use der::asn1::ObjectIdentifier;

use super::boolean;
use crate::asn1::{Element, Elements};
use crate::certificate::Certificate;

const DISTRIBUTION_POINTS: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.31");

/// The certificates that a list covers. Without an issuingDistributionPoint: all of its issuer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Scope {
    holders: Holders,
    /// The names (DER) of the distribution point. A certificate must have one of them; empty covers all certificates.
    points: Vec<Vec<u8>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Holders {
    #[default]
    All,
    Users,
    Authorities,
}

impl Scope {
    /// Parses an issuingDistributionPoint. The inner error is why lists of this kind are unusable: a phrase to follow "the
    /// revocation list".
    pub(super) fn parse(content: &[u8]) -> der::Result<Result<Self, &'static str>> {
        let mut scope = Self::default();
        let mut unusable = None;
        let mut next_number = 0;
        let mut fields = Elements::only(content, Tag::Sequence)?.children();
        while !fields.is_empty() {
            let field = fields.next()?;
            // In order, each at most once.
            let number = (next_number..=5)
                .find(|number| field.is_context(*number))
                .ok_or_else(|| field.tag().value_error())?;
            next_number = number + 1;
            match number {
                0 => match full_name(&field)? {
                    Some(points) => scope.points = points,
                    None => unusable = Some("names its distribution point by a part of a name"),
                },
                3 => unusable = Some("is about some reasons only"),
                // DEFAULT FALSE
                _ if !boolean(&field)? => {}
                1 if scope.holders == Holders::All => scope.holders = Holders::Users,
                2 if scope.holders == Holders::All => scope.holders = Holders::Authorities,
                4 => {
                    unusable = Some("is about certificates of other authorities (indirect)");
                }
                5 => unusable = Some("is about attribute certificates"),
                // RFC 5280 5.2.5: at most one of them is true.
                _ => return Err(field.tag().value_error().into()),
            }
        }
        Ok(match unusable {
            Some(kind) => Err(kind),
            None => Ok(scope),
        })
    }

    /// RFC 5280 6.3.3 (b) (2)
    pub(super) fn covers(&self, certificate: &Certificate) -> bool {
        let is_about_holder = match self.holders {
            Holders::All => true,
            Holders::Users => !certificate.is_authority(),
            Holders::Authorities => certificate.is_authority(),
        };
        is_about_holder && (self.points.is_empty() || self.has_point_of(certificate))
    }

    fn has_point_of(&self, certificate: &Certificate) -> bool {
        let Some(extension) = certificate.find_extension(&DISTRIBUTION_POINTS) else {
            return false;
        };
        // Malformed distribution points match no list.
        let points = points_of(extension).unwrap_or_default();
        points.iter().any(|point| self.points.contains(point))
    }
}

/// The names in the distribution points of a certificate (RFC 5280 4.2.1.13), without those of indirect lists.
fn points_of(extension: &[u8]) -> der::Result<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    let mut points = Elements::only(extension, Tag::Sequence)?.children();
    while !points.is_empty() {
        let mut fields = points.expect(Tag::Sequence)?.children();
        let name = fields.optional_context(0)?;
        let _reasons = fields.optional_context(1)?;
        let other_issuer = fields.optional_context(2)?;
        fields.finish()?;
        if let (Some(name), None) = (name, other_issuer) {
            names.extend(full_name(&name)?.unwrap_or_default());
        }
    }
    Ok(names)
}

/// The names (DER) of a DistributionPointName; `None` if it is not a full name.
fn full_name(tagged: &Element<'_>) -> der::Result<Option<Vec<Vec<u8>>>> {
    let mut choice = tagged.children();
    let name = choice.next()?;
    choice.finish()?;
    if !name.is_context(0) {
        return Ok(None);
    }
    let mut names = Vec::new();
    let mut elements = name.children();
    while !elements.is_empty() {
        names.push(elements.next()?.encoding().to_vec());
    }
    // An empty list of names would cover all certificates.
    match names.is_empty() {
        true => Err(name.tag().value_error().into()),
        false => Ok(Some(names)),
    }
}
