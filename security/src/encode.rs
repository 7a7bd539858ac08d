//! Encodes DER: certificates and requests for them.

use std::time::SystemTime;

use der::Encode as _;
use der::asn1::{GeneralizedTime, ObjectIdentifier, UtcTime};

use crate::key::{KeyError, PrivateKey, SignatureKind};

pub(crate) const BOOLEAN: u8 = 0x01;
pub(crate) const INTEGER: u8 = 0x02;
pub(crate) const BIT_STRING: u8 = 0x03;
pub(crate) const OCTET_STRING: u8 = 0x04;
const NULL: u8 = 0x05;
const IDENTIFIER: u8 = 0x06;
const UTF8_STRING: u8 = 0x0c;
const PRINTABLE_STRING: u8 = 0x13;
pub(crate) const SEQUENCE: u8 = 0x30;
pub(crate) const SET: u8 = 0x31;

pub(crate) const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");

/// The tag `[number]`, constructed: explicit, or an implicit SET or SEQUENCE.
pub(crate) const fn context(number: u8) -> u8 {
    0xa0 | number
}

/// An element that consists of these parts.
pub(crate) fn element(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
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

pub(crate) fn identifier(identifier: &ObjectIdentifier) -> Vec<u8> {
    element(IDENTIFIER, &[identifier.as_bytes()])
}

/// A non-negative INTEGER.
pub(crate) fn number(value: u32) -> Vec<u8> {
    // Keeps a leading zero byte only if the first bit would otherwise be taken for the sign.
    let bytes = u64::from(value).to_be_bytes();
    let start = (0..bytes.len() - 1)
        .find(|start| bytes[*start] != 0 || bytes[*start + 1] >= 0x80)
        .unwrap_or(bytes.len() - 1);
    element(INTEGER, &[&bytes[start..]])
}

/// A BIT STRING of whole bytes.
pub(crate) fn bit_string(bytes: &[u8]) -> Vec<u8> {
    element(BIT_STRING, &[&[0], bytes])
}

/// One `Extension` (RFC 5280 4.1).
pub(crate) fn extension(name: &ObjectIdentifier, is_critical: bool, content: &[u8]) -> Vec<u8> {
    const TRUE: u8 = 0xff;
    let critical = match is_critical {
        true => element(BOOLEAN, &[&[TRUE]]),
        false => Vec::new(),
    };
    let content = element(OCTET_STRING, &[content]);
    element(SEQUENCE, &[&identifier(name), &critical, &content])
}

/// A relative distinguished name that is one CN.
pub(crate) fn common_name(value: &str) -> Vec<u8> {
    let value = element(PRINTABLE_STRING, &[value.as_bytes()]);
    naming(&COMMON_NAME, &value)
}

/// A relative distinguished name with one attribute, whose value may have all characters.
pub(crate) fn attribute(name: &ObjectIdentifier, value: &str) -> Vec<u8> {
    naming(name, &element(UTF8_STRING, &[value.as_bytes()]))
}

fn naming(name: &ObjectIdentifier, value: &[u8]) -> Vec<u8> {
    let attribute = element(SEQUENCE, &[&identifier(name), value]);
    element(SET, &[&attribute])
}

/// A `Validity`.
pub(crate) fn validity(from: SystemTime, to: SystemTime) -> der::Result<Vec<u8>> {
    Ok(element(SEQUENCE, &[&time(from)?, &time(to)?]))
}

/// RFC 5280 4.1.2.5: two digits of the year until 2049, four from then on.
fn time(time: SystemTime) -> der::Result<Vec<u8>> {
    match UtcTime::from_system_time(time) {
        Ok(time) => time.to_der(),
        Err(_) => GeneralizedTime::from_system_time(time)?.to_der(),
    }
}

/// The parts of a certificate of version 3, in DER.
pub(crate) struct Unsigned<'a> {
    pub(crate) serial: &'a [u8],
    pub(crate) issuer: &'a [u8],
    pub(crate) validity: &'a [u8],
    pub(crate) subject: &'a [u8],
    pub(crate) key_info: &'a [u8],
    pub(crate) extensions: &'a [u8],
}

impl Unsigned<'_> {
    /// The certificate, signed with the key of the issuer.
    pub(crate) fn sign(&self, key: &PrivateKey) -> Result<Vec<u8>, KeyError> {
        const VERSION_3: u32 = 2;
        let body = element(
            SEQUENCE,
            &[
                &element(context(0), &[&number(VERSION_3)]),
                self.serial,
                &algorithm(key.signature_kind()?),
                self.issuer,
                self.validity,
                self.subject,
                self.key_info,
                &element(context(3), &[self.extensions]),
            ],
        );
        signed(key, &body)
    }
}

/// A certificate or a request: what is signed, the algorithm, and the signature.
pub(crate) fn signed(key: &PrivateKey, content: &[u8]) -> Result<Vec<u8>, KeyError> {
    let algorithm = algorithm(key.signature_kind()?);
    let signature = bit_string(&key.sign(content)?);
    Ok(element(SEQUENCE, &[content, &algorithm, &signature]))
}

/// `ProxyCertInfo` with no path length (RFC 3820 3.8).
pub(crate) fn proxy_cert_info(language: &ObjectIdentifier) -> Vec<u8> {
    let policy = element(SEQUENCE, &[&identifier(language)]);
    element(SEQUENCE, &[&policy])
}

/// The `AlgorithmIdentifier` of a signature.
pub(crate) fn algorithm(kind: SignatureKind) -> Vec<u8> {
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
    use std::time::Duration;

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

    #[test]
    fn ends_after_2049_are_written_with_four_digits() {
        let year_2050 = SystemTime::UNIX_EPOCH + Duration::from_secs(2_524_608_000);
        let before = time(year_2050 - Duration::from_secs(1)).expect("written");
        assert_eq!(before, b"\x17\x0d491231235959Z");
        assert_eq!(
            time(year_2050).expect("written"),
            b"\x18\x0f20500101000000Z"
        );
    }
}
