//! The keys of a connection, with which the kernel protects its records.

use std::fmt;

use rustls::ConnectionTrafficSecrets;
use serde::{Deserialize, Serialize};

use crate::secret::Secret;

/// One of the two ways of a connection, from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To the peer.
    Sending,
    /// From the peer.
    Receiving,
}

/// What the records of one direction are protected with.
pub struct RecordKeys<'a> {
    /// How records look.
    pub version: RecordVersion,
    /// The algorithm.
    pub cipher: RecordCipher,
    /// Its key.
    pub key: &'a [u8],
    /// What nonces are made of: with TLS 1.3, and with ChaCha20-Poly1305, the number of a record is added (RFC 8446
    /// 5.3). With AES-GCM and TLS 1.2 the last eight bytes are the explicit nonce of the next record, and count up.
    pub iv: [u8; 12],
    /// The number of the next record.
    pub sequence: u64,
}

/// The version of TLS, as far as records go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordVersion {
    /// TLS 1.2.
    Tls12,
    /// TLS 1.3.
    Tls13,
}

/// An algorithm that protects records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RecordCipher {
    /// AES-GCM with a key of 128 bits.
    Aes128Gcm,
    /// AES-GCM with a key of 256 bits.
    Aes256Gcm,
    /// ChaCha20-Poly1305.
    ChaCha20Poly1305,
}

/// Without the secrets.
impl fmt::Debug for RecordKeys<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordKeys")
            .field("version", &self.version)
            .field("cipher", &self.cipher)
            .field("sequence", &self.sequence)
            .finish_non_exhaustive()
    }
}

/// The keys of one direction, as values of our own: those of rustls can be neither made nor sent elsewhere.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct TrafficKeys {
    pub(super) cipher: RecordCipher,
    pub(super) key: Secret,
    pub(super) iv: [u8; 12],
}

impl TrafficKeys {
    /// The keys that rustls agreed on; `None` for a cipher that we do not use.
    pub(super) fn new(secrets: &ConnectionTrafficSecrets) -> Option<Self> {
        let (cipher, key, iv) = match secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (RecordCipher::Aes128Gcm, key, iv),
            ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (RecordCipher::Aes256Gcm, key, iv),
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => {
                (RecordCipher::ChaCha20Poly1305, key, iv)
            }
            _ => return None,
        };
        Some(Self {
            cipher,
            key: Secret::new(key.as_ref().to_vec()),
            iv: iv.as_ref().try_into().ok()?,
        })
    }
}
