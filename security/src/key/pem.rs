//! The PEM form of private keys: PKCS#8, PKCS#1 and SEC1.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs1KeyDer, PrivatePkcs8KeyDer, PrivateSec1KeyDer};
use zeroize::Zeroizing;

use super::KeyError;
use crate::encrypted_key::{self, TraditionalEncryption};

/// The section of a private key in a PEM text. rustls-pki-types parses PEM as well, but does not wipe its buffers.
pub(super) struct Section<'a> {
    label: &'a str,
    /// In the traditional way.
    encryption: Option<TraditionalEncryption>,
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
            return Self::parse(label, &rest[..end]);
        }
        Err(KeyError::Malformed("there is no private key in it".into()))
    }

    fn parse(label: &'a str, lines: &'a [u8]) -> Result<Self, KeyError> {
        // RFC 1421 4.6.1.1: marks an encrypted key in the older formats of OpenSSL.
        if find(lines, b"Proc-Type: 4,ENCRYPTED").is_none() {
            let encryption = None;
            return Ok(Self {
                label,
                encryption,
                lines,
            });
        }
        const INFORMATION: &[u8] = b"DEK-Info:";
        let malformed = || KeyError::Malformed("its DEK-Info line is missing".into());
        let start = find(lines, INFORMATION).ok_or_else(malformed)? + INFORMATION.len();
        let rest = &lines[start..];
        // RFC 1421 4.4: an empty line ends the headers. DEK-Info is the last that OpenSSL writes.
        let (information, content) = rest.split_at(find(rest, b"\n").ok_or_else(malformed)?);
        Ok(Self {
            label,
            encryption: Some(TraditionalEncryption::parse(information)?),
            lines: content,
        })
    }

    pub(super) fn is_encrypted(&self) -> bool {
        self.label == "ENCRYPTED PRIVATE KEY" || self.encryption.is_some()
    }

    /// Decrypts the DER of an encrypted section. The result is that of a section of this label without encryption.
    pub(super) fn decrypt(
        &self,
        der: &[u8],
        passphrase: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, KeyError> {
        Ok(match &self.encryption {
            Some(encryption) => encryption.decrypt(der, passphrase)?,
            None => encrypted_key::decrypt(der, passphrase)?,
        })
    }

    /// The key of a section, whose DER is not encrypted, or decrypted.
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
