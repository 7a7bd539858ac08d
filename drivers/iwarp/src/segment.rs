//! DDP and RDMAP: the contents of FPDUs (RFC 5041, RFC 5040).
//!
//! A *tagged* segment names its place in the receiver's memory; an *untagged* one goes to the next
//! receive that was posted on its queue. This module only encodes and decodes headers.

/// The header of a tagged segment.
pub(crate) const TAGGED_BYTES: usize = 14;

/// The header of an untagged segment.
pub(crate) const UNTAGGED_BYTES: usize = 18;

/// The payload of a READ request.
pub(crate) const READ_REQUEST_BYTES: usize = 28;

// RFC 5041 4.1: T, L, and version 1 in the low bits.
const TAGGED: u8 = 0x80;
const LAST: u8 = 0x40;
const DDP_VERSION: u8 = 0x01;
const DDP_VERSION_MASK: u8 = 0x03;

// RFC 5040 4.1: version 1 in the high bits, the opcode in the low ones.
const RDMAP_VERSION: u8 = 0x40;
const RDMAP_VERSION_MASK: u8 = 0xc0;
const OPCODE_MASK: u8 = 0x0f;

/// The queues of untagged segments (RFC 5040 5.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Queue {
    Send,
    ReadRequest,
    Terminate,
}

impl Queue {
    const fn number(self) -> u32 {
        match self {
            Self::Send => 0,
            Self::ReadRequest => 1,
            Self::Terminate => 2,
        }
    }

    const fn opcode(self) -> u8 {
        match self {
            Self::Send => 3,
            Self::ReadRequest => 1,
            Self::Terminate => 7,
        }
    }
}

const OPCODE_WRITE: u8 = 0;
const OPCODE_READ_RESPONSE: u8 = 2;

/// A header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Header {
    /// An `RDMA WRITE` or the response to a READ.
    Tagged {
        kind: Tagged,
        last: bool,
        /// The memory (STag).
        key: u32,
        /// The address in it (TO).
        address: u64,
    },
    /// `SEND`, a READ request, or `TERMINATE`.
    Untagged {
        queue: Queue,
        last: bool,
        /// The number of the message on its queue, from 1 (MSN).
        message: u32,
        /// The offset in the message (MO).
        offset: u32,
    },
}

/// The operation of a tagged segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tagged {
    Write,
    ReadResponse,
}

/// Why a segment is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SegmentError {
    #[error("a segment of {0} bytes is too short for its header")]
    TooShort(usize),
    #[error("a segment of another version of DDP or RDMAP")]
    Version,
    #[error("a segment with the unsupported operation {opcode} on queue {queue}")]
    Operation { opcode: u8, queue: u32 },
    #[error("a tagged segment with the unsupported operation {0}")]
    TaggedOperation(u8),
    #[error("a READ request of {0} bytes; it has {READ_REQUEST_BYTES}")]
    ReadRequest(usize),
}

/// An encoded header.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HeaderBytes {
    bytes: [u8; UNTAGGED_BYTES],
    length: usize,
}

impl HeaderBytes {
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl Header {
    pub(crate) fn encode(&self) -> HeaderBytes {
        let mut bytes = [0; UNTAGGED_BYTES];
        let length = match *self {
            Self::Tagged {
                kind,
                last,
                key,
                address,
            } => {
                let opcode = match kind {
                    Tagged::Write => OPCODE_WRITE,
                    Tagged::ReadResponse => OPCODE_READ_RESPONSE,
                };
                bytes[..2].copy_from_slice(&control(TAGGED, last, opcode));
                bytes[2..6].copy_from_slice(&key.to_be_bytes());
                bytes[6..14].copy_from_slice(&address.to_be_bytes());
                TAGGED_BYTES
            }
            Self::Untagged {
                queue,
                last,
                message,
                offset,
            } => {
                bytes[..2].copy_from_slice(&control(0, last, queue.opcode()));
                // Bytes 2 to 6 name memory that a SEND invalidates; these do not use it.
                bytes[6..10].copy_from_slice(&queue.number().to_be_bytes());
                bytes[10..14].copy_from_slice(&message.to_be_bytes());
                bytes[14..18].copy_from_slice(&offset.to_be_bytes());
                UNTAGGED_BYTES
            }
        };
        HeaderBytes { bytes, length }
    }

    /// The length of a header with this first byte.
    pub(crate) fn bytes_of(first: u8) -> usize {
        if first & TAGGED == 0 {
            UNTAGGED_BYTES
        } else {
            TAGGED_BYTES
        }
    }

    /// Decodes the header of a segment.
    ///
    /// # Errors
    ///
    /// When the segment is too short, or of an unsupported kind.
    pub(crate) fn decode(segment: &[u8]) -> Result<Self, SegmentError> {
        let short = SegmentError::TooShort(segment.len());
        let [ddp, rdmap, rest @ ..] = segment else {
            return Err(short);
        };
        if ddp & DDP_VERSION_MASK != DDP_VERSION || rdmap & RDMAP_VERSION_MASK != RDMAP_VERSION {
            return Err(SegmentError::Version);
        }
        let last = ddp & LAST != 0;
        let opcode = rdmap & OPCODE_MASK;
        let number = |at: usize| {
            let bytes = rest.get(at..at + 4)?;
            Some(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
        };
        if ddp & TAGGED != 0 {
            let kind = match opcode {
                OPCODE_WRITE => Tagged::Write,
                OPCODE_READ_RESPONSE => Tagged::ReadResponse,
                other => return Err(SegmentError::TaggedOperation(other)),
            };
            let key = number(0).ok_or(short)?;
            let (high, low) = (number(4).ok_or(short)?, number(8).ok_or(short)?);
            return Ok(Self::Tagged {
                kind,
                last,
                key,
                address: u64::from(high) << 32 | u64::from(low),
            });
        }
        let queue = number(4).ok_or(short)?;
        let message = number(8).ok_or(short)?;
        let offset = number(12).ok_or(short)?;
        let queue = [Queue::Send, Queue::ReadRequest, Queue::Terminate]
            .into_iter()
            .find(|known| known.number() == queue && known.opcode() == opcode)
            .ok_or(SegmentError::Operation { opcode, queue })?;
        Ok(Self::Untagged {
            queue,
            last,
            message,
            offset,
        })
    }
}

fn control(tagged: u8, last: bool, opcode: u8) -> [u8; 2] {
    let last = if last { LAST } else { 0 };
    [tagged | last | DDP_VERSION, RDMAP_VERSION | opcode]
}

/// A READ request (RFC 5040 4.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReadRequest {
    /// The destination, in the memory of the requester.
    pub(crate) sink_key: u32,
    pub(crate) sink_address: u64,
    pub(crate) length: u32,
    /// The source.
    pub(crate) source_key: u32,
    pub(crate) source_address: u64,
}

impl ReadRequest {
    pub(crate) fn encode(&self) -> [u8; READ_REQUEST_BYTES] {
        let mut bytes = [0; READ_REQUEST_BYTES];
        bytes[..4].copy_from_slice(&self.sink_key.to_be_bytes());
        bytes[4..12].copy_from_slice(&self.sink_address.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.length.to_be_bytes());
        bytes[16..20].copy_from_slice(&self.source_key.to_be_bytes());
        bytes[20..28].copy_from_slice(&self.source_address.to_be_bytes());
        bytes
    }

    /// # Errors
    ///
    /// When the payload has another length.
    pub(crate) fn decode(payload: &[u8]) -> Result<Self, SegmentError> {
        let bytes: &[u8; READ_REQUEST_BYTES] = payload
            .try_into()
            .map_err(|_| SegmentError::ReadRequest(payload.len()))?;
        let short = |at: usize| {
            u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let long = |at: usize| u64::from(short(at)) << 32 | u64::from(short(at + 4));
        Ok(Self {
            sink_key: short(0),
            sink_address: long(4),
            length: short(12),
            source_key: short(16),
            source_address: long(20),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn headers_follow_the_standard() {
        let write = Header::Tagged {
            kind: Tagged::Write,
            last: true,
            key: 0x0102_0304,
            address: 0x0506_0708_090a_0b0c,
        };
        assert_eq!(
            write.encode().as_bytes(),
            b"\xc1\x40\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c"
        );
        let send = Header::Untagged {
            queue: Queue::Send,
            last: false,
            message: 2,
            offset: 0x100,
        };
        assert_eq!(
            send.encode().as_bytes(),
            b"\x01\x43\0\0\0\0\0\0\0\0\0\0\0\x02\0\0\x01\0"
        );
    }

    #[test]
    fn unsupported_segments_are_named() {
        assert_eq!(Header::decode(b"\xc1"), Err(SegmentError::TooShort(1)));
        assert_eq!(
            Header::decode(b"\xc1\x40\0"),
            Err(SegmentError::TooShort(3))
        );
        assert_eq!(Header::decode(b"\xc2\x40\0"), Err(SegmentError::Version));
        assert_eq!(Header::decode(b"\xc1\x80\0"), Err(SegmentError::Version));
        assert_eq!(
            Header::decode(b"\xc1\x45\0"),
            Err(SegmentError::TaggedOperation(5))
        );
        // A SEND on the queue of READ requests.
        assert_eq!(
            Header::decode(b"\x41\x43\0\0\0\0\0\0\0\x01\0\0\0\x01\0\0\0\0"),
            Err(SegmentError::Operation {
                opcode: 3,
                queue: 1
            })
        );
    }

    fn headers() -> impl Strategy<Value = Header> {
        let tagged = (any::<bool>(), any::<bool>(), any::<u32>(), any::<u64>()).prop_map(
            |(response, last, key, address)| Header::Tagged {
                kind: if response {
                    Tagged::ReadResponse
                } else {
                    Tagged::Write
                },
                last,
                key,
                address,
            },
        );
        let untagged = (0..3_usize, any::<bool>(), any::<u32>(), any::<u32>()).prop_map(
            |(queue, last, message, offset)| Header::Untagged {
                queue: [Queue::Send, Queue::ReadRequest, Queue::Terminate][queue],
                last,
                message,
                offset,
            },
        );
        prop_oneof![tagged, untagged]
    }

    proptest! {
        #[test]
        fn headers_survive_the_wire(header in headers(), payload in any::<[u8; 3]>()) {
            let encoded = header.encode();
            prop_assert_eq!(Header::bytes_of(encoded.as_bytes()[0]), encoded.as_bytes().len());
            let segment = [encoded.as_bytes(), &payload].concat();
            prop_assert_eq!(Header::decode(&segment), Ok(header));
        }

        #[test]
        fn any_bytes_are_a_header_or_an_error(
            bytes in proptest::collection::vec(any::<u8>(), 0..40),
        ) {
            let _ = Header::decode(&bytes);
            let _ = ReadRequest::decode(&bytes);
        }

        #[test]
        fn read_requests_survive_the_wire(
            sink_key: u32, sink_address: u64, length: u32, source_key: u32, source_address: u64,
        ) {
            let request = ReadRequest { sink_key, sink_address, length, source_key, source_address };
            prop_assert_eq!(ReadRequest::decode(&request.encode()), Ok(request));
        }
    }
}
