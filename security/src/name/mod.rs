//! Distinguished names, and the one-line form in which grid software writes them.

use std::fmt::{self, Write as _};
use std::sync::Arc;

use der::Tag;

use crate::asn1::{Element, Elements};
use crate::malformed::CertificateError;
use crate::one_line;

mod attributes;

/// The longest encoding that is parsed. Real names have some hundred bytes, and names are logged.
const MAX_BYTES: usize = 4096;

/// The longest object identifier that is converted to text.
const MAX_IDENTIFIER_BYTES: usize = 64;

/// 2.5.4.3
const COMMON_NAME: [u8; 3] = [0x55, 4, 3];

/// A distinguished name. Two names are equal if their encodings are equal; issuers are found with [`Name::matches`].
#[derive(Clone)]
pub struct Name {
    der: Arc<[u8]>,
    one_line: Arc<str>,
    canonical: CanonicalName,
}

/// The canonical form of a name for comparisons: one entry for each RDN, independent of case, superfluous spaces and string
/// types (RFC 5280 7.1, in the simple form of OpenSSL).
pub(crate) type CanonicalName = Arc<[Box<[u8]>]>;

impl Name {
    /// Parses a DER `Name`, without trailing data.
    pub fn from_der(der: &[u8]) -> Result<Self, CertificateError> {
        Self::parse(der).map_err(CertificateError::malformed("the name"))
    }

    pub(crate) fn parse(der: &[u8]) -> der::Result<Self> {
        let mut one_line = String::new();
        let mut canonical = Vec::new();
        if der.len() > MAX_BYTES {
            return Err(Tag::Sequence.length_error().into());
        }
        let mut rdns = Elements::only(der, Tag::Sequence)?.children();
        while !rdns.is_empty() {
            let attributes = attributes_of(&rdns.next()?)?;
            for (index, attribute) in attributes.iter().enumerate() {
                one_line.push(if index == 0 { '/' } else { '+' });
                attribute.write_one_line(&mut one_line)?;
            }
            let mut set = attributes
                .iter()
                .map(Attribute::canonical)
                .collect::<der::Result<Vec<_>>>()?;
            set.sort_unstable();
            canonical.push(set.concat().into_boxed_slice());
        }
        Ok(Self {
            der: der.into(),
            one_line: one_line.into(),
            canonical: canonical.into(),
        })
    }

    /// The encoding, as it was parsed.
    pub fn as_der(&self) -> &[u8] {
        &self.der
    }

    /// `/DC=org/CN=Alice`, as `X509_NAME_oneline` of OpenSSL 3 writes it: the form of grid-mapfiles, signing policies and
    /// `DCAU S`.
    ///
    /// Consists of printable ASCII. Other bytes of a value become `\xHH`. A slash or a plus sign in a value has a backslash
    /// before it, which OpenSSL did not write before version 3.
    pub fn one_line(&self) -> &str {
        &self.one_line
    }

    /// Whether `text` is this name in the one-line form, with the backslashes of OpenSSL 3 or without them, as older versions
    /// and JGlobus write it.
    pub fn is_written(&self, text: &str) -> bool {
        one_line::spell(text) == one_line::spell(&self.one_line)
    }

    /// The value of the first CN, if it is text.
    pub fn first_common_name(&self) -> Option<String> {
        self.values_of(&COMMON_NAME).into_iter().next()
    }

    /// Whether both names are the same, independent of case, superfluous spaces and string types.
    pub fn matches(&self, other: &Self) -> bool {
        self.canonical == other.canonical
    }

    /// Whether `longer` is this name with one further CN (RFC 3820 3.4).
    pub fn is_extended_by(&self, longer: &Self) -> bool {
        let Some((last, rest)) = longer.canonical.split_last() else {
            return false;
        };
        *rest == *self.canonical && is_one_common_name(last)
    }

    /// Whether this name is in the subtree that `base` is the root of (RFC 5280 4.2.1.10).
    pub(crate) fn is_within(&self, base: &Self) -> bool {
        self.canonical.starts_with(&base.canonical)
    }

    pub(crate) fn canonical(&self) -> &CanonicalName {
        &self.canonical
    }

    pub(crate) fn common_names(&self) -> Vec<String> {
        self.values_of(&COMMON_NAME)
    }

    /// The text values of an attribute, in order.
    pub(crate) fn values_of(&self, identifier: &[u8]) -> Vec<String> {
        let mut values = Vec::new();
        let mut visit = || -> der::Result<()> {
            let mut rdns = Elements::only(&self.der, Tag::Sequence)?.children();
            while !rdns.is_empty() {
                for attribute in attributes_of(&rdns.next()?)? {
                    if attribute.identifier == identifier {
                        values.extend(attribute.text()?);
                    }
                }
            }
            Ok(())
        };
        // Cannot fail: the name was parsed before.
        let _ = visit();
        values
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.canonical.is_empty()
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.der == other.der
    }
}

impl Eq for Name {}

impl std::hash::Hash for Name {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.der.hash(state);
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.one_line)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Name({})", self.one_line)
    }
}

/// One `AttributeTypeAndValue`.
struct Attribute<'a> {
    identifier: &'a [u8],
    value: Element<'a>,
}

fn attributes_of<'a>(rdn: &Element<'a>) -> der::Result<Vec<Attribute<'a>>> {
    rdn.tag().assert_eq(Tag::Set)?;
    let mut attributes = Vec::new();
    let mut elements = rdn.children();
    while !elements.is_empty() {
        let mut fields = elements.expect(Tag::Sequence)?.children();
        let identifier = fields.expect(Tag::ObjectIdentifier)?.content();
        let value = fields.next()?;
        fields.finish()?;
        attributes.push(Attribute { identifier, value });
    }
    // X.501: a relative name has at least one attribute.
    if attributes.is_empty() {
        return Err(Tag::Set.value_error().into());
    }
    Ok(attributes)
}

impl Attribute<'_> {
    fn write_one_line(&self, line: &mut String) -> der::Result<()> {
        match attributes::short_name(self.identifier) {
            Some(name) => line.push_str(name),
            None => line.push_str(&dotted(self.identifier)?),
        }
        line.push('=');
        let bytes = match self.value.tag() {
            // OpenSSL writes these in their encoding.
            Tag::Sequence | Tag::Set => self.value.encoding(),
            // The first byte counts unused bits.
            Tag::BitString => self.value.content().get(1..).unwrap_or_default(),
            _ => self.value.content(),
        };
        for byte in bytes {
            match byte {
                b'/' | b'+' => line.extend(['\\', char::from(*byte)]),
                b' '..=b'~' => line.push(char::from(*byte)),
                // Writing to a string cannot fail.
                _ => {
                    let _ = write!(line, "\\x{byte:02X}");
                }
            }
        }
        Ok(())
    }

    /// The value, if OpenSSL compares its string type as text.
    fn text(&self) -> der::Result<Option<String>> {
        let bytes = self.value.content();
        let malformed = || self.value.tag().value_error();
        let text = match self.value.tag() {
            Tag::Utf8String => str::from_utf8(bytes).map_err(|_| malformed())?.to_owned(),
            // Implementations treat T.61 strings as Latin-1.
            Tag::PrintableString | Tag::Ia5String | Tag::VisibleString | Tag::TeletexString => {
                bytes.iter().copied().map(char::from).collect()
            }
            Tag::BmpString if bytes.len().is_multiple_of(2) => bytes
                .chunks_exact(2)
                .map(|pair| char::from_u32(u16::from_be_bytes([pair[0], pair[1]]).into()))
                .collect::<Option<String>>()
                .ok_or_else(malformed)?,
            Tag::BmpString => return Err(malformed().into()),
            _ => return Ok(None),
        };
        Ok(Some(text))
    }

    /// An injective encoding of type and canonical value, also when several are concatenated.
    fn canonical(&self) -> der::Result<Vec<u8>> {
        let (is_text, value) = match self.text()? {
            Some(text) => (1, normalized(&text).into_bytes()),
            None => (0, self.value.encoding().to_vec()),
        };
        let mut bytes = Vec::with_capacity(self.identifier.len() + value.len() + 17);
        bytes.extend(self.identifier.len().to_be_bytes());
        bytes.extend(self.identifier);
        bytes.push(is_text);
        bytes.extend(value.len().to_be_bytes());
        bytes.extend(value);
        Ok(bytes)
    }
}

/// Whether a canonical RDN is a single CN.
fn is_one_common_name(rdn: &[u8]) -> bool {
    const LENGTH: usize = size_of::<usize>();
    let start = [&COMMON_NAME.len().to_be_bytes()[..], &COMMON_NAME, &[1]].concat();
    let Some((length, value)) = rdn
        .strip_prefix(&start[..])
        .and_then(<[u8]>::split_first_chunk::<LENGTH>)
    else {
        return false;
    };
    value.len() == usize::from_be_bytes(*length)
}

/// Converts ASCII to lower case, and white space to single spaces between words, as OpenSSL does.
fn normalized(text: &str) -> String {
    let is_space = |letter: char| matches!(letter, ' ' | '\t'..='\r');
    let words: Vec<_> = text
        .split(is_space)
        .filter(|word| !word.is_empty())
        .collect();
    words.join(" ").to_ascii_lowercase()
}

/// The content of an OBJECT IDENTIFIER in dotted decimals.
pub(crate) fn dotted(content: &[u8]) -> der::Result<String> {
    let malformed = || der::Error::from(der::ErrorKind::OidMalformed);
    if content.len() > MAX_IDENTIFIER_BYTES {
        return Err(malformed());
    }
    let mut line = String::new();
    let mut number: u128 = 0;
    let mut is_first = true;
    let mut is_complete = false;
    for byte in content {
        // Base 128, most significant digits first.
        if number > u128::MAX >> 7 {
            return Err(malformed());
        }
        number = number << 7 | u128::from(byte & 0x7f);
        is_complete = byte & 0x80 == 0;
        if !is_complete {
            continue;
        }
        if is_first {
            // X.690 8.19.4: the first two arcs are one number.
            let root = (number / 40).min(2);
            let _ = write!(line, "{root}.{}", number - root * 40);
        } else {
            let _ = write!(line, ".{number}");
        }
        (number, is_first) = (0, false);
    }
    match is_complete {
        true => Ok(line),
        false => Err(malformed()),
    }
}

#[cfg(test)]
mod tests;
