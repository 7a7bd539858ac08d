//! Private keys that are encrypted with a passphrase: PKCS#8 with PBES2, which OpenSSL writes by default, and the traditional
//! encryption of PEM, which many keys of users have. The cryptographic library has the ciphers, but not the formats.

mod cipher;
mod pkcs8;
mod traditional;

use der::Tag;
use zeroize::Zeroizing;

use crate::asn1::Elements;

pub(crate) use pkcs8::decrypt;
pub(crate) use traditional::Encryption as TraditionalEncryption;

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

/// What decryption yields is a key: with a wrong passphrase the padding is right once in 256 times.
fn checked(text: Option<Zeroizing<Vec<u8>>>) -> Result<Zeroizing<Vec<u8>>, DecryptError> {
    let text = text.ok_or(DecryptError::WrongPassphrase)?;
    Elements::only(&text, Tag::Sequence).map_err(|_| DecryptError::WrongPassphrase)?;
    Ok(text)
}
