//! Seals records.

use aws_lc_rs::aead::{Aad, CHACHA20_POLY1305, Nonce};
use rustls::ProtocolVersion;

use super::APPLICATION_DATA;
use super::error::RecordError;
use super::keys::{Keys, Layout, length_bytes};
use crate::tls::RECORD_HEADER;
use crate::tls::keys::{RecordKeys, TrafficKeys};

/// RFC 8446 5.5: AES-GCM may protect 2^24.5 full records with one key. Tests use a lower limit instead of sending 256 GiB.
const AES_GCM_RECORDS: u64 = if cfg!(test) { 50 } else { 1 << 24 };

/// Seals the records of one direction.
pub(in crate::tls) struct Sealer(Keys);

impl Sealer {
    pub(in crate::tls) fn new(version: ProtocolVersion, keys: (u64, TrafficKeys)) -> Option<Self> {
        Keys::new(version, keys).map(Self)
    }

    /// The keys, unless the kernel has them.
    pub(in crate::tls) fn keys(&self) -> Option<RecordKeys<'_>> {
        self.0.held()
    }

    /// Makes unprotected records from now on.
    pub(in crate::tls) fn release(&mut self) {
        self.0.is_released = true;
    }

    /// Counts records that the kernel has sealed with the keys.
    pub(in crate::tls) fn note_sealed(&mut self, records: u64) {
        self.0.sequence = self.0.sequence.saturating_add(records);
    }

    /// The sequence number of the next record.
    pub(in crate::tls) fn sequence(&self) -> u64 {
        self.0.sequence
    }

    /// The length of a record with this length of content.
    pub(in crate::tls) fn record_length(&self, content: usize) -> usize {
        if self.0.is_released {
            return RECORD_HEADER + content;
        }
        let layout = self.0.layout;
        RECORD_HEADER + layout.explicit_nonce() + content + layout.trailer()
    }

    /// Whether the limit of the key is reached. TLS 1.2 has no key updates, and RFC 5246 defines no limit.
    pub(in crate::tls) fn wants_update(&self) -> bool {
        self.0.layout == Layout::Tls13
            && *self.0.key.algorithm() != CHACHA20_POLY1305
            && self.0.sequence >= AES_GCM_RECORDS
    }

    /// Writes a record with `content`, of [`MAX_FRAGMENT`] bytes at most, into `record`, which has
    /// [`Self::record_length`].
    pub(in crate::tls) fn seal(
        &mut self,
        kind: u8,
        content: &[u8],
        record: &mut [u8],
    ) -> Result<(), RecordError> {
        if self.0.is_released {
            return fill_unprotected(kind, content, record);
        }
        let layout = self.0.layout;
        let (sequence, nonce) = self.0.next()?;
        let (header, body) = record
            .split_first_chunk_mut::<RECORD_HEADER>()
            .ok_or(RecordError::TooLong)?;
        let (explicit, body) = body.split_at_mut(layout.explicit_nonce());
        let (ciphertext, trailer) = body.split_at_mut(content.len());

        let length = explicit.len() + ciphertext.len() + trailer.len();
        let (outer, inner) = match layout {
            Layout::Tls13 => (APPLICATION_DATA, &[kind][..]),
            Layout::Tls12Gcm | Layout::Tls12ChaCha => (kind, &[][..]),
        };
        let [high, low] = length_bytes(length);
        *header = [outer, 3, 3, high, low];
        explicit.copy_from_slice(&nonce[nonce.len() - explicit.len()..]);
        let additional = layout.additional_data(sequence, header, content.len());
        self.0
            .key
            .seal_out_of_place_scatter(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(additional),
                content,
                ciphertext,
                inner,
                trailer,
            )
            .map_err(|_| RecordError::TooLong)
    }
}

fn fill_unprotected(kind: u8, content: &[u8], record: &mut [u8]) -> Result<(), RecordError> {
    let (header, body) = record
        .split_first_chunk_mut::<RECORD_HEADER>()
        .ok_or(RecordError::TooLong)?;
    let [high, low] = length_bytes(content.len());
    *header = [kind, 3, 3, high, low];
    body.copy_from_slice(content);
    Ok(())
}
