//! Encodes DER.

use der::asn1::ObjectIdentifier;

use crate::key::SignatureKind;

pub(super) const BOOLEAN: u8 = 0x01;
pub(super) const INTEGER: u8 = 0x02;
pub(super) const BIT_STRING: u8 = 0x03;
pub(super) const OCTET_STRING: u8 = 0x04;
pub(super) const NULL: u8 = 0x05;
pub(super) const IDENTIFIER: u8 = 0x06;
pub(super) const PRINTABLE_STRING: u8 = 0x13;
pub(super) const SEQUENCE: u8 = 0x30;
pub(super) const SET: u8 = 0x31;

const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");

/// The tag `[number]`, constructed: explicit, or an implicit SET or SEQUENCE.
pub(super) const fn context(number: u8) -> u8 {
    0xa0 | number
}

/// An element that consists of these parts.
pub(super) fn element(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let mut encoding = vec![tag];
    match u8::try_from(length) {
        Ok(short @ ..=0x7f) => encoding.push(short),
        _ => {
            let bytes = length.to_be_bytes();
            let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
            let significant = &bytes[zeros..];
            encoding.push(0x80 | significant.len().to_be_bytes()[size_of::<usize>() - 1]);
            encoding.extend_from_slice(significant);
        }
    }
    encoding.extend(parts.iter().copied().flatten());
    encoding
}

pub(super) fn identifier(identifier: &ObjectIdentifier) -> Vec<u8> {
    element(IDENTIFIER, &[identifier.as_bytes()])
}

/// A non-negative INTEGER.
pub(super) fn number(value: u32) -> Vec<u8> {
    // Keeps a leading zero byte only if the first bit would otherwise be taken for the sign.
    let bytes = u64::from(value).to_be_bytes();
    let start = (0..bytes.len() - 1)
        .find(|start| bytes[*start] != 0 || bytes[*start + 1] >= 0x80)
        .unwrap_or(bytes.len() - 1);
    element(INTEGER, &[&bytes[start..]])
}

/// A BIT STRING of whole bytes.
pub(super) fn bit_string(bytes: &[u8]) -> Vec<u8> {
    element(BIT_STRING, &[&[0], bytes])
}

/// One `Extension` (RFC 5280 4.1).
pub(super) fn extension(name: &ObjectIdentifier, is_critical: bool, content: &[u8]) -> Vec<u8> {
    const TRUE: u8 = 0xff;
    let critical = match is_critical {
        true => element(BOOLEAN, &[&[TRUE]]),
        false => Vec::new(),
    };
    let content = element(OCTET_STRING, &[content]);
    element(SEQUENCE, &[&identifier(name), &critical, &content])
}

/// A relative distinguished name that is one CN.
pub(super) fn common_name(value: &str) -> Vec<u8> {
    let value = element(PRINTABLE_STRING, &[value.as_bytes()]);
    let attribute = element(SEQUENCE, &[&identifier(&COMMON_NAME), &value]);
    element(SET, &[&attribute])
}

/// `ProxyCertInfo` with no path length (RFC 3820 3.8).
pub(super) fn proxy_cert_info(language: &ObjectIdentifier) -> Vec<u8> {
    let policy = element(SEQUENCE, &[&identifier(language)]);
    element(SEQUENCE, &[&policy])
}

/// The `AlgorithmIdentifier` of a signature.
pub(super) fn algorithm(kind: SignatureKind) -> Vec<u8> {
    let (name, has_parameters) = match kind {
        SignatureKind::RsaSha256 => ("1.2.840.113549.1.1.11", true),
        SignatureKind::EcdsaSha256 => ("1.2.840.10045.4.3.2", false),
        SignatureKind::EcdsaSha384 => ("1.2.840.10045.4.3.3", false),
        SignatureKind::EcdsaSha512 => ("1.2.840.10045.4.3.4", false),
        SignatureKind::Ed25519 => ("1.3.101.112", false),
    };
    // RFC 4055 5: the parameters of RSA are NULL. RFC 5758 3.2 and RFC 8410 3: those of the others are absent.
    let parameters = match has_parameters {
        true => element(NULL, &[]),
        false => Vec::new(),
    };
    let name = ObjectIdentifier::new_unwrap(name);
    element(SEQUENCE, &[&identifier(&name), &parameters])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_minimal() {
        for (length, header) in [
            (0, &[4, 0][..]),
            (127, &[4, 127]),
            (128, &[4, 0x81, 128]),
            (256, &[4, 0x82, 1, 0]),
            (65536, &[4, 0x83, 1, 0, 0]),
        ] {
            let encoding = element(OCTET_STRING, &[&vec![7; length]]);
            assert_eq!(&encoding[..header.len()], header);
            assert_eq!(encoding.len(), header.len() + length);
        }
    }

    #[test]
    fn numbers_are_minimal_and_positive() {
        for (value, encoding) in [
            (0, &[2, 1, 0][..]),
            (127, &[2, 1, 127]),
            (128, &[2, 2, 0, 128]),
            (0x7fff_ffff, &[2, 4, 0x7f, 0xff, 0xff, 0xff]),
            (u32::MAX, &[2, 5, 0, 0xff, 0xff, 0xff, 0xff]),
        ] {
            assert_eq!(number(value), encoding);
        }
    }
}
