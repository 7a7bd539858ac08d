//! Name constraints: the names that an authority may certify (RFC 5280 4.2.1.10).
//!
//! They apply to every certificate below that of the authority, except self-issued authorities. Subjects of proxies, which
//! begin with that of the user, are checked as well, as in OpenSSL and therefore globus-gridftp-server.

use der::Tag;

use crate::asn1::{Element, Elements};
use crate::certificate::{Certificate, NAME_CONSTRAINTS, SUBJECT_ALTERNATIVE_NAME};
use crate::name::Name;

/// PKCS #9: 1.2.840.113549.1.9.1
const EMAIL_ADDRESS: [u8; 9] = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1];

/// The maximum number of comparisons of names with subtrees for a certificate.
const MAX_COMPARISONS: usize = 1 << 16;

/// Why a certificate does not satisfy the constraints.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ConstraintError {
    /// This name is not permitted.
    Outside(String),
    /// The constraints or the names are malformed or unsupported.
    Unusable(&'static str),
}

/// The supported kinds of names, with their tags in `GeneralName`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Email = 1,
    Host = 2,
    Directory = 4,
    Uri = 6,
    Address = 7,
}

/// A name of a certificate, or the root of a subtree of names.
enum GeneralName<'a> {
    Directory(Name),
    /// A name of a textual kind.
    Text(Kind, &'a str),
    Address(&'a [u8]),
    /// An unsupported kind, by its tag.
    Other(u32),
}

/// The constraints of one authority.
struct Constraints<'a> {
    permitted: Vec<GeneralName<'a>>,
    excluded: Vec<GeneralName<'a>>,
}

/// Checks the names of a certificate against the constraints of an authority above it.
pub(super) fn check(
    authority: &Certificate,
    certificate: &Certificate,
) -> Result<(), ConstraintError> {
    let Some(extension) = authority.find_extension(&NAME_CONSTRAINTS) else {
        return Ok(());
    };
    let constraints = Constraints::parse(extension)
        .map_err(|_| ConstraintError::Unusable("they are malformed"))?;
    let texts = subject_texts(certificate);
    let names = names_of(certificate, &texts)
        .map_err(|_| ConstraintError::Unusable("its alternative names are malformed"))?;
    let subtrees = constraints.permitted.len() + constraints.excluded.len();
    if names.len().saturating_mul(subtrees) > MAX_COMPARISONS {
        return Err(ConstraintError::Unusable("there are too many names"));
    }
    names.iter().try_for_each(|name| constraints.check(name))
}

/// Names of other kinds in the subject: e-mail addresses, and host names in a CN of a certificate without alternative names,
/// which older clients accept as the host's name.
fn subject_texts(certificate: &Certificate) -> Vec<(Kind, String)> {
    let subject = certificate.subject();
    let addresses = subject.values_of(&EMAIL_ADDRESS).into_iter();
    let mut texts: Vec<_> = addresses.map(|value| (Kind::Email, value)).collect();
    if certificate.proxy().is_none() && certificate.dns_names().is_empty() {
        let hosts = subject
            .common_names()
            .into_iter()
            .filter(|name| is_host(name));
        texts.extend(hosts.map(|name| (Kind::Host, name)));
    }
    texts
}

fn names_of<'a>(
    certificate: &'a Certificate,
    texts: &'a [(Kind, String)],
) -> der::Result<Vec<GeneralName<'a>>> {
    let mut names = Vec::new();
    if !certificate.subject().is_empty() {
        names.push(GeneralName::Directory(certificate.subject().clone()));
    }
    names.extend(
        texts
            .iter()
            .map(|(kind, text)| GeneralName::Text(*kind, text)),
    );
    if let Some(extension) = certificate.find_extension(&SUBJECT_ALTERNATIVE_NAME) {
        let mut elements = Elements::only(extension, Tag::Sequence)?.children();
        while !elements.is_empty() {
            names.push(GeneralName::parse(&elements.next()?)?);
        }
    }
    Ok(names)
}

impl<'a> GeneralName<'a> {
    fn parse(element: &Element<'a>) -> der::Result<Self> {
        let text = |kind| -> der::Result<Self> {
            let text = str::from_utf8(element.content())
                .ok()
                .filter(|text| text.is_ascii());
            Ok(Self::Text(
                kind,
                text.ok_or_else(|| Tag::Ia5String.value_error())?,
            ))
        };
        match element.tag().number().value() {
            _ if !element.tag().is_context_specific() => Err(Tag::Null.value_error().into()),
            1 => text(Kind::Email),
            2 => text(Kind::Host),
            4 => Ok(Self::Directory(Name::parse(element.content())?)),
            6 => text(Kind::Uri),
            7 => Ok(Self::Address(element.content())),
            other => Ok(Self::Other(other)),
        }
    }

    fn kind(&self) -> u32 {
        match self {
            Self::Directory(_) => Kind::Directory as u32,
            Self::Text(kind, _) => *kind as u32,
            Self::Address(_) => Kind::Address as u32,
            Self::Other(tag) => *tag,
        }
    }

    /// Whether this name is in the subtree of a base of the same kind.
    fn is_within(&self, base: &Self) -> Result<bool, ConstraintError> {
        match (self, base) {
            (Self::Directory(name), Self::Directory(base)) => Ok(name.is_within(base)),
            (Self::Text(Kind::Host, name), Self::Text(_, base)) => Ok(is_host_within(name, base)),
            (Self::Text(Kind::Email, name), Self::Text(_, base)) => is_email_within(name, base),
            (Self::Text(Kind::Uri, name), Self::Text(_, base)) => is_uri_within(name, base),
            (Self::Address(name), Self::Address(base)) => is_address_within(name, base),
            _ => Err(ConstraintError::Unusable(
                "they are about a kind of names that is not supported",
            )),
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Directory(name) => name.one_line().to_owned(),
            Self::Text(_, text) => (*text).to_owned(),
            Self::Address(bytes) => match **bytes {
                [a, b, c, d] => format!("{a}.{b}.{c}.{d}"),
                _ => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
            },
            Self::Other(tag) => format!("of kind {tag}"),
        }
    }
}

impl<'a> Constraints<'a> {
    fn parse(extension: &'a [u8]) -> der::Result<Self> {
        let mut fields = Elements::only(extension, Tag::Sequence)?.children();
        let permitted = fields.optional_context(0)?;
        let excluded = fields.optional_context(1)?;
        fields.finish()?;
        let bases = |subtrees: Option<Element<'a>>| subtrees.map_or(Ok(Vec::new()), bases);
        Ok(Self {
            permitted: bases(permitted)?,
            excluded: bases(excluded)?,
        })
    }

    fn check(&self, name: &GeneralName<'_>) -> Result<(), ConstraintError> {
        let is_same_kind = |base: &&GeneralName<'_>| base.kind() == name.kind();
        let mut permitted = self.permitted.iter().filter(is_same_kind).peekable();
        if permitted.peek().is_some() && !any(permitted, |base| name.is_within(base))? {
            return Err(ConstraintError::Outside(name.text()));
        }
        let excluded = self.excluded.iter().filter(is_same_kind);
        if any(excluded, |base| name.is_within(base))? {
            return Err(ConstraintError::Outside(name.text()));
        }
        Ok(())
    }
}

/// The bases of `GeneralSubtrees`.
fn bases<'a>(subtrees: Element<'a>) -> der::Result<Vec<GeneralName<'a>>> {
    let mut bases = Vec::new();
    let mut elements = subtrees.children();
    while !elements.is_empty() {
        let mut fields = elements.expect(Tag::Sequence)?.children();
        bases.push(GeneralName::parse(&fields.next()?)?);
        // RFC 5280 4.2.1.10: minimum is always 0, which is left out, and there is no maximum.
        fields.finish()?;
    }
    Ok(bases)
}

fn any<T, E>(
    items: impl Iterator<Item = T>,
    mut is: impl FnMut(T) -> Result<bool, E>,
) -> Result<bool, E> {
    for item in items {
        if is(item)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The host itself and all hosts below it. A leading dot, which RFC 5280 does not define here, excludes the host itself.
fn is_host_within(host: &str, base: &str) -> bool {
    let Some(start) = host.len().checked_sub(base.len()) else {
        return false;
    };
    let (before, end) = host.as_bytes().split_at(start);
    let is_label =
        base.is_empty() || before.is_empty() || base.starts_with('.') || before.ends_with(b".");
    is_label && end.eq_ignore_ascii_case(base.as_bytes())
}

/// A mailbox, all mailboxes of a host, or, with a leading dot, of all hosts below it.
fn is_email_within(email: &str, base: &str) -> Result<bool, ConstraintError> {
    let Some((mailbox, host)) = email.rsplit_once('@') else {
        return Err(ConstraintError::Unusable("an e-mail address has no @"));
    };
    Ok(match base.rsplit_once('@') {
        // RFC 5280 7.5: the local part is case-sensitive.
        Some((base_mailbox, base_host)) => {
            (base_mailbox.is_empty() || mailbox == base_mailbox)
                && host.eq_ignore_ascii_case(base_host)
        }
        None => is_exact_host_within(host, base),
    })
}

/// The host of a URI: the same one, or, with a leading dot, all hosts below it.
fn is_uri_within(uri: &str, base: &str) -> Result<bool, ConstraintError> {
    let authority = uri
        .split_once("://")
        .map(|(_, behind)| behind.split(['/', '?', '#']).next().unwrap_or_default());
    let host = authority
        .map(|authority| authority.rsplit('@').next().unwrap_or_default())
        .map(|host| host.split(':').next().unwrap_or_default())
        .filter(|host| !host.is_empty());
    // RFC 5280 4.2.1.10: a URI without a host violates the constraint.
    let host = host.ok_or(ConstraintError::Unusable("a URI has no host"))?;
    Ok(is_exact_host_within(host, base))
}

fn is_exact_host_within(host: &str, base: &str) -> bool {
    match base.starts_with('.') {
        true => is_host_within(host, base),
        false => host.eq_ignore_ascii_case(base),
    }
}

/// Compares an address with a network address and mask.
fn is_address_within(address: &[u8], base: &[u8]) -> Result<bool, ConstraintError> {
    if !matches!((address.len(), base.len()), (4 | 16, 8 | 32)) {
        return Err(ConstraintError::Unusable("an IP address has an odd length"));
    }
    // IPv4 addresses are not in IPv6 subtrees, and vice versa.
    if base.len() != 2 * address.len() {
        return Ok(false);
    }
    let (network, mask) = base.split_at(address.len());
    let mut bytes = address.iter().zip(network).zip(mask);
    Ok(bytes.all(|((address, network), mask)| (address ^ network) & mask == 0))
}

/// Whether a CN has the syntax of a host name: labels separated by dots.
fn is_host(name: &str) -> bool {
    let is_label = |label: &str| {
        let mut letters = label.bytes();
        !label.is_empty()
            && letters.all(|letter| letter.is_ascii_alphanumeric() || b"-_*".contains(&letter))
    };
    let name = name.strip_suffix('.').unwrap_or(name);
    name.contains('.') && name.split('.').all(is_label)
}

#[cfg(test)]
mod tests;
