//! The keys of the records of a connection, also in the form that the kernel needs.

use std::fmt;

use rustls::ConnectionTrafficSecrets;
use serde::{Deserialize, Serialize};

use crate::secret::Secret;

/// A direction of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To the peer.
    Sending,
    /// From the peer.
    Receiving,
}

/// The keys of the records of one direction, for the kernel.
pub struct RecordKeys<'a> {
    /// The version, which determines the layout of records.
    pub version: RecordVersion,
    /// The algorithm.
    pub cipher: RecordCipher,
    /// Its key.
    pub key: &'a [u8],
    /// The IV of the nonces. With TLS 1.3, and with ChaCha20-Poly1305, the sequence number is XORed to it (RFC 8446 5.3). With
    /// AES-GCM and TLS 1.2 the last eight bytes are the explicit nonce of the next record, which counts up.
    pub iv: [u8; 12],
    /// The sequence number of the next record.
    pub sequence: u64,
}

/// The version of TLS of records.
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

/// Omits the secrets.
impl fmt::Debug for RecordKeys<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordKeys")
            .field("version", &self.version)
            .field("cipher", &self.cipher)
            .field("sequence", &self.sequence)
            .finish_non_exhaustive()
    }
}

/// The keys of one direction. Unlike those of rustls, they can be constructed and serialized.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct TrafficKeys {
    pub(super) cipher: RecordCipher,
    pub(super) key: Secret,
    pub(super) iv: [u8; 12],
}

impl TrafficKeys {
    /// The keys that rustls has negotiated; `None` for an unsupported cipher.
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
