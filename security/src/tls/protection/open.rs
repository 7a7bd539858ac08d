//! Opens records.

use std::ops::Range;

use aws_lc_rs::aead::{Aad, Nonce};
use rustls::ProtocolVersion;

use super::error::RecordError;
use super::keys::{AdditionalData, Keys, Layout, TAG};
use super::{ALERT, APPLICATION_DATA};
use crate::tls::keys::{RecordKeys, TrafficKeys};
use crate::tls::{MAX_FRAGMENT, RECORD_HEADER};

/// Opens the records of one direction.
pub(in crate::tls) struct Opener(Keys);

/// The parts of a sealed record.
struct Sealed {
    nonce: [u8; 12],
    additional: AdditionalData,
    /// The position of the ciphertext and its tag.
    body: Range<usize>,
    /// The length of the ciphertext.
    content: usize,
}

impl Opener {
    pub(in crate::tls) fn new(version: ProtocolVersion, keys: (u64, TrafficKeys)) -> Option<Self> {
        Keys::new(version, keys).map(Self)
    }

    /// Opens one whole record. Appends its content to `plaintext`, and returns its type. After an error `plaintext` is
    /// unchanged.
    pub(in crate::tls) fn open(
        &mut self,
        record: &[u8],
        plaintext: &mut Vec<u8>,
    ) -> Result<u8, RecordError> {
        let sealed = self.sealed(record)?;
        let (ciphertext, tag) = record[sealed.body].split_at(sealed.content);
        let start = plaintext.len();
        plaintext.resize(start + sealed.content, 0);
        let opened = self
            .0
            .key
            .open_separate_gather(
                Nonce::assume_unique_for_key(sealed.nonce),
                Aad::from(sealed.additional),
                ciphertext,
                tag,
                &mut plaintext[start..],
            )
            .map_err(|_| RecordError::Forged)
            .and_then(|()| self.content(record[0], &plaintext[start..]));
        let length = opened.map_or(0, |(_, length)| length);
        plaintext.truncate(start + length);
        opened.map(|(kind, _)| kind)
    }

    /// The keys, unless the kernel has them.
    pub(in crate::tls) fn keys(&self) -> Option<RecordKeys<'_>> {
        self.0.held()
    }

    /// The sequence number of the next record.
    pub(in crate::tls) fn sequence(&self) -> u64 {
        self.0.sequence
    }

    /// Accepts unprotected records from now on, in place only.
    pub(in crate::tls) fn release(&mut self) {
        self.0.is_released = true;
    }

    /// Opens one whole record in place, and returns its type and the position of its content.
    pub(in crate::tls) fn open_in_place(
        &mut self,
        record: &mut [u8],
    ) -> Result<(u8, Range<usize>), RecordError> {
        if self.0.is_released {
            // The kernel could not open an empty record either.
            let kind = *record.first().ok_or(RecordError::Forged)?;
            return Ok((kind, RECORD_HEADER.min(record.len())..record.len()));
        }
        let sealed = self.sealed(record)?;
        let outer = record[0];
        let content = self
            .0
            .key
            .open_in_place(
                Nonce::assume_unique_for_key(sealed.nonce),
                Aad::from(sealed.additional),
                &mut record[sealed.body.clone()],
            )
            .map_err(|_| RecordError::Forged)?;
        let (kind, length) = self.content(outer, content)?;
        Ok((kind, sealed.body.start..sealed.body.start + length))
    }

    /// Parses a sealed record, and assigns the next sequence number to it.
    fn sealed(&mut self, record: &[u8]) -> Result<Sealed, RecordError> {
        let layout = self.0.layout;
        let (header, body) = record
            .split_first_chunk::<RECORD_HEADER>()
            .ok_or(RecordError::Forged)?;
        if !matches!(header[0], ALERT..=APPLICATION_DATA)
            || layout == Layout::Tls13 && header[0] != APPLICATION_DATA
        {
            return Err(RecordError::Unexpected);
        }
        let (explicit, body) = body
            .split_at_checked(layout.explicit_nonce())
            .ok_or(RecordError::Forged)?;
        let content = body.len().checked_sub(TAG).ok_or(RecordError::Forged)?;
        // RFC 8446 5.2: the limit includes type and padding. RFC 5246 6.2.3 permits more only for ciphers with padding.
        if content > MAX_FRAGMENT + usize::from(layout == Layout::Tls13) {
            return Err(RecordError::TooLong);
        }
        let (sequence, mut nonce) = self.0.next()?;
        let salt = nonce.len() - explicit.len();
        if !explicit.is_empty() {
            // RFC 5288 3: the peer chooses the explicit part, and the implicit one does not depend on the sequence number.
            nonce = self.0.iv_bytes();
        }
        nonce[salt..].copy_from_slice(explicit);
        Ok(Sealed {
            nonce,
            additional: layout.additional_data(sequence, header, content),
            body: RECORD_HEADER + explicit.len()..record.len(),
            content,
        })
    }

    /// The type and the length of the content of an opened record. RFC 8446 5.4: zeros may follow the type.
    fn content(&self, outer: u8, opened: &[u8]) -> Result<(u8, usize), RecordError> {
        if self.0.layout != Layout::Tls13 {
            return Ok((outer, opened.len()));
        }
        opened
            .iter()
            .rposition(|byte| *byte != 0)
            .map(|position| (opened[position], position))
            .ok_or(RecordError::Unexpected)
    }
}
