//! The encryption of traditional PEM keys: `Proc-Type: 4,ENCRYPTED` and `DEK-Info` (RFC 1421 4.6.1), with the key derivation of
//! OpenSSL.

use zeroize::Zeroizing;

use super::cipher::Cipher;
use super::{DecryptError, checked};

/// The ciphers by their names in `DEK-Info`.
const CIPHERS: [(&str, Cipher); 4] = [
    ("DES-EDE3-CBC", Cipher::TripleDes),
    ("AES-128-CBC", Cipher::Aes128),
    ("AES-192-CBC", Cipher::Aes192),
    ("AES-256-CBC", Cipher::Aes256),
];

/// How the content of a PEM section is encrypted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Encryption {
    cipher: Cipher,
    vector: Vec<u8>,
}

impl Encryption {
    /// Parses the value of `DEK-Info`: a cipher, and its initialization vector.
    ///
    /// # Errors
    ///
    /// When the cipher is not supported, or the vector has another length.
    pub(crate) fn parse(information: &[u8]) -> Result<Self, DecryptError> {
        let malformed = || DecryptError::Malformed("its DEK-Info line is malformed".to_owned());
        let information = std::str::from_utf8(information).map_err(|_| malformed())?;
        let (name, digits) = information.trim().split_once(',').ok_or_else(malformed)?;
        let mut known = CIPHERS.iter();
        let known = known.find(|(one, _)| *one == name.trim());
        let cipher = known.ok_or(DecryptError::Unknown)?.1;
        let vector = bytes(digits.trim()).filter(|bytes| bytes.len() == cipher.block_bytes());
        Ok(Self {
            cipher,
            vector: vector.ok_or_else(malformed)?,
        })
    }

    /// Decrypts the DER of a key.
    ///
    /// # Errors
    ///
    /// When the passphrase is wrong.
    pub(crate) fn decrypt(
        &self,
        encrypted: &[u8],
        passphrase: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, DecryptError> {
        // The first bytes of the vector are the salt; all ciphers have at least as many.
        let salt = self.vector.first_chunk().ok_or(DecryptError::Unknown)?;
        let key = self.cipher.traditional_key(passphrase, *salt);
        checked(self.cipher.decrypt(&key, &self.vector, encrypted))
    }
}

/// The bytes of hexadecimal digits.
fn bytes(digits: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    let byte = |pair: &[u8; 2]| {
        let pair = std::str::from_utf8(pair).ok()?;
        let is_hexadecimal = pair.bytes().all(|digit| digit.is_ascii_hexdigit());
        u8::from_str_radix(pair, 16).ok().filter(|_| is_hexadecimal)
    };
    pairs
        .iter()
        .map(byte)
        .collect::<Option<_>>()
        .filter(|_| rest.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vector_has_the_length_of_a_block() {
        for (information, is_sound) in [
            ("DES-EDE3-CBC,0011223344556677", true),
            (" AES-128-CBC,00112233445566778899AABBCCDDEEFF\r", true),
            ("AES-128-CBC,0011223344556677", false),
            ("DES-EDE3-CBC,001122334455667", false),
            ("DES-EDE3-CBC,+011223344556677", false),
            ("DES-EDE3-CBC", false),
            ("", false),
        ] {
            let parsed = Encryption::parse(information.as_bytes());
            assert_eq!(parsed.is_ok(), is_sound, "{information}: {parsed:?}");
        }
        let other = Encryption::parse(b"DES-CBC,0011223344556677");
        assert_eq!(other, Err(DecryptError::Unknown));
    }
}
