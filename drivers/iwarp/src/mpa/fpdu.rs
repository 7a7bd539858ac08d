//! FPDUs: the length before a segment, and the padding and checksum after it (RFC 5044 4).

use crate::buffer::{Buffer, Span};

/// The bytes of an FPDU before its payload.
pub(crate) const LENGTH_BYTES: usize = 2;

/// The bytes of an FPDU's checksum.
pub(crate) const CHECKSUM_BYTES: usize = 4;

/// The largest payload of an FPDU: its length is a 16-bit number, and the padded whole stays below 64 KiB.
pub(crate) const MAX_PAYLOAD_BYTES: usize = 65_000;

/// The number of zero bytes after a payload; the length of an FPDU is a multiple of four (RFC 5044
/// 4.1).
pub(crate) fn padding(payload_bytes: usize) -> usize {
    (LENGTH_BYTES + payload_bytes).wrapping_neg() % 4
}

/// The longest padding, and a checksum.
pub(crate) const MAX_TRAILER_BYTES: usize = 3 + CHECKSUM_BYTES;

/// The end of an FPDU: padding and checksum.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Trailer {
    bytes: [u8; MAX_TRAILER_BYTES],
    length: usize,
}

impl Trailer {
    /// The trailer after this many bytes of payload. The checksum field is always present, and zero
    /// without a checksum.
    pub(crate) fn new(payload_bytes: usize, checksum: Option<u32>) -> Self {
        let padding = padding(payload_bytes);
        let mut bytes = [0; MAX_TRAILER_BYTES];
        // RFC 5044 4.4 and RFC 3720 12.1: the least significant byte first.
        bytes[padding..padding + CHECKSUM_BYTES]
            .copy_from_slice(&checksum.unwrap_or(0).to_le_bytes());
        Self {
            bytes,
            length: padding + CHECKSUM_BYTES,
        }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// The length of the trailer.
pub(crate) fn trailer_bytes(payload_bytes: usize) -> usize {
    padding(payload_bytes) + CHECKSUM_BYTES
}

/// Computes the checksum of an FPDU over its length, payload and padding (RFC 5044 4.4).
#[derive(Debug)]
pub(crate) struct Checksum(crc_fast::Digest);

impl Checksum {
    pub(crate) fn new() -> Self {
        Self(crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi))
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Adds a part of registered memory, which must be copied for that.
    pub(crate) fn update_buffer(&mut self, memory: &dyn Buffer, span: Span) {
        let mut copy = [0; 4096];
        let mut rest = span;
        while rest.length > 0 {
            let piece = rest.first(copy.len());
            memory.copy_out(piece.offset, &mut copy[..piece.length]);
            self.update(&copy[..piece.length]);
            rest = rest.skip(piece.length);
        }
    }

    /// Adds the padding after this many bytes of payload, and returns the checksum.
    pub(crate) fn finish(mut self, payload_bytes: usize) -> u32 {
        self.update(&[0; 3][..padding(payload_bytes)]);
        u32::try_from(self.0.finalize()).expect("a CRC-32 has 32 bits")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_fpdu_is_a_multiple_of_four_bytes() {
        for payload in 0..100 {
            let whole = LENGTH_BYTES + payload + trailer_bytes(payload);
            assert_eq!(whole % 4, 0, "{payload}");
            assert!(padding(payload) < 4);
            assert_eq!(
                Trailer::new(payload, None).as_bytes().len(),
                trailer_bytes(payload)
            );
        }
    }

    #[test]
    fn the_checksum_is_that_of_iscsi() {
        // RFC 3720 B.4: 32 bytes of zeros give aa 36 91 8a on the wire.
        let mut checksum = Checksum::new();
        checksum.update(&[0; 30]);
        // Two bytes of padding follow a payload of 28 bytes.
        let trailer = Trailer::new(28, Some(checksum.finish(28)));
        assert_eq!(trailer.as_bytes(), b"\0\0\xaa\x36\x91\x8a");
    }
}
