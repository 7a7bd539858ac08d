//! MODE E blocks: the header codec and the count of EODs (GFD.20 3.4).
//!
//! The caller does the I/O, and checks whether blocks overlap and whether a file is complete.

mod ends;

use crate::ranges::MAX_OFFSET;

pub use ends::{EndOfDataCount, EodError};

/// The length of a block header on the wire.
pub const HEADER_BYTES: usize = 17;

/// The most data connections that an EOF may announce.
pub const MAX_EODS: u64 = 4096;

/// The longest payload of a restart-marker block, in bytes.
pub const MAX_MARKER_BYTES: u64 = 64 * 1024;

/// The descriptor bits of a header.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Descriptor(pub u8);

impl Descriptor {
    /// End of record.
    pub const EOR: Self = Self(0x80);
    /// End of file: the offset field is the number of EODs to expect.
    pub const EOF: Self = Self(0x40);
    /// The sender suspects errors in the block.
    pub const SUSPECT: Self = Self(0x20);
    /// The payload is a restart marker.
    pub const RESTART: Self = Self(0x10);
    /// End of data on this connection.
    pub const EOD: Self = Self(0x08);
    /// The sender closes the connection after this block.
    pub const CLOSE: Self = Self(0x04);

    /// Bits that no specification defines.
    const UNUSED: Self = Self(0x03);

    /// Whether all bits of `other` are set.
    pub fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl std::ops::BitOr for Descriptor {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The fields of a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The kind of block.
    pub descriptor: Descriptor,
    /// The length of the payload in bytes.
    pub count: u64,
    /// The file offset of the payload, or the number of EODs.
    pub offset: u64,
}

impl Header {
    /// The header of a plain block of data.
    pub fn data(offset: u64, count: u64) -> Self {
        Self {
            descriptor: Descriptor::default(),
            count,
            offset,
        }
    }

    /// The bytes on the wire.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0] = self.descriptor.0;
        bytes[1..9].copy_from_slice(&self.count.to_be_bytes());
        bytes[9..].copy_from_slice(&self.offset.to_be_bytes());
        bytes
    }

    /// Decodes a header.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Self {
        let number = |from: usize| {
            let mut field = [0; 8];
            field.copy_from_slice(&bytes[from..from + 8]);
            u64::from_be_bytes(field)
        };
        Self {
            descriptor: Descriptor(bytes[0]),
            count: number(1),
            offset: number(9),
        }
    }
}

/// The meaning of a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Block {
    /// Bytes of the file.
    Data {
        /// Their offset in the file.
        offset: u64,
        /// Their number; may be 0.
        count: u64,
        /// They are the last bytes on this connection.
        end_of_data: bool,
        /// The sender closes the connection.
        close: bool,
    },
    /// The number of EODs to expect; no payload.
    EndOfFile {
        /// The number of connections that will send EOD.
        eods: u64,
        /// This block is an EOD too.
        end_of_data: bool,
        /// The sender closes the connection.
        close: bool,
    },
    /// The end of this connection's data; no payload.
    EndOfData {
        /// The sender closes the connection.
        close: bool,
    },
    /// A restart marker of the sender. Skip its payload.
    RestartMarker {
        /// The length of the payload in bytes.
        count: u64,
    },
}

/// An invalid header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BlockError {
    /// Undefined bits are set.
    #[error("the descriptor 0x{0:02x} has bits without a meaning")]
    UnknownBits(u8),
    /// The block lies past the largest file offset.
    #[error(
        "a block of {count} bytes at offset {offset} ends past the last file offset, {MAX_OFFSET}"
    )]
    TooLarge {
        /// The offset field.
        offset: u64,
        /// The count field.
        count: u64,
    },
    /// The sender suspects errors in the block.
    #[error("the sender marks the block as suspect; send the file again")]
    Suspect,
    /// An EOF with an invalid number of EODs.
    #[error("EOF announces the end of {0} data connections; it may announce 1 to {MAX_EODS}")]
    EodCount(u64),
    /// A restart marker with EOD or EOF: GFD.20 does not define its payload.
    #[error(
        "the descriptor 0x{0:02x} joins a restart marker with the end of the data or of the file"
    )]
    MarkerAtEnd(u8),
    /// A restart marker that is too long.
    #[error("a restart marker of {0} bytes; at most {MAX_MARKER_BYTES} are accepted")]
    MarkerTooLong(u64),
}

impl Block {
    /// Interprets a header.
    ///
    /// # Errors
    ///
    /// When it is invalid.
    pub fn parse(header: Header) -> Result<Self, BlockError> {
        let Header {
            descriptor,
            count,
            offset,
        } = header;
        let end_of_data = descriptor.has(Descriptor::EOD);
        let close = descriptor.has(Descriptor::CLOSE);
        if descriptor.0 & Descriptor::UNUSED.0 != 0 {
            return Err(BlockError::UnknownBits(descriptor.0));
        }
        if descriptor.has(Descriptor::SUSPECT) {
            return Err(BlockError::Suspect);
        }
        let end_of_file = descriptor.has(Descriptor::EOF);
        if descriptor.has(Descriptor::RESTART) {
            if end_of_file || end_of_data {
                return Err(BlockError::MarkerAtEnd(descriptor.0));
            }
            if count > MAX_MARKER_BYTES {
                return Err(BlockError::MarkerTooLong(count));
            }
            return Ok(Self::RestartMarker { count });
        }
        if end_of_file {
            // globus-gridftp-server 13.24 ignores the count and reads no payload here.
            if !(1..=MAX_EODS).contains(&offset) {
                return Err(BlockError::EodCount(offset));
            }
            return Ok(Self::EndOfFile {
                eods: offset,
                end_of_data,
                close,
            });
        }
        if end_of_data && count == 0 {
            return Ok(Self::EndOfData { close });
        }
        if offset.checked_add(count).is_none_or(|end| end > MAX_OFFSET) {
            return Err(BlockError::TooLarge { offset, count });
        }
        Ok(Self::Data {
            offset,
            count,
            end_of_data,
            close,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(bits: u8, count: u64, offset: u64) -> Result<Block, BlockError> {
        Block::parse(Header {
            descriptor: Descriptor(bits),
            count,
            offset,
        })
    }

    fn data(offset: u64, count: u64) -> Block {
        Block::Data {
            offset,
            count,
            end_of_data: false,
            close: false,
        }
    }

    /// A file of 17 bytes over one connection, observed from globus-gridftp-server 13.24.
    #[test]
    fn recorded_headers_are_read_and_written() {
        let recorded = [
            [0, 0, 0, 0, 0, 0, 0, 0, 0x11, 0, 0, 0, 0, 0, 0, 0, 0],
            [0x48, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
        ];
        let headers = recorded.map(|bytes| Header::decode(&bytes));
        assert_eq!(headers[0], Header::data(0, 17));
        assert_eq!(headers.map(|header| header.encode()), recorded);
        let end = Block::EndOfFile {
            eods: 1,
            end_of_data: true,
            close: false,
        };
        assert_eq!(headers.map(Block::parse), [Ok(data(0, 17)), Ok(end)]);
    }

    #[test]
    fn all_kinds_of_blocks_are_read() {
        assert_eq!(parse(0x00, 0, 500), Ok(data(500, 0)));
        assert_eq!(parse(0x80, 10, 0), Ok(data(0, 10)));
        assert_eq!(parse(0x08, 0, 0), Ok(Block::EndOfData { close: false }));
        assert_eq!(parse(0x0c, 0, 7), Ok(Block::EndOfData { close: true }));
        assert_eq!(parse(0x10, 9, 0), Ok(Block::RestartMarker { count: 9 }));
        let last = Block::Data {
            offset: 5,
            count: 10,
            end_of_data: true,
            close: false,
        };
        assert_eq!(parse(0x08, 10, 5), Ok(last));
        // The count of an EOF block is ignored.
        for count in [0, 17, u64::MAX] {
            let end = Block::EndOfFile {
                eods: 4,
                end_of_data: false,
                close: true,
            };
            assert_eq!(parse(0x44, count, 4), Ok(end));
        }
    }

    #[test]
    fn blocks_past_the_largest_offset_are_refused() {
        assert_eq!(parse(0, 1, MAX_OFFSET - 1), Ok(data(MAX_OFFSET - 1, 1)));
        for (offset, count) in [
            (MAX_OFFSET, 1),
            (MAX_OFFSET + 1, 0),
            (0, 1 << 63),
            (u64::MAX, u64::MAX),
        ] {
            let refused = Err(BlockError::TooLarge { offset, count });
            assert_eq!(parse(0, count, offset), refused);
            if count > 0 {
                assert_eq!(parse(0x08, count, offset), refused);
            }
        }
    }

    #[test]
    fn invalid_descriptors_are_refused() {
        assert_eq!(parse(0x01, 0, 0), Err(BlockError::UnknownBits(0x01)));
        assert_eq!(parse(0x4a, 0, 1), Err(BlockError::UnknownBits(0x4a)));
        assert_eq!(parse(0x20, 5, 0), Err(BlockError::Suspect));
        assert_eq!(parse(0x18, 5, 0), Err(BlockError::MarkerAtEnd(0x18)));
        assert_eq!(parse(0x50, 5, 1), Err(BlockError::MarkerAtEnd(0x50)));
        let long = MAX_MARKER_BYTES + 1;
        assert_eq!(parse(0x10, long, 0), Err(BlockError::MarkerTooLong(long)));
        for eods in [0, MAX_EODS + 1, u64::MAX] {
            assert_eq!(parse(0x48, 0, eods), Err(BlockError::EodCount(eods)));
        }
        let suspect = BlockError::Suspect.to_string();
        assert!(suspect.contains("the sender marks the block as suspect"));
    }

    /// A count or an offset, often a small one.
    fn field() -> impl Strategy<Value = u64> {
        prop_oneof![any::<u64>(), 0..10_u64]
    }

    proptest! {
        #[test]
        fn a_header_is_read_as_it_was_written(bits: u8, count: u64, offset: u64) {
            let header = Header { descriptor: Descriptor(bits), count, offset };
            prop_assert_eq!(Header::decode(&header.encode()), header);
        }

        #[test]
        fn encoding_inverts_decoding(bytes: [u8; HEADER_BYTES]) {
            prop_assert_eq!(Header::decode(&bytes).encode(), bytes);
        }

        #[test]
        fn accepted_blocks_are_bounded(bits: u8, count in field(), offset in field()) {
            match parse(bits, count, offset) {
                Ok(Block::Data { offset, count, .. }) => {
                    prop_assert!(offset.checked_add(count).is_some_and(|end| end <= MAX_OFFSET));
                }
                Ok(Block::EndOfFile { eods, .. }) => {
                    prop_assert!((1..=MAX_EODS).contains(&eods));
                }
                Ok(Block::RestartMarker { count }) => {
                    prop_assert!(count <= MAX_MARKER_BYTES);
                }
                Ok(Block::EndOfData { .. }) => prop_assert_eq!(count, 0),
                Err(_) => {}
            }
        }
    }
}
