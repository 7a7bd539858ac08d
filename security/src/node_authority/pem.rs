//! A certificate chain and its key in one PEM text.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

use crate::certificate::Certificate;
use crate::key::{KeyError, PrivateKey};

/// RFC 7468 2
const LINE: usize = 64;

/// The key and the chain, leaf first, in one text, which is replaced in one step.
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
    let sections = [("PRIVATE KEY", key.bytes())]
        .into_iter()
        .chain(chain.iter().map(|one| ("CERTIFICATE", one.der())));
    // A buffer that grows leaves copies of the key in freed memory.
    let bytes = sections.clone().map(|(_, der)| 2 * der.len() + 128).sum();
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
