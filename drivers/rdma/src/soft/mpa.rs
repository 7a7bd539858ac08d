//! MPA: how iWARP frames messages in a TCP stream (RFC 5044, and RFC 6581 for revision 2).
//!
//! Two frames open a connection; then every byte belongs to an FPDU: a length, a payload, padding
//! and a checksum. Markers are not supported: neither the Linux kernel nor common hardware asks for
//! them, and a request for them is refused.

use crate::memory::{Memory, Span};

/// The length of a request or reply before its private data.
pub(crate) const FRAME_BYTES: usize = 20;

/// The most private data that is sent or accepted: as much as Linux's rdma_cm carries for iWARP.
/// RFC 5044 7.1 allows 512.
pub(crate) const MAX_PRIVATE_BYTES: usize = 256;

/// The bytes of an FPDU before its payload.
pub(crate) const LENGTH_BYTES: usize = 2;

/// The bytes of an FPDU's checksum.
pub(crate) const CHECKSUM_BYTES: usize = 4;

/// The largest payload of an FPDU: its length is a 16-bit number, and the padded whole stays below 64 KiB.
pub(crate) const MAX_PAYLOAD_BYTES: usize = 65_000;

const REQUEST_KEY: &[u8; 16] = b"MPA ID Req Frame";
const REPLY_KEY: &[u8; 16] = b"MPA ID Rep Frame";

// RFC 5044 7.1.1, and RFC 6581 4.1 for the last.
const FLAG_MARKERS: u8 = 0x80;
const FLAG_CHECKSUM: u8 = 0x40;
const FLAG_REJECTED: u8 = 0x20;
const FLAG_ENHANCED: u8 = 0x10;

/// Which of the two frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrameKind {
    /// From the connecting end.
    Request,
    /// From the accepting end.
    Reply,
}

/// One end's frame when a connection opens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: FrameKind,
    /// 1, or 2 with [`Frame::depths`].
    pub(crate) revision: u8,
    /// FPDUs carry a checksum in both directions if either end says so.
    pub(crate) checksum: bool,
    /// The reply rejects the connection.
    pub(crate) rejected: bool,
    /// READs that the sender of the frame answers, and that it would request, at a time.
    pub(crate) depths: Option<ReadDepths>,
    pub(crate) private: Vec<u8>,
}

/// RFC 6581 4.1: IRD and ORD.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReadDepths {
    pub(crate) inbound: u16,
    pub(crate) outbound: u16,
}

/// The low 14 bits; the others ask for an initial message that only hardware needs.
const DEPTH_MASK: u16 = 0x3fff;

/// Why a frame is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FrameError {
    #[error("the other end does not speak MPA: it sent other bytes than \"{}\"", key_text(*.0))]
    Key(FrameKind),
    #[error("the other end wants MPA markers, which are not supported (RFC 5044 4.3)")]
    Markers,
    #[error("the other end speaks revision {0} of MPA; 1 and 2 are supported")]
    Revision(u8),
    #[error("the other end sent {0} bytes of private data; {MAX_PRIVATE_BYTES} are the limit")]
    PrivateData(usize),
    #[error("revision 2 of MPA without the numbers of RDMA READs (RFC 6581 4.1)")]
    NoDepths,
}

fn key_text(kind: FrameKind) -> &'static str {
    std::str::from_utf8(key(kind)).unwrap_or_default()
}

const fn key(kind: FrameKind) -> &'static [u8; 16] {
    match kind {
        FrameKind::Request => REQUEST_KEY,
        FrameKind::Reply => REPLY_KEY,
    }
}

impl Frame {
    /// The encoded frame.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let depths = self.depths.map(|depths| {
            let [a, b] = (depths.inbound & DEPTH_MASK).to_be_bytes();
            let [c, d] = (depths.outbound & DEPTH_MASK).to_be_bytes();
            [a, b, c, d]
        });
        let extra = depths.as_ref().map_or(&[][..], |depths| &depths[..]);
        let length = u16::try_from(extra.len() + self.private.len())
            .expect("private data is bounded by whoever made the frame");
        let mut flags = 0;
        for (is_set, flag) in [
            (self.checksum, FLAG_CHECKSUM),
            (self.rejected, FLAG_REJECTED),
            (depths.is_some(), FLAG_ENHANCED),
        ] {
            if is_set {
                flags |= flag;
            }
        }
        let mut bytes = key(self.kind).to_vec();
        bytes.extend([flags, self.revision]);
        bytes.extend(length.to_be_bytes());
        bytes.extend(extra);
        bytes.extend(&self.private);
        bytes
    }

    /// How many bytes follow the first [`FRAME_BYTES`] of a frame.
    ///
    /// # Errors
    ///
    /// When it is no frame of this kind, or too long.
    pub(crate) fn tail_bytes(
        kind: FrameKind,
        head: &[u8; FRAME_BYTES],
    ) -> Result<usize, FrameError> {
        if !head.starts_with(key(kind)) {
            return Err(FrameError::Key(kind));
        }
        let length = usize::from(u16::from_be_bytes([head[18], head[19]]));
        if length > MAX_PRIVATE_BYTES {
            return Err(FrameError::PrivateData(length));
        }
        Ok(length)
    }

    /// Decodes a frame from its first [`FRAME_BYTES`] bytes and the rest.
    ///
    /// # Errors
    ///
    /// When it is no frame of this kind, or asks for something unsupported.
    pub(crate) fn decode(
        kind: FrameKind,
        head: &[u8; FRAME_BYTES],
        tail: &[u8],
    ) -> Result<Self, FrameError> {
        Self::tail_bytes(kind, head)?;
        let (flags, revision) = (head[16], head[17]);
        if flags & FLAG_MARKERS != 0 {
            return Err(FrameError::Markers);
        }
        if !(1..=2).contains(&revision) {
            return Err(FrameError::Revision(revision));
        }
        let is_enhanced = revision == 2 && flags & FLAG_ENHANCED != 0;
        let (depths, private) = match (is_enhanced, tail) {
            (false, private) => (None, private),
            (true, [a, b, c, d, private @ ..]) => {
                let depths = ReadDepths {
                    inbound: u16::from_be_bytes([*a, *b]) & DEPTH_MASK,
                    outbound: u16::from_be_bytes([*c, *d]) & DEPTH_MASK,
                };
                (Some(depths), private)
            }
            (true, _) => return Err(FrameError::NoDepths),
        };
        Ok(Self {
            kind,
            revision,
            checksum: flags & FLAG_CHECKSUM != 0,
            rejected: flags & FLAG_REJECTED != 0,
            depths,
            private: private.to_vec(),
        })
    }
}

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
    pub(crate) fn update_memory(&mut self, memory: &Memory, span: Span) {
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
    use proptest::prelude::*;

    use super::*;

    fn round(frame: &Frame) -> Result<Frame, FrameError> {
        let bytes = frame.encode();
        let (head, tail) = bytes.split_first_chunk().expect("a frame has a head");
        assert_eq!(Frame::tail_bytes(frame.kind, head)?, tail.len());
        Frame::decode(frame.kind, head, tail)
    }

    #[test]
    fn a_request_is_what_the_standard_says() {
        let frame = Frame {
            kind: FrameKind::Request,
            revision: 2,
            checksum: true,
            rejected: false,
            depths: Some(ReadDepths {
                inbound: 1,
                outbound: 16,
            }),
            private: b"xy".to_vec(),
        };
        assert_eq!(
            frame.encode(),
            b"MPA ID Req Frame\x50\x02\x00\x06\x00\x01\x00\x10xy"
        );
        assert_eq!(round(&frame), Ok(frame));
    }

    #[test]
    fn what_is_not_supported_is_named() {
        let decode = |head: &[u8; 20]| Frame::decode(FrameKind::Reply, head, &[]);
        assert_eq!(
            decode(b"MPA ID Req Frame\0\x01\0\0"),
            Err(FrameError::Key(FrameKind::Reply))
        );
        assert_eq!(
            decode(b"MPA ID Rep Frame\x80\x01\0\0"),
            Err(FrameError::Markers)
        );
        assert_eq!(
            decode(b"MPA ID Rep Frame\0\x03\0\0"),
            Err(FrameError::Revision(3))
        );
        assert_eq!(
            decode(b"MPA ID Rep Frame\x10\x02\0\0"),
            Err(FrameError::NoDepths)
        );
        assert_eq!(
            decode(b"MPA ID Rep Frame\0\x01\x01\x01"),
            Err(FrameError::PrivateData(257))
        );
    }

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

    proptest! {
        #[test]
        fn frames_survive_the_wire(
            reply in any::<bool>(),
            checksum in any::<bool>(),
            rejected in any::<bool>(),
            depths in proptest::option::of((0..=DEPTH_MASK, 0..=DEPTH_MASK)),
            private in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let frame = Frame {
                kind: if reply { FrameKind::Reply } else { FrameKind::Request },
                revision: if depths.is_some() { 2 } else { 1 },
                checksum,
                rejected,
                depths: depths.map(|(inbound, outbound)| ReadDepths { inbound, outbound }),
                private,
            };
            prop_assert_eq!(round(&frame), Ok(frame));
        }

        #[test]
        fn any_bytes_are_a_frame_or_an_error(
            head in any::<[u8; 4]>(),
            tail in proptest::collection::vec(any::<u8>(), 0..300),
        ) {
            let mut bytes = [0; FRAME_BYTES];
            bytes[..16].copy_from_slice(REQUEST_KEY);
            bytes[16..].copy_from_slice(&head);
            let _ = Frame::decode(FrameKind::Request, &bytes, &tail);
        }
    }
}
