//! Signatures of certificates, revocation lists and attribute certificates.

use aws_lc_rs::signature::VerificationAlgorithm;
use aws_lc_rs::signature::{self, RsaParameters, RsaPssSaltLength, UnparsedPublicKey};
use der::Tag;
use der::asn1::ObjectIdentifier;

use crate::asn1::{Elements, is_identifier};

const fn identifier(text: &str) -> ObjectIdentifier {
    ObjectIdentifier::new_unwrap(text)
}

// RFC 8017, RFC 5758, RFC 8410
const RSA_SHA256: ObjectIdentifier = identifier("1.2.840.113549.1.1.11");
const RSA_SHA384: ObjectIdentifier = identifier("1.2.840.113549.1.1.12");
const RSA_SHA512: ObjectIdentifier = identifier("1.2.840.113549.1.1.13");
const RSA_PSS: ObjectIdentifier = identifier("1.2.840.113549.1.1.10");
const MASK: ObjectIdentifier = identifier("1.2.840.113549.1.1.8");
const ECDSA_SHA256: ObjectIdentifier = identifier("1.2.840.10045.4.3.2");
const ECDSA_SHA384: ObjectIdentifier = identifier("1.2.840.10045.4.3.3");
const ECDSA_SHA512: ObjectIdentifier = identifier("1.2.840.10045.4.3.4");
const ED25519: ObjectIdentifier = identifier("1.3.101.112");

const SHA256: ObjectIdentifier = identifier("2.16.840.1.101.3.4.2.1");
const SHA384: ObjectIdentifier = identifier("2.16.840.1.101.3.4.2.2");
const SHA512: ObjectIdentifier = identifier("2.16.840.1.101.3.4.2.3");

const RSA_KEY: ObjectIdentifier = identifier("1.2.840.113549.1.1.1");
const EC_KEY: ObjectIdentifier = identifier("1.2.840.10045.2.1");
const P256: ObjectIdentifier = identifier("1.2.840.10045.3.1.7");
const P384: ObjectIdentifier = identifier("1.3.132.0.34");
const P521: ObjectIdentifier = identifier("1.3.132.0.35");

/// Broken algorithms, which OpenSSL at Debian's security level refuses too.
const BROKEN: &[(ObjectIdentifier, &str)] = &[
    (identifier("1.2.840.113549.1.1.2"), "MD2"),
    (identifier("1.2.840.113549.1.1.4"), "MD5"),
    (identifier("1.2.840.113549.1.1.5"), "SHA-1"),
    (identifier("1.2.840.10045.4.1"), "SHA-1"),
    (identifier("1.2.840.10040.4.3"), "DSA and SHA-1"),
];

/// The shortest RSA key that is accepted, as at OpenSSL's security level 2.
const MIN_RSA_BITS: u32 = 2048;
/// The longest RSA key that the cryptographic library accepts.
const MAX_RSA_BITS: u32 = 8192;

/// Why a signature is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SignatureError {
    /// The algorithm is broken: signatures can be forged.
    Broken(&'static str),
    /// The algorithm is not supported, or not with this kind of key.
    Unknown,
    /// The signature was made with another key, or for other bytes.
    Wrong,
}

/// The kind of a public key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeyKind {
    Rsa,
    P256,
    P384,
    P521,
    Ed25519,
}

/// Verifies a signature: `public_key_info` and `algorithm` are DER, `signature` is the content of the
/// BIT STRING.
pub(crate) fn verify(
    public_key_info: &[u8],
    algorithm: &[u8],
    message: &[u8],
    signature: &[u8],
) -> Result<(), SignatureError> {
    let unknown = |_: der::Error| SignatureError::Unknown;
    let (kind, key) = public_key(public_key_info).map_err(unknown)?;
    let algorithm = verification_algorithm(kind, algorithm)?;
    UnparsedPublicKey::new(algorithm, key)
        .verify(message, signature)
        .map_err(|_| SignatureError::Wrong)
}

/// The number of bits of an RSA key that is too short or too long to be used.
pub(crate) fn unusable_rsa_bits(public_key_info: &[u8]) -> Option<u32> {
    let Ok((KeyKind::Rsa, key)) = public_key(public_key_info) else {
        return None;
    };
    let bits = RsaParameters::public_modulus_len(key).unwrap_or(0);
    (!(MIN_RSA_BITS..=MAX_RSA_BITS).contains(&bits)).then_some(bits)
}

/// The kind and the length of a key, for people.
pub(crate) fn describe_key(public_key_info: &[u8]) -> String {
    let name = match public_key(public_key_info) {
        Ok((KeyKind::Rsa, key)) => {
            let bits = RsaParameters::public_modulus_len(key).unwrap_or(0);
            return format!("RSA, {bits} bits");
        }
        Ok((KeyKind::P256, _)) => "EC, P-256",
        Ok((KeyKind::P384, _)) => "EC, P-384",
        Ok((KeyKind::P521, _)) => "EC, P-521",
        Ok((KeyKind::Ed25519, _)) => "Ed25519",
        Err(_) => "unknown",
    };
    name.to_owned()
}

/// The kind of a DER `SubjectPublicKeyInfo`, and the key in the form of the cryptographic library.
fn public_key(info: &[u8]) -> der::Result<(KeyKind, &[u8])> {
    let mut fields = Elements::only(info, Tag::Sequence)?.children();
    let mut algorithm = fields.expect(Tag::Sequence)?.children();
    let key = &info[fields.expect(Tag::BitString)?.bit_string()?];
    let name = algorithm.expect(Tag::ObjectIdentifier)?.content();
    let is = |known: &ObjectIdentifier| is_identifier(name, known);
    let kind = if is(&RSA_KEY) || is(&RSA_PSS) {
        KeyKind::Rsa
    } else if is(&ED25519) {
        KeyKind::Ed25519
    } else if is(&EC_KEY) {
        let curve = algorithm.expect(Tag::ObjectIdentifier)?.content();
        let curves = [
            (P256, KeyKind::P256),
            (P384, KeyKind::P384),
            (P521, KeyKind::P521),
        ];
        let known = curves.iter().find(|(known, _)| is_identifier(curve, known));
        known.ok_or(der::ErrorKind::OidMalformed)?.1
    } else {
        return Err(der::ErrorKind::OidMalformed.into());
    };
    Ok((kind, key))
}

/// The algorithm of a DER `AlgorithmIdentifier`, for a key of this kind.
fn verification_algorithm(
    kind: KeyKind,
    algorithm: &[u8],
) -> Result<&'static dyn VerificationAlgorithm, SignatureError> {
    let unknown = |_: der::Error| SignatureError::Unknown;
    let mut fields = Elements::only(algorithm, Tag::Sequence)
        .map_err(unknown)?
        .children();
    let name = fields.expect(Tag::ObjectIdentifier).map_err(unknown)?;
    let is = |known: &ObjectIdentifier| is_identifier(name.content(), known);
    if let Some((_, why)) = BROKEN.iter().find(|(broken, _)| is(broken)) {
        return Err(SignatureError::Broken(why));
    }
    let found: &'static dyn VerificationAlgorithm = match kind {
        KeyKind::Rsa if is(&RSA_SHA256) => &signature::RSA_PKCS1_2048_8192_SHA256,
        KeyKind::Rsa if is(&RSA_SHA384) => &signature::RSA_PKCS1_2048_8192_SHA384,
        KeyKind::Rsa if is(&RSA_SHA512) => &signature::RSA_PKCS1_2048_8192_SHA512,
        KeyKind::Rsa if is(&RSA_PSS) => pss(&mut fields)?,
        KeyKind::P256 if is(&ECDSA_SHA256) => &signature::ECDSA_P256_SHA256_ASN1,
        KeyKind::P256 if is(&ECDSA_SHA384) => &signature::ECDSA_P256_SHA384_ASN1,
        KeyKind::P256 if is(&ECDSA_SHA512) => &signature::ECDSA_P256_SHA512_ASN1,
        KeyKind::P384 if is(&ECDSA_SHA256) => &signature::ECDSA_P384_SHA256_ASN1,
        KeyKind::P384 if is(&ECDSA_SHA384) => &signature::ECDSA_P384_SHA384_ASN1,
        KeyKind::P384 if is(&ECDSA_SHA512) => &signature::ECDSA_P384_SHA512_ASN1,
        KeyKind::P521 if is(&ECDSA_SHA256) => &signature::ECDSA_P521_SHA256_ASN1,
        KeyKind::P521 if is(&ECDSA_SHA384) => &signature::ECDSA_P521_SHA384_ASN1,
        KeyKind::P521 if is(&ECDSA_SHA512) => &signature::ECDSA_P521_SHA512_ASN1,
        KeyKind::Ed25519 if is(&ED25519) => &signature::ED25519,
        _ => return Err(SignatureError::Unknown),
    };
    Ok(found)
}

/// RSASSA-PSS with the parameters (RFC 4055 3.1). The defaults are SHA-1.
fn pss(fields: &mut Elements<'_>) -> Result<&'static dyn VerificationAlgorithm, SignatureError> {
    /// The maximum salt length of the key, which OpenSSL uses by default.
    const LONG: RsaPssSaltLength = RsaPssSaltLength::Max;
    const SHA256_LONG: RsaParameters =
        signature::RSA_PSS_2048_8192_SHA256.with_pss_salt_length(LONG);
    const SHA384_LONG: RsaParameters =
        signature::RSA_PSS_2048_8192_SHA384.with_pss_salt_length(LONG);
    const SHA512_LONG: RsaParameters =
        signature::RSA_PSS_2048_8192_SHA512.with_pss_salt_length(LONG);

    let parameters = PssParameters::parse(fields).map_err(|_| SignatureError::Unknown)?;
    let Some(digest) = parameters.digest else {
        return Err(SignatureError::Broken("SHA-1"));
    };
    if parameters.mask_digest != Some(digest) {
        return Err(SignatureError::Unknown);
    }
    let is = |known: &ObjectIdentifier| is_identifier(digest, known);
    let found: &'static dyn VerificationAlgorithm = match parameters.salt_length {
        32 if is(&SHA256) => &signature::RSA_PSS_2048_8192_SHA256,
        48 if is(&SHA384) => &signature::RSA_PSS_2048_8192_SHA384,
        64 if is(&SHA512) => &signature::RSA_PSS_2048_8192_SHA512,
        _ if is(&SHA256) => &SHA256_LONG,
        _ if is(&SHA384) => &SHA384_LONG,
        _ if is(&SHA512) => &SHA512_LONG,
        _ => return Err(SignatureError::Unknown),
    };
    Ok(found)
}

/// `RSASSA-PSS-params`. The trailer field has a single valid value and is ignored.
struct PssParameters<'a> {
    digest: Option<&'a [u8]>,
    mask_digest: Option<&'a [u8]>,
    salt_length: u32,
}

impl<'a> PssParameters<'a> {
    fn parse(fields: &mut Elements<'a>) -> der::Result<Self> {
        let mut fields = fields.expect(Tag::Sequence)?.children();
        let digest = match fields.optional_context(0)? {
            Some(tagged) => Some(algorithm_name(&mut tagged.children())?.0),
            None => None,
        };
        let mask_digest = match fields.optional_context(1)? {
            Some(tagged) => {
                let (name, mut parameters) = algorithm_name(&mut tagged.children())?;
                if !is_identifier(name, &MASK) {
                    return Err(der::ErrorKind::OidMalformed.into());
                }
                Some(algorithm_name(&mut parameters)?.0)
            }
            None => None,
        };
        let salt_length = match fields.optional_context(2)? {
            Some(tagged) => tagged.children().expect(Tag::Integer)?.small_number()?,
            None => 20,
        };
        Ok(Self {
            digest,
            mask_digest,
            salt_length,
        })
    }
}

/// The identifier in an `AlgorithmIdentifier`, and its parameters.
fn algorithm_name<'a>(fields: &mut Elements<'a>) -> der::Result<(&'a [u8], Elements<'a>)> {
    let mut parts = fields.expect(Tag::Sequence)?.children();
    let name = parts.expect(Tag::ObjectIdentifier)?.content();
    Ok((name, parts))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_pki::{Issued, Pki, Request};

    fn check(issued: &Issued, issuer: &Issued) -> Result<(), SignatureError> {
        let certificate = &issued.certificate;
        verify(
            issuer.certificate.public_key_info(),
            certificate.signature_algorithm(),
            certificate.signed(),
            certificate.signature(),
        )
    }

    fn self_signed(pki: &Pki, key: &[&str], signing: &[&str]) -> Issued {
        let request = Request {
            key,
            signing,
            ..Request::default()
        };
        pki.make(&request, None)
    }

    /// Signs with an existing key, because generating RSA keys is slow.
    fn signed_again(pki: &Pki, key: &Issued, signing: &[&str]) -> Issued {
        let request = Request {
            signing,
            existing_key: Some(&key.key_file),
            ..Request::default()
        };
        pki.make(&request, None)
    }

    const RSA: &[&str] = &["rsa:2048"];
    const PSS: &str = "rsa_padding_mode:pss";

    #[test]
    fn what_openssl_signs_is_verified() {
        let pki = Pki::new();
        let other = pki.root("/CN=Other");
        let check_both = |issued: &Issued, how: &dyn std::fmt::Debug| {
            assert_eq!(check(issued, issued), Ok(()), "{how:?}");
            assert!(check(issued, &other).is_err(), "{how:?}");
        };
        let rsa = self_signed(&pki, RSA, &["-sha256"]);
        check_both(&rsa, &"RSA");
        for signing in [
            &["-sha384"][..],
            &["-sha512"],
            &["-sha256", "-sigopt", PSS],
            &[
                "-sha384",
                "-sigopt",
                PSS,
                "-sigopt",
                "rsa_pss_saltlen:digest",
            ],
            &["-sha512", "-sigopt", PSS, "-sigopt", "rsa_pss_saltlen:max"],
        ] {
            check_both(&signed_again(&pki, &rsa, signing), &signing);
        }
        for (key, digests) in [
            (
                &["ec", "-pkeyopt", "ec_paramgen_curve:P-256"][..],
                &["-sha256", "-sha512"][..],
            ),
            (
                &["ec", "-pkeyopt", "ec_paramgen_curve:P-384"],
                &["-sha256", "-sha384"],
            ),
            (
                &["ec", "-pkeyopt", "ec_paramgen_curve:P-521"],
                &["-sha384", "-sha512"],
            ),
            (
                &["rsa-pss", "-pkeyopt", "rsa_keygen_bits:2048"],
                &["-sha256"],
            ),
        ] {
            for digest in digests {
                check_both(&self_signed(&pki, key, &[digest]), &(key, digest));
            }
        }
        check_both(&self_signed(&pki, &["ed25519"], &[]), &"Ed25519");
    }

    #[test]
    fn a_changed_message_or_signature_is_wrong() {
        let pki = Pki::new();
        for key in [&["rsa:2048"][..], &["ed25519"], Request::default().key] {
            let issued = self_signed(&pki, key, &[]);
            let certificate = &issued.certificate;
            let attempt = |message: &[u8], signature: &[u8]| {
                let (key, algorithm) = (
                    certificate.public_key_info(),
                    certificate.signature_algorithm(),
                );
                verify(key, algorithm, message, signature)
            };
            let (message, signature) = (certificate.signed(), certificate.signature());
            assert_eq!(attempt(message, signature), Ok(()));
            let wrong = Err(SignatureError::Wrong);
            for at in [0, 7, message.len() - 1] {
                let mut changed = message.to_vec();
                changed[at] ^= 1;
                assert_eq!(attempt(&changed, signature), wrong);
            }
            let mut changed = signature.to_vec();
            changed[signature.len() - 1] ^= 1;
            assert_eq!(attempt(message, &changed), wrong);
            assert_eq!(attempt(message, &[]), wrong);
        }
    }

    #[test]
    fn broken_digests_are_refused_by_name() {
        let pki = Pki::new();
        let rsa = self_signed(&pki, RSA, &[]);
        let ec = self_signed(&pki, Request::default().key, &[]);
        for (key, signing, name) in [
            (&rsa, &["-sha1"][..], "SHA-1"),
            (&rsa, &["-md5"], "MD5"),
            (&rsa, &["-sha1", "-sigopt", PSS], "SHA-1"),
            (&ec, &["-sha1"], "SHA-1"),
        ] {
            let issued = signed_again(&pki, key, signing);
            let expected = Err(SignatureError::Broken(name));
            assert_eq!(check(&issued, &issued), expected, "{signing:?}");
        }
    }

    #[test]
    fn short_keys_are_not_usable() {
        let pki = Pki::new();
        let bits = |key: &[&str]| {
            let issued = self_signed(&pki, key, &[]);
            unusable_rsa_bits(issued.certificate.public_key_info())
        };
        assert_eq!(bits(&["rsa:1024"]), Some(1024));
        assert_eq!(bits(&["rsa:2047"]), Some(2047));
        assert_eq!(bits(&["rsa:2048"]), None);
        assert_eq!(bits(Request::default().key), None);
    }

    #[test]
    fn unknown_curves_and_algorithms_are_unknown() {
        let pki = Pki::new();
        let curve = ["ec", "-pkeyopt", "ec_paramgen_curve:secp256k1"];
        let issued = self_signed(&pki, &curve, &["-sha256"]);
        assert_eq!(check(&issued, &issued), Err(SignatureError::Unknown));
        let rsa = self_signed(&pki, RSA, &["-sha256"]);
        let ec = self_signed(&pki, Request::default().key, &["-sha256"]);
        assert_eq!(check(&rsa, &ec), Err(SignatureError::Unknown));
    }
}
