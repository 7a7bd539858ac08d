//! Certification requests (PKCS #10) for proxies.

use der::Tag;
use der::asn1::ObjectIdentifier;
use rustls::crypto::aws_lc_rs::default_provider;

use super::DelegationError;
use crate::asn1::{Element, Elements};
use crate::encode::{
    SEQUENCE, SET, common_name, context, element, extension, identifier, number, proxy_cert_info,
    signed,
};
use crate::key::{KeyError, PrivateKey};
use crate::proxy::{ProxyFamily, ProxyPolicy};

/// The subject in requests of GSI acceptors. The signer ignores it.
const SUBJECT: &str = "NULL SUBJECT NAME ENTRY";

/// RFC 2985 5.4.2: `extensionRequest`.
const EXTENSION_REQUEST: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.9.14");

/// The DER PKCS#10 request for a proxy with this key.
///
/// # Errors
///
/// When the key cannot sign.
pub fn request(key: &PrivateKey) -> Result<Vec<u8>, DelegationError> {
    // Requests a full proxy. The signer decides, and GSI clients sign a limited one.
    let extensions: Vec<u8> = ProxyPolicy::InheritAll
        .language()
        .map(|language| {
            let name = ProxyFamily::Rfc3820.extension_identifier();
            extension(&name, true, &proxy_cert_info(&language))
        })
        .unwrap_or_default();
    let extensions = element(SET, &[&element(SEQUENCE, &[&extensions])]);
    let attribute = element(SEQUENCE, &[&identifier(&EXTENSION_REQUEST), &extensions]);
    let subject = element(SEQUENCE, &[&common_name(SUBJECT)]);
    Ok(signed_request(key, &subject, &[&attribute])?)
}

/// A DER PKCS#10 request for this subject (RFC 2986 4).
pub(crate) fn signed_request(
    key: &PrivateKey,
    subject: &[u8],
    attributes: &[&[u8]],
) -> Result<Vec<u8>, KeyError> {
    let attributes = element(context(0), attributes);
    let info = element(
        SEQUENCE,
        &[&number(0), subject, &key.public_key_info(), &attributes],
    );
    signed(key, &info)
}

/// The `SubjectPublicKeyInfo` of a request whose signature proves possession of the key. Subject and attributes are ignored.
/// Trailing data is permitted: GSI parses one element of the token.
pub(super) fn public_key_info(request: &[u8]) -> Result<&[u8], DelegationError> {
    requested(request).map(|requested| requested.key_info)
}

/// What a request is for.
#[derive(Debug)]
pub(crate) struct Requested<'a> {
    /// The DER `Name`.
    pub(crate) subject: &'a [u8],
    /// The DER `SubjectPublicKeyInfo`.
    pub(crate) key_info: &'a [u8],
}

/// Subject and key of a request whose signature proves possession of the key.
pub(crate) fn requested(request: &[u8]) -> Result<Requested<'_>, DelegationError> {
    let parts = parse(request).map_err(|error| DelegationError::Request(error.to_string()))?;
    let is_signed = default_provider()
        .signature_verification_algorithms
        .all
        .iter()
        .filter(|candidate| {
            candidate.signature_alg_id().as_ref() == parts.signature_algorithm
                && candidate.public_key_alg_id().as_ref() == parts.key_algorithm
        })
        .any(|algorithm| {
            algorithm
                .verify_signature(parts.key, parts.signed, parts.signature)
                .is_ok()
        });
    match is_signed {
        true => Ok(Requested {
            subject: parts.subject,
            key_info: parts.key_info,
        }),
        false => Err(DelegationError::NoPossession),
    }
}

struct Parts<'a> {
    subject: &'a [u8],
    signed: &'a [u8],
    signature_algorithm: &'a [u8],
    signature: &'a [u8],
    key_info: &'a [u8],
    key_algorithm: &'a [u8],
    key: &'a [u8],
}

/// RFC 2986 4.
fn parse(request: &[u8]) -> der::Result<Parts<'_>> {
    let mut fields = Elements::new(request).expect(Tag::Sequence)?.children();
    let info = fields.expect(Tag::Sequence)?;
    let signature_algorithm = fields.expect(Tag::Sequence)?.content();
    let signature = octets(request, &fields.expect(Tag::BitString)?)?;
    fields.finish()?;

    let mut fields = info.children();
    fields.expect(Tag::Integer)?;
    let subject = fields.expect(Tag::Sequence)?.encoding();
    let key_info = fields.expect(Tag::Sequence)?;
    let mut fields = key_info.children();
    let key_algorithm = fields.expect(Tag::Sequence)?.content();
    let key = octets(request, &fields.expect(Tag::BitString)?)?;
    fields.finish()?;
    Ok(Parts {
        subject,
        signed: info.encoding(),
        signature_algorithm,
        signature,
        key_info: key_info.encoding(),
        key_algorithm,
        key,
    })
}

fn octets<'a>(request: &'a [u8], string: &Element<'a>) -> der::Result<&'a [u8]> {
    Ok(&request[string.bit_string()?])
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::test_pki::{openssl, run};

    #[test]
    fn openssl_verifies_our_requests() {
        for key in [PrivateKey::generate_rsa(), PrivateKey::generate_ec()] {
            let key = key.expect("a key");
            let request = request(&key).expect("a request");
            assert_eq!(public_key_info(&request), Ok(&*key.public_key_info()));

            let file = tempfile::NamedTempFile::new().expect("a file");
            fs::write(&file, &request).expect("written");
            let text =
                run(openssl(["req", "-inform", "DER", "-verify", "-text", "-in"]).arg(file.path()));
            assert!(text.contains("CN = NULL SUBJECT NAME ENTRY"), "{text}");
            assert!(text.contains("Policy Language: Inherit all"), "{text}");
        }
    }

    #[test]
    fn requests_of_openssl_are_read() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("csr");
        for key in [
            &["rsa:2048"][..],
            &["ec", "-pkeyopt", "ec_paramgen_curve:P-384"],
        ] {
            run(openssl([
                "req",
                "-new",
                "-nodes",
                "-outform",
                "DER",
                "-keyout",
                "/dev/null",
            ])
            .args(["-subj", "/CN=ignored", "-newkey"])
            .args(key)
            .arg("-out")
            .arg(&file));
            let request = fs::read(&file).expect("written");
            public_key_info(&request).expect("it is signed");
        }
    }

    #[test]
    fn a_request_for_another_key_is_refused() {
        let own = PrivateKey::generate_ec().expect("a key").public_key_info();
        let others = PrivateKey::generate_ec().expect("a key");
        let mut request = request(&others).expect("a request");
        let others = others.public_key_info();
        let position = request
            .windows(others.len())
            .position(|window| window == others)
            .expect("it is there");
        request[position..position + own.len()].copy_from_slice(&own);
        assert_eq!(
            public_key_info(&request),
            Err(DelegationError::NoPossession)
        );
    }

    #[test]
    fn truncated_requests_are_refused() {
        let key = PrivateKey::generate_ec().expect("a key");
        let request = request(&key).expect("a request");
        for length in 0..request.len() {
            assert!(
                matches!(
                    public_key_info(&request[..length]),
                    Err(DelegationError::Request(_))
                ),
                "{length} bytes"
            );
        }
    }
}
