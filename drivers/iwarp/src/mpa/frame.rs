//! The request and the reply that open a connection (RFC 5044 7.1, RFC 6581 4.1).

/// The length of a request or reply before its private data.
pub(crate) const FRAME_BYTES: usize = 20;

/// The most private data that is sent or accepted: as much as Linux's rdma_cm carries for iWARP.
/// RFC 5044 7.1 allows 512.
pub(crate) const MAX_PRIVATE_BYTES: usize = 256;

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
    /// FPDUs carry a checksum in both directions if either end asks for it.
    pub(crate) checksum: bool,
    /// The reply rejects the connection.
    pub(crate) rejected: bool,
    /// The READ depths of the sender of the frame.
    pub(crate) depths: Option<ReadDepths>,
    pub(crate) private: Vec<u8>,
}

/// The outstanding READs that an end answers (IRD) and requests (ORD) at most (RFC 6581 4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReadDepths {
    pub(crate) inbound: u16,
    pub(crate) outbound: u16,
}

/// The low 14 bits; the others ask for an initial message that only hardware needs.
const DEPTH_MASK: u16 = 0x3fff;

/// Why a frame is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// It does not begin with this key.
    #[error("the other end does not speak MPA: it sent other bytes than \"{0}\"")]
    Key(&'static str),
    /// It requires markers.
    #[error("the other end wants MPA markers, which are not supported (RFC 5044 4.3)")]
    Markers,
    /// It has an unknown revision.
    #[error("the other end speaks revision {0} of MPA; 1 and 2 are supported")]
    Revision(u8),
    /// It has too many bytes of private data.
    #[error("the other end sent {0} bytes of private data; {MAX_PRIVATE_BYTES} are the limit")]
    PrivateData(usize),
    /// It lacks the READ depths of revision 2.
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
            .expect("private data is at most MAX_PRIVATE_BYTES long");
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
            return Err(FrameError::Key(key_text(kind)));
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
    fn a_request_follows_the_standard() {
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
    fn unsupported_frames_are_named() {
        let decode = |head: &[u8; 20]| Frame::decode(FrameKind::Reply, head, &[]);
        assert_eq!(
            decode(b"MPA ID Req Frame\0\x01\0\0"),
            Err(FrameError::Key(key_text(FrameKind::Reply)))
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
