//! Protects records with keys that a handshake agreed on: sealing out of place, so that plaintext is
//! read once and records are written once, and opening out of place or in place.

use std::ops::Range;

use aws_lc_rs::aead::{
    AES_128_GCM, AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey,
};
use rustls::crypto::cipher::Iv;
use rustls::{AlertDescription, ProtocolVersion};

use super::keys::{RecordCipher, RecordKeys, RecordVersion, TrafficKeys};
use super::{MAX_FRAGMENT, RECORD_HEADER};
use crate::secret::Secret;

/// Types of records (RFC 8446 5.1).
pub(super) const ALERT: u8 = 21;
pub(super) const HANDSHAKE: u8 = 22;
pub(super) const APPLICATION_DATA: u8 = 23;

const TAG: usize = 16;

/// What protection adds to a record, at most: the header, an explicit nonce (TLS 1.2) or the type
/// (TLS 1.3), the tag.
pub(super) const MAX_OVERHEAD: usize = RECORD_HEADER + 8 + TAG;

/// RFC 8446 5.5: AES-GCM may protect 2^24.5 full records with one key. Tests need not send 256 GiB.
const AES_GCM_RECORDS: u64 = if cfg!(test) { 50 } else { 1 << 24 };

/// Why a record cannot be opened or sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum RecordError {
    #[error("a record was changed, lost, repeated or cut on its way")]
    Forged,
    #[error("a record is longer than TLS allows")]
    TooLong,
    #[error("a record is of a type that does not belong here")]
    Unexpected,
    #[error("the connection has used up its keys")]
    Exhausted,
    #[error("there is no room for the records")]
    NoRoom,
}

impl RecordError {
    /// What the peer is told.
    pub(super) fn alert(self) -> AlertDescription {
        match self {
            Self::Forged => AlertDescription::BadRecordMac,
            Self::TooLong => AlertDescription::RecordOverflow,
            Self::Unexpected => AlertDescription::UnexpectedMessage,
            Self::Exhausted | Self::NoRoom => AlertDescription::InternalError,
        }
    }
}

/// How a record looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    /// RFC 8446 5.2: the type is behind the content.
    Tls13,
    /// RFC 5288 3: a part of the nonce is in front of the content.
    Tls12Gcm,
    /// RFC 7905 2.
    Tls12ChaCha,
}

impl Layout {
    fn explicit_nonce(self) -> usize {
        match self {
            Self::Tls12Gcm => 8,
            Self::Tls13 | Self::Tls12ChaCha => 0,
        }
    }

    fn trailer(self) -> usize {
        match self {
            Self::Tls13 => 1 + TAG,
            Self::Tls12Gcm | Self::Tls12ChaCha => TAG,
        }
    }

    /// RFC 5246 6.2.3.3: what is authenticated besides the content of a record. TLS 1.3 takes the header
    /// itself.
    fn additional_data(
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

struct AdditionalData {
    bytes: [u8; 13],
    length: usize,
}

impl AsRef<[u8]> for AdditionalData {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// The keys of one direction.
struct Keys {
    key: LessSafeKey,
    /// The same as it was agreed on, for another program that takes it over.
    secret: Secret,
    iv: Iv,
    layout: Layout,
    sequence: u64,
    /// The kernel protects the records: here they are a header and the content.
    is_released: bool,
}

impl Keys {
    fn new(version: ProtocolVersion, (sequence, keys): (u64, TrafficKeys)) -> Option<Self> {
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

    fn held(&self) -> Option<RecordKeys<'_>> {
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
            // RFC 5288 3: no nonce may come twice. Ours are made of the numbers of the few records that went before;
            // who counts up from here never meets one of them.
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

    /// The number of the next record, and the nonce that goes with it (RFC 8446 5.3; rustls makes those
    /// of TLS 1.2 in the same way).
    fn next(&mut self) -> Result<(u64, [u8; 12]), RecordError> {
        let sequence = self.sequence;
        self.sequence = sequence.checked_add(1).ok_or(RecordError::Exhausted)?;
        let nonce = rustls::crypto::cipher::Nonce::new(&self.iv, sequence).0;
        Ok((sequence, nonce))
    }
}

/// Makes records.
pub(super) struct Sealer(Keys);

impl Sealer {
    pub(super) fn new(version: ProtocolVersion, keys: (u64, TrafficKeys)) -> Option<Self> {
        Keys::new(version, keys).map(Self)
    }

    /// The keys, unless the kernel has them.
    pub(super) fn keys(&self) -> Option<RecordKeys<'_>> {
        self.0.held()
    }

    /// Makes bare records from here on.
    pub(super) fn release(&mut self) {
        self.0.is_released = true;
    }

    /// Counts records that the kernel made with the keys.
    pub(super) fn note_sealed(&mut self, records: u64) {
        self.0.sequence = self.0.sequence.saturating_add(records);
    }

    /// The number of the next record.
    pub(super) fn sequence(&self) -> u64 {
        self.0.sequence
    }

    /// How long a record is.
    pub(super) fn record_length(&self, content: usize) -> usize {
        if self.0.is_released {
            return RECORD_HEADER + content;
        }
        let layout = self.0.layout;
        RECORD_HEADER + layout.explicit_nonce() + content + layout.trailer()
    }

    /// Whether TLS wants other keys before the next record. TLS 1.2 has no way to change them, and
    /// RFC 5246 no limit.
    pub(super) fn wants_update(&self) -> bool {
        self.0.layout == Layout::Tls13
            && *self.0.key.algorithm() != CHACHA20_POLY1305
            && self.0.sequence >= AES_GCM_RECORDS
    }

    /// Writes a record with `content`, of [`MAX_FRAGMENT`] bytes at most, into `record`, which has
    /// [`Self::record_length`].
    pub(super) fn seal(
        &mut self,
        kind: u8,
        content: &[u8],
        record: &mut [u8],
    ) -> Result<(), RecordError> {
        if self.0.is_released {
            return fill_bare(kind, content, record);
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

fn fill_bare(kind: u8, content: &[u8], record: &mut [u8]) -> Result<(), RecordError> {
    let (header, body) = record
        .split_first_chunk_mut::<RECORD_HEADER>()
        .ok_or(RecordError::TooLong)?;
    let [high, low] = length_bytes(content.len());
    *header = [kind, 3, 3, high, low];
    body.copy_from_slice(content);
    Ok(())
}

/// Opens records.
pub(super) struct Opener(Keys);

/// A record's parts, before it is opened.
struct Sealed {
    nonce: [u8; 12],
    additional: AdditionalData,
    /// Where the ciphertext and its tag are.
    body: Range<usize>,
    /// How long the ciphertext is.
    content: usize,
}

impl Opener {
    pub(super) fn new(version: ProtocolVersion, keys: (u64, TrafficKeys)) -> Option<Self> {
        Keys::new(version, keys).map(Self)
    }

    /// Opens one whole record. Appends its content to `plaintext`, and gives its type. After an error
    /// `plaintext` is as before.
    pub(super) fn open(
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
    pub(super) fn keys(&self) -> Option<RecordKeys<'_>> {
        self.0.held()
    }

    /// The number of the next record.
    pub(super) fn sequence(&self) -> u64 {
        self.0.sequence
    }

    /// Takes bare records from here on, in place only.
    pub(super) fn release(&mut self) {
        self.0.is_released = true;
    }

    /// Opens one whole record where it is, and gives its type and the place of its content.
    pub(super) fn open_in_place(
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

    /// Takes a record apart, and its number from the count.
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
        // RFC 8446 5.2 counts the type, and padding. RFC 5246 6.2.3 allows more, for ciphers that pad.
        if content > MAX_FRAGMENT + usize::from(layout == Layout::Tls13) {
            return Err(RecordError::TooLong);
        }
        let (sequence, mut nonce) = self.0.next()?;
        let salt = nonce.len() - explicit.len();
        if !explicit.is_empty() {
            // RFC 5288 3: the peer chose this part, and the other is not mixed with its number.
            nonce = iv_bytes(&self.0.iv);
        }
        nonce[salt..].copy_from_slice(explicit);
        Ok(Sealed {
            nonce,
            additional: layout.additional_data(sequence, header, content),
            body: RECORD_HEADER + explicit.len()..record.len(),
            content,
        })
    }

    /// The type and the length of what is in an opened record. RFC 8446 5.4: zeros may follow the type.
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

fn iv_bytes(iv: &Iv) -> [u8; 12] {
    // Number 0 changes nothing.
    rustls::crypto::cipher::Nonce::new(iv, 0).0
}

/// No record is longer than 18 KiB.
fn length_bytes(length: usize) -> [u8; 2] {
    u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes()
}
