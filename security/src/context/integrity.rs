//! Integrity-only tokens. GridFTP clients do not send them, but programs that request the GSSAPI quality of protection
//! "OPENSSL_BIG" do.
//!
//! A token consists of 1a 03 00, the length of the code, the code, and the message. The code is a sequence number, the
//! message's length and an AES-GMAC tag. Observed from globus-gssapi-gsi 14.20.

use std::fmt;

use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use rustls::CipherSuite;
use serde::{Deserialize, Serialize};

use super::error::ContextError;
use crate::secret::Secret;
use crate::tls::Connection;

const HEADER: [u8; 3] = [0x1a, 3, 0];
const KEY_LABEL: &[u8] = b"EXPERIMENTAL-GSI-MAC-KEY";
const IV_LABEL: &[u8] = b"EXPERIMENTAL-GSI-MAC-IV-FIXED";

/// The exported bytes for the nonce, of which the first four are used.
const IV_EXPORT: usize = 12;
const IV_FIXED: usize = 4;

const SEQUENCE: usize = 8;
const LENGTH: usize = 4;
const TAG: usize = 16;
const CODE: usize = SEQUENCE + LENGTH + TAG;

/// Whether a token is an integrity-only token.
pub(super) fn is_integrity_token(token: &[u8]) -> bool {
    token.first() == Some(&HEADER[0])
}

/// Verifies the peer's tokens.
pub(super) struct IntegrityKeys {
    key: LessSafeKey,
    fixed: [u8; IV_FIXED],
    sequence: u64,
}

/// The secrets of the keys, which can be passed to another process.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct IntegritySecrets {
    key: Secret,
    fixed: [u8; IV_FIXED],
}

impl IntegritySecrets {
    /// The secrets of a connection; `None` for ChaCha20-Poly1305, for which GSI defines no such tokens.
    pub(super) fn new(tls: &Connection) -> Result<Option<Self>, ContextError> {
        let suite = tls.suite().map(|suite| suite.suite());
        let key = match suite {
            Some(
                CipherSuite::TLS13_AES_256_GCM_SHA384
                | CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384
                | CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
            ) => tls.export::<32>(KEY_LABEL)?.to_vec(),
            Some(
                CipherSuite::TLS13_AES_128_GCM_SHA256
                | CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
                | CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
            ) => tls.export::<16>(KEY_LABEL)?.to_vec(),
            _ => return Ok(None),
        };
        let iv = tls.export::<IV_EXPORT>(IV_LABEL)?;
        let (fixed, _) = iv.split_first_chunk().expect("it is longer");
        Ok(Some(Self {
            key: Secret::new(key),
            fixed: *fixed,
        }))
    }
}

impl IntegrityKeys {
    /// The keys of a connection, beginning with this sequence number.
    pub(super) fn new(
        secrets: Option<&IntegritySecrets>,
        sequence: u64,
    ) -> Result<Self, ContextError> {
        let secrets = secrets.ok_or_else(|| {
            ContextError::protocol("the peer has sent an integrity-only token, which the cipher suite does not support")
        })?;
        let key = secrets.key.bytes();
        let algorithm = match key.len() {
            16 => &AES_128_GCM,
            _ => &AES_256_GCM,
        };
        let key = UnboundKey::new(algorithm, key).map_err(|_| wrong())?;
        Ok(Self {
            key: LessSafeKey::new(key),
            fixed: secrets.fixed,
            sequence,
        })
    }

    /// The sequence number of the next token.
    pub(super) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// The message of the next token.
    pub(super) fn open(&mut self, token: &[u8]) -> Result<Vec<u8>, ContextError> {
        let (code, message) = parse(token).ok_or_else(wrong)?;
        let (sequence, code) = code.split_at(SEQUENCE);
        let (length, tag) = code.split_at(LENGTH);
        if sequence != self.sequence.to_be_bytes() {
            return Err(ContextError::protocol(
                "an integrity-only token is not the next one: it was repeated, or others are missing",
            ));
        }
        let is_whole =
            u32::try_from(message.len()).is_ok_and(|actual| length == actual.to_be_bytes());
        if !is_whole {
            return Err(wrong());
        }
        let mut nonce = [0; SEQUENCE + IV_FIXED];
        nonce[..SEQUENCE].copy_from_slice(sequence);
        nonce[SEQUENCE..].copy_from_slice(&self.fixed);
        self.key
            .open_separate_gather(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(message),
                &[],
                tag,
                &mut [],
            )
            .map_err(|_| wrong())?;
        self.sequence = self.sequence.checked_add(1).ok_or_else(wrong)?;
        Ok(message.to_vec())
    }
}

#[cfg(test)]
impl IntegrityKeys {
    /// A token as globus-gssapi-gsi makes it.
    pub(super) fn seal(&self, sequence: u64, message: &[u8]) -> Vec<u8> {
        let mut nonce = sequence.to_be_bytes().to_vec();
        nonce.extend(self.fixed);
        let nonce = Nonce::try_assume_unique_for_key(&nonce).expect("12 bytes");
        let tag = self
            .key
            .seal_in_place_separate_tag(nonce, Aad::from(message), &mut [])
            .expect("sealed");
        let length = u32::try_from(message.len()).expect("short");
        [
            &[0x1a, 3, 0, 0, 28][..],
            &sequence.to_be_bytes(),
            &length.to_be_bytes(),
            tag.as_ref(),
            message,
        ]
        .concat()
    }
}

/// The code and the message.
fn parse(token: &[u8]) -> Option<(&[u8], &[u8])> {
    let rest = token.strip_prefix(&HEADER)?;
    let (length, rest) = rest.split_first_chunk()?;
    if usize::from(u16::from_be_bytes(*length)) != CODE {
        return None;
    }
    rest.split_at_checked(CODE)
}

fn wrong() -> ContextError {
    ContextError::protocol("an integrity-only token was changed on its way, or is malformed")
}

impl fmt::Debug for IntegrityKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IntegrityKeys").finish_non_exhaustive()
    }
}
