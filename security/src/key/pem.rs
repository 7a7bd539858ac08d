//! The PEM form of private keys: PKCS#8, PKCS#1 and SEC1.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs1KeyDer, PrivatePkcs8KeyDer, PrivateSec1KeyDer};
use zeroize::Zeroizing;

use super::KeyError;

/// The section of a private key in a PEM text. rustls-pki-types parses PEM as well, but does not wipe its buffers.
pub(super) struct Section<'a> {
    label: &'a str,
    lines: &'a [u8],
}

impl<'a> Section<'a> {
    pub(super) fn first(pem: &'a [u8]) -> Result<Self, KeyError> {
        let mut rest = pem;
        while let Some(begin) = find(rest, b"-----BEGIN ") {
            rest = &rest[begin + b"-----BEGIN ".len()..];
            let Some(end_of_label) = find(rest, b"-----") else {
                break;
            };
            let (label, after) = rest.split_at(end_of_label);
            rest = &after[b"-----".len()..];
            let label = match label {
                b"PRIVATE KEY" => "PRIVATE KEY",
                b"RSA PRIVATE KEY" => "RSA PRIVATE KEY",
                b"EC PRIVATE KEY" => "EC PRIVATE KEY",
                b"ENCRYPTED PRIVATE KEY" => "ENCRYPTED PRIVATE KEY",
                _ => continue,
            };
            let end = find(rest, b"-----END ")
                .ok_or_else(|| KeyError::Malformed("its END line is missing".into()))?;
            let lines = &rest[..end];
            // RFC 1421 4.6.1.1: marks an encrypted key in the older formats of OpenSSL.
            if find(lines, b"Proc-Type: 4,ENCRYPTED").is_some() {
                return Err(KeyError::UnknownEncryption);
            }
            return Ok(Self { label, lines });
        }
        Err(KeyError::Malformed("there is no private key in it".into()))
    }

    pub(super) fn is_encrypted(&self) -> bool {
        self.label == "ENCRYPTED PRIVATE KEY"
    }

    /// The key of a section that is not encrypted.
    pub(super) fn key<'d>(&self, der: &'d [u8]) -> PrivateKeyDer<'d> {
        match self.label {
            "RSA PRIVATE KEY" => PrivatePkcs1KeyDer::from(der).into(),
            "EC PRIVATE KEY" => PrivateSec1KeyDer::from(der).into(),
            _ => PrivatePkcs8KeyDer::from(der).into(),
        }
    }

    pub(super) fn decode(&self) -> Result<Zeroizing<Vec<u8>>, KeyError> {
        const BASE64: GeneralPurpose = GeneralPurpose::new(
            &alphabet::STANDARD,
            GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
        );
        let mut text = Zeroizing::new(Vec::with_capacity(self.lines.len()));
        text.extend(self.lines.iter().filter(|byte| !byte.is_ascii_whitespace()));
        let mut der = Zeroizing::new(vec![0; base64::decoded_len_estimate(text.len())]);
        let length = BASE64
            .decode_slice(text.as_slice(), &mut der)
            .map_err(|error| KeyError::Malformed(error.to_string()))?;
        der.truncate(length);
        Ok(der)
    }
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|window| window == what)
}
