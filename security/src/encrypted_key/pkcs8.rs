//! PKCS#8 with PBES2 (RFC 8018): PBKDF2, and AES or triple DES in CBC mode.

use std::num::NonZeroU32;

use aws_lc_rs::pbkdf2;
use der::Tag;
use der::asn1::ObjectIdentifier;
use zeroize::Zeroizing;

use super::cipher::Cipher;
use super::{DecryptError, checked};
use crate::asn1::{Element, Elements, is_identifier};

/// The maximum number of rounds: some seconds. OpenSSL uses 2048 by default.
const MAX_ROUNDS: u32 = 10_000_000;

const PBES2: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.5.13");
const PBKDF2: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.5.12");

/// The ciphers. Earlier versions of OpenSSL write triple DES.
const CIPHERS: [(ObjectIdentifier, Cipher); 4] = [
    (
        ObjectIdentifier::new_unwrap("2.16.840.1.101.3.4.1.2"),
        Cipher::Aes128,
    ),
    (
        ObjectIdentifier::new_unwrap("2.16.840.1.101.3.4.1.22"),
        Cipher::Aes192,
    ),
    (
        ObjectIdentifier::new_unwrap("2.16.840.1.101.3.4.1.42"),
        Cipher::Aes256,
    ),
    (
        ObjectIdentifier::new_unwrap("1.2.840.113549.3.7"),
        Cipher::TripleDes,
    ),
];

/// The pseudo-random functions of PBKDF2.
const FUNCTIONS: [(ObjectIdentifier, pbkdf2::Algorithm); 4] = [
    (
        ObjectIdentifier::new_unwrap("1.2.840.113549.2.7"),
        pbkdf2::PBKDF2_HMAC_SHA1,
    ),
    (
        ObjectIdentifier::new_unwrap("1.2.840.113549.2.9"),
        pbkdf2::PBKDF2_HMAC_SHA256,
    ),
    (
        ObjectIdentifier::new_unwrap("1.2.840.113549.2.10"),
        pbkdf2::PBKDF2_HMAC_SHA384,
    ),
    (
        ObjectIdentifier::new_unwrap("1.2.840.113549.2.11"),
        pbkdf2::PBKDF2_HMAC_SHA512,
    ),
];

/// How a key is encrypted.
struct Encryption<'a> {
    function: pbkdf2::Algorithm,
    salt: &'a [u8],
    rounds: NonZeroU32,
    cipher: Cipher,
    vector: &'a [u8],
    encrypted: &'a [u8],
}

/// Decrypts a DER `EncryptedPrivateKeyInfo`: the result is PKCS#8.
///
/// # Errors
///
/// When the passphrase is wrong, the encryption is not supported, or the key is malformed.
pub(crate) fn decrypt(der: &[u8], passphrase: &[u8]) -> Result<Zeroizing<Vec<u8>>, DecryptError> {
    let encryption = Encryption::parse(der)?;
    let mut key = Zeroizing::new(vec![0; encryption.cipher.key_bytes()]);
    let (salt, rounds) = (encryption.salt, encryption.rounds);
    pbkdf2::derive(encryption.function, rounds, salt, passphrase, &mut key);
    let cipher = encryption.cipher;
    checked(cipher.decrypt(&key, encryption.vector, encryption.encrypted))
}

impl<'a> Encryption<'a> {
    fn parse(der: &'a [u8]) -> Result<Self, DecryptError> {
        let malformed = |error: der::Error| DecryptError::Malformed(error.to_string());
        let mut info = Elements::only(der, Tag::Sequence)
            .map_err(malformed)?
            .children();
        let algorithm = info.expect(Tag::Sequence).map_err(malformed)?;
        let encrypted = info.expect(Tag::OctetString).map_err(malformed)?.content();
        let scheme = parameters(&algorithm, &PBES2)?;
        let mut scheme = scheme.children();
        let derivation = scheme.expect(Tag::Sequence).map_err(malformed)?;
        let cipher = scheme.expect(Tag::Sequence).map_err(malformed)?;

        let mut derivation = parameters(&derivation, &PBKDF2)?.children();
        let salt = derivation
            .expect(Tag::OctetString)
            .map_err(malformed)?
            .content();
        let rounds = derivation
            .expect(Tag::Integer)
            .and_then(|count| count.small_number());
        let rounds = rounds.map_err(malformed)?;
        let rounds = NonZeroU32::new(rounds).filter(|rounds| rounds.get() <= MAX_ROUNDS);
        let rounds = rounds.ok_or(DecryptError::Unknown)?;
        derivation.optional(Tag::Integer).map_err(malformed)?;
        let function = match derivation.optional(Tag::Sequence).map_err(malformed)? {
            // RFC 8018 A.2: hmacWithSHA1 is the default.
            None => pbkdf2::PBKDF2_HMAC_SHA1,
            Some(function) => {
                let identifier = identifier(&function)?;
                let mut known = FUNCTIONS.iter();
                let known = known.find(|(one, _)| is_identifier(identifier, one));
                known.ok_or(DecryptError::Unknown)?.1
            }
        };

        let name = identifier(&cipher)?;
        let mut known = CIPHERS.iter();
        let known = known.find(|(one, _)| is_identifier(name, one));
        let (identifier, algorithm) = known.ok_or(DecryptError::Unknown)?;
        let vector = cipher.children();
        let vector = after_identifier(vector, identifier)?.content();
        if vector.len() != algorithm.block_bytes() {
            return Err(DecryptError::Unknown);
        }
        Ok(Self {
            function,
            salt,
            rounds,
            cipher: *algorithm,
            vector,
            encrypted,
        })
    }
}

/// The identifier of an `AlgorithmIdentifier`.
fn identifier<'a>(algorithm: &Element<'a>) -> Result<&'a [u8], DecryptError> {
    let found = algorithm.children().expect(Tag::ObjectIdentifier);
    let found = found.map_err(|error| DecryptError::Malformed(error.to_string()))?;
    Ok(found.content())
}

/// The parameters of an `AlgorithmIdentifier` with this identifier, which are a sequence.
fn parameters<'a>(
    algorithm: &Element<'a>,
    expected: &ObjectIdentifier,
) -> Result<Element<'a>, DecryptError> {
    let found = after_identifier(algorithm.children(), expected)?;
    match found.tag() {
        Tag::Sequence => Ok(found),
        _ => Err(DecryptError::Unknown),
    }
}

fn after_identifier<'a>(
    mut elements: Elements<'a>,
    expected: &ObjectIdentifier,
) -> Result<Element<'a>, DecryptError> {
    let malformed = |error: der::Error| DecryptError::Malformed(error.to_string());
    let found = elements.expect(Tag::ObjectIdentifier).map_err(malformed)?;
    if !is_identifier(found.content(), expected) {
        return Err(DecryptError::Unknown);
    }
    elements.next().map_err(malformed)
}
