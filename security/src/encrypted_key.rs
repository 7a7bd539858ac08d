//! Private keys that are encrypted with a passphrase: PKCS#8 with PBES2 (RFC 8018), PBKDF2 and AES in CBC mode, which OpenSSL
//! writes by default. The cryptographic library has these, but not the format.

use std::num::NonZeroU32;

use aws_lc_rs::cipher::{
    AES_128, AES_192, AES_256, Algorithm, DecryptionContext, PaddedBlockDecryptingKey,
    UnboundCipherKey,
};
use aws_lc_rs::iv::FixedLength;
use aws_lc_rs::pbkdf2;
use der::Tag;
use der::asn1::ObjectIdentifier;
use zeroize::Zeroizing;

use crate::asn1::{Element, Elements, is_identifier};

/// The maximum number of rounds: some seconds. OpenSSL uses 2048 by default.
const MAX_ROUNDS: u32 = 10_000_000;

const PBES2: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.5.13");
const PBKDF2: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.5.12");

/// The ciphers, with the lengths of their keys.
const CIPHERS: [(ObjectIdentifier, &Algorithm, usize); 3] = [
    (
        ObjectIdentifier::new_unwrap("2.16.840.1.101.3.4.1.2"),
        &AES_128,
        16,
    ),
    (
        ObjectIdentifier::new_unwrap("2.16.840.1.101.3.4.1.22"),
        &AES_192,
        24,
    ),
    (
        ObjectIdentifier::new_unwrap("2.16.840.1.101.3.4.1.42"),
        &AES_256,
        32,
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

/// Why a key cannot be decrypted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum DecryptError {
    /// It is encrypted in another way.
    Unknown,
    /// The passphrase is not that of the key.
    WrongPassphrase,
    /// The structure is malformed.
    Malformed(String),
}

/// How a key is encrypted.
struct Encryption<'a> {
    function: pbkdf2::Algorithm,
    salt: &'a [u8],
    rounds: NonZeroU32,
    cipher: &'static Algorithm,
    key_bytes: usize,
    vector: [u8; 16],
    encrypted: &'a [u8],
}

/// Decrypts a DER `EncryptedPrivateKeyInfo`: the result is PKCS#8.
///
/// # Errors
///
/// When the passphrase is wrong, the encryption is not supported, or the key is malformed.
pub(crate) fn decrypt(der: &[u8], passphrase: &[u8]) -> Result<Zeroizing<Vec<u8>>, DecryptError> {
    let encryption = Encryption::parse(der)?;
    let mut key = Zeroizing::new(vec![0; encryption.key_bytes]);
    let (salt, rounds) = (encryption.salt, encryption.rounds);
    pbkdf2::derive(encryption.function, rounds, salt, passphrase, &mut key);
    let wrong = |_| DecryptError::WrongPassphrase;
    let key = UnboundCipherKey::new(encryption.cipher, &key).map_err(wrong)?;
    let key = PaddedBlockDecryptingKey::cbc_pkcs7(key).map_err(wrong)?;
    let context = DecryptionContext::Iv128(FixedLength::from(&encryption.vector));
    let mut text = Zeroizing::new(encryption.encrypted.to_vec());
    let length = key.decrypt(&mut text, context).map_err(wrong)?.len();
    text.truncate(length);
    // With a wrong passphrase the padding is right once in 256 times.
    Elements::only(&text, Tag::Sequence).map_err(|_| DecryptError::WrongPassphrase)?;
    Ok(text)
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
        let known = known.find(|(one, ..)| is_identifier(name, one));
        let (identifier, algorithm, key_bytes) = known.ok_or(DecryptError::Unknown)?;
        let vector = cipher.children();
        let vector = after_identifier(vector, identifier)?;
        let vector = vector.content().try_into();
        Ok(Self {
            function,
            salt,
            rounds,
            cipher: algorithm,
            key_bytes: *key_bytes,
            vector: vector.map_err(|_| DecryptError::Unknown)?,
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
