//! The ProxyCertInfo extension of proxy certificates (RFC 3820 3.8, and the earlier GSI-3 draft).

use der::Tag;
use der::asn1::ObjectIdentifier;

use crate::asn1::{Elements, is_identifier};

/// RFC 3820 3.8: `id-ppl-inheritAll`.
const INHERIT_ALL: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.21.1");
/// RFC 3820 3.8: `id-ppl-independent`.
const INDEPENDENT: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.21.2");
/// The policy language of Globus for limited proxies.
const LIMITED: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.4.1.3536.1.1.1.9");

/// The two kinds of proxy certificates. A chain must not mix them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyFamily {
    /// RFC 3820.
    Rfc3820,
    /// The draft, with another identifier for the same extension.
    Gsi3,
}

impl ProxyFamily {
    /// The identifier of the ProxyCertInfo extension.
    pub fn extension_identifier(self) -> ObjectIdentifier {
        match self {
            Self::Rfc3820 => ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.1.14"),
            Self::Gsi3 => ObjectIdentifier::new_unwrap("1.3.6.1.4.1.3536.1.222"),
        }
    }
}

/// The policy of a proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProxyPolicy {
    /// All rights of its issuer.
    InheritAll,
    /// All rights of its issuer, except for services that refuse limited proxies. File transfer accepts them.
    Limited,
    /// An identity of its own.
    Independent,
    /// An unsupported policy. Such a proxy is refused.
    Other,
}

/// The content of a ProxyCertInfo extension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyInfo {
    /// The kind of the extension.
    pub family: ProxyFamily,
    /// The policy.
    pub policy: ProxyPolicy,
    /// The number of proxies that may be below it; `None` is any number.
    pub path_length: Option<u32>,
}

impl ProxyInfo {
    /// Parses the content of the extension.
    pub(crate) fn from_extension(family: ProxyFamily, content: &[u8]) -> der::Result<Self> {
        let mut fields = Elements::only(content, Tag::Sequence)?.children();
        let mut path_length = fields.optional(Tag::Integer)?;
        let policy = fields.expect(Tag::Sequence)?;
        if family == ProxyFamily::Gsi3 && path_length.is_none() {
            // The first versions of the draft have it after the policy, with a tag.
            path_length = match fields.optional_context(1)? {
                Some(tagged) => Some(Elements::only(tagged.content(), Tag::Integer)?),
                None => None,
            };
        }
        fields.finish()?;
        let path_length = path_length
            .map(|number| number.small_number())
            .transpose()?;

        let mut fields = policy.children();
        let language = fields.expect(Tag::ObjectIdentifier)?.content();
        let has_text = fields.optional(Tag::OctetString)?.is_some();
        fields.finish()?;
        // RFC 3820 3.8.2: the three languages have no policy text of their own.
        let policy = match has_text {
            false if is_identifier(language, &INHERIT_ALL) => ProxyPolicy::InheritAll,
            false if is_identifier(language, &INDEPENDENT) => ProxyPolicy::Independent,
            false if is_identifier(language, &LIMITED) => ProxyPolicy::Limited,
            _ => ProxyPolicy::Other,
        };
        Ok(Self {
            family,
            policy,
            path_length,
        })
    }
}

impl ProxyPolicy {
    /// The identifier of the policy language; `None` for an unsupported policy.
    pub fn language(&self) -> Option<ObjectIdentifier> {
        match self {
            Self::InheritAll => Some(INHERIT_ALL),
            Self::Limited => Some(LIMITED),
            Self::Independent => Some(INDEPENDENT),
            Self::Other => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LANGUAGE: [u8; 10] = [6, 8, 0x2b, 6, 1, 5, 5, 7, 0x15, 1];

    fn sequence(parts: &[&[u8]]) -> Vec<u8> {
        let content = parts.concat();
        let length = u8::try_from(content.len()).expect("short");
        [&[0x30, length][..], &content].concat()
    }

    fn read(family: ProxyFamily, content: &[u8]) -> Option<(ProxyPolicy, Option<u32>)> {
        let info = ProxyInfo::from_extension(family, content).ok()?;
        Some((info.policy, info.path_length))
    }

    #[test]
    fn the_path_length_stands_before_the_policy() {
        let content = sequence(&[&[2, 1, 3], &sequence(&[&LANGUAGE])]);
        for family in [ProxyFamily::Rfc3820, ProxyFamily::Gsi3] {
            let expected = Some((ProxyPolicy::InheritAll, Some(3)));
            assert_eq!(read(family, &content), expected);
        }
    }

    #[test]
    fn old_drafts_have_it_after_the_policy() {
        let content = sequence(&[&sequence(&[&LANGUAGE]), &[0xa1, 3, 2, 1, 3]]);
        assert_eq!(
            read(ProxyFamily::Gsi3, &content),
            Some((ProxyPolicy::InheritAll, Some(3)))
        );
        assert_eq!(read(ProxyFamily::Rfc3820, &content), None);
    }

    #[test]
    fn a_policy_text_or_an_unknown_language_is_another_policy() {
        let with_text = sequence(&[&sequence(&[&LANGUAGE, &[4, 1, b'x']])]);
        let unknown = sequence(&[&sequence(&[&[6, 1, 0x2a]])]);
        for content in [with_text, unknown] {
            let policy = read(ProxyFamily::Rfc3820, &content);
            assert_eq!(policy, Some((ProxyPolicy::Other, None)));
        }
    }

    #[test]
    fn a_negative_path_length_is_malformed() {
        let content = sequence(&[&[2, 1, 0xff], &sequence(&[&LANGUAGE])]);
        assert_eq!(read(ProxyFamily::Rfc3820, &content), None);
    }
}
