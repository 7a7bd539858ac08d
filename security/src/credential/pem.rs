//! A certificate chain and its key in one PEM text.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

use crate::certificate::Certificate;
use crate::key::{KeyError, PrivateKey};

/// RFC 7468 2
const LINE: usize = 64;

/// A chain, leaf first, and its key in one text, in the order of proxy files: the first certificate, its key, and the
/// certificates above. Globus programs read the parts one after the other.
///
/// # Errors
///
/// When the key was read from a file: those stay there.
pub fn credential_pem(
    key: &PrivateKey,
    chain: &[Certificate],
) -> Result<Zeroizing<Vec<u8>>, KeyError> {
    let Some(key) = key.exported() else {
        let reason = "it was not made here".to_owned();
        return Err(KeyError::Malformed(reason));
    };
    let mut sections: Vec<_> = chain.iter().map(|one| ("CERTIFICATE", one.der())).collect();
    sections.insert(sections.len().min(1), ("PRIVATE KEY", key.bytes()));
    // A buffer that grows leaves copies of the key in freed memory.
    let bytes = sections.iter().map(|(_, der)| 2 * der.len() + 128).sum();
    let mut text = Zeroizing::new(Vec::with_capacity(bytes));
    for (label, der) in sections {
        text.extend_from_slice(format!("-----BEGIN {label}-----\n").as_bytes());
        let encoded = Zeroizing::new(STANDARD.encode(der));
        for line in encoded.as_bytes().chunks(LINE) {
            text.extend_from_slice(line);
            text.push(b'\n');
        }
        text.extend_from_slice(format!("-----END {label}-----\n").as_bytes());
    }
    Ok(text)
}
