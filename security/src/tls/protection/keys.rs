//! The keys of one direction, and the layout of its records.

use aws_lc_rs::aead::{
    AES_128_GCM, AES_256_GCM, Algorithm, CHACHA20_POLY1305, LessSafeKey, UnboundKey,
};
use rustls::ProtocolVersion;
use rustls::crypto::cipher::Iv;

use super::error::RecordError;
use crate::secret::Secret;
use crate::tls::RECORD_HEADER;
use crate::tls::keys::{RecordCipher, RecordKeys, RecordVersion, TrafficKeys};

pub(super) const TAG: usize = 16;

/// The most bytes that protection adds to a record: the header, an explicit nonce (TLS 1.2) or the type (TLS 1.3), and the
/// tag.
pub(in crate::tls) const MAX_OVERHEAD: usize = RECORD_HEADER + 8 + TAG;

/// The layout of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// RFC 8446 5.2: the type follows the content.
    Tls13,
    /// RFC 5288 3: a part of the nonce precedes the content.
    Tls12Gcm,
    /// RFC 7905 2.
    Tls12ChaCha,
}

impl Layout {
    pub(super) fn explicit_nonce(self) -> usize {
        match self {
            Self::Tls12Gcm => 8,
            Self::Tls13 | Self::Tls12ChaCha => 0,
        }
    }

    pub(super) fn trailer(self) -> usize {
        match self {
            Self::Tls13 => 1 + TAG,
            Self::Tls12Gcm | Self::Tls12ChaCha => TAG,
        }
    }

    /// The additional authenticated data (RFC 5246 6.2.3.3). In TLS 1.3 it is the header.
    pub(super) fn additional_data(
        self,
        sequence: u64,
        header: &[u8; RECORD_HEADER],
        content: usize,
    ) -> AdditionalData {
        let mut bytes = [0; 13];
        if self == Self::Tls13 {
            bytes[..RECORD_HEADER].copy_from_slice(header);
            return AdditionalData { bytes, length: 5 };
        }
        bytes[..8].copy_from_slice(&sequence.to_be_bytes());
        bytes[8..11].copy_from_slice(&header[..3]);
        bytes[11..].copy_from_slice(&length_bytes(content));
        AdditionalData { bytes, length: 13 }
    }
}

pub(super) struct AdditionalData {
    bytes: [u8; 13],
    length: usize,
}

impl AsRef<[u8]> for AdditionalData {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// The keys of one direction.
pub(super) struct Keys {
    pub(super) key: LessSafeKey,
    /// The same key in bytes, for the kernel.
    secret: Secret,
    iv: Iv,
    pub(super) layout: Layout,
    pub(super) sequence: u64,
    /// The kernel protects the records. Here they consist of a header and the content.
    pub(super) is_released: bool,
}

impl Keys {
    pub(super) fn new(
        version: ProtocolVersion,
        (sequence, keys): (u64, TrafficKeys),
    ) -> Option<Self> {
        let TrafficKeys { cipher, key, iv } = keys;
        let algorithm: &'static Algorithm = match cipher {
            RecordCipher::Aes128Gcm => &AES_128_GCM,
            RecordCipher::Aes256Gcm => &AES_256_GCM,
            RecordCipher::ChaCha20Poly1305 => &CHACHA20_POLY1305,
        };
        let layout = match version {
            ProtocolVersion::TLSv1_3 => Layout::Tls13,
            _ if *algorithm == CHACHA20_POLY1305 => Layout::Tls12ChaCha,
            _ => Layout::Tls12Gcm,
        };
        Some(Self {
            key: LessSafeKey::new(UnboundKey::new(algorithm, key.bytes()).ok()?),
            secret: key,
            iv: Iv::new(iv),
            layout,
            sequence,
            is_released: false,
        })
    }

    pub(super) fn held(&self) -> Option<RecordKeys<'_>> {
        if self.is_released {
            return None;
        }
        let algorithm = self.key.algorithm();
        let cipher = if *algorithm == AES_128_GCM {
            RecordCipher::Aes128Gcm
        } else if *algorithm == AES_256_GCM {
            RecordCipher::Aes256Gcm
        } else {
            RecordCipher::ChaCha20Poly1305
        };
        let mut iv = iv_bytes(&self.iv);
        if self.layout == Layout::Tls12Gcm {
            // RFC 5288 3: a nonce must not be used twice. This engine has used those of the few records before. The kernel
            // counts up from a value with another highest bit, so that it does not reach them.
            iv[4] ^= 0x80;
        }
        Some(RecordKeys {
            version: match self.layout {
                Layout::Tls13 => RecordVersion::Tls13,
                Layout::Tls12Gcm | Layout::Tls12ChaCha => RecordVersion::Tls12,
            },
            cipher,
            key: self.secret.bytes(),
            iv,
            sequence: self.sequence,
        })
    }

    /// The sequence number of the next record, and its nonce (RFC 8446 5.3; rustls derives those of TLS 1.2 in the same way).
    pub(super) fn next(&mut self) -> Result<(u64, [u8; 12]), RecordError> {
        let sequence = self.sequence;
        self.sequence = sequence.checked_add(1).ok_or(RecordError::Exhausted)?;
        let nonce = rustls::crypto::cipher::Nonce::new(&self.iv, sequence).0;
        Ok((sequence, nonce))
    }

    /// The IV without a record number.
    pub(super) fn iv_bytes(&self) -> [u8; 12] {
        iv_bytes(&self.iv)
    }
}

fn iv_bytes(iv: &Iv) -> [u8; 12] {
    // XORing the sequence number 0 leaves the IV unchanged.
    rustls::crypto::cipher::Nonce::new(iv, 0).0
}

/// The length field of a record. No record is longer than 18 KiB.
pub(super) fn length_bytes(length: usize) -> [u8; 2] {
    u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes()
}
