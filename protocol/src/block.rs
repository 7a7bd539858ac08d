//! MODE E blocks: the header codec and the account of ends (GFD.20 3.4).

/// How long a block header is on the wire.
pub const HEADER_BYTES: usize = 17;

/// How many data connections an EOF may announce.
pub const MAX_EODS: u64 = 4096;

/// How long the payload of a restart-marker block may be, in bytes.
pub const MAX_MARKER_BYTES: u64 = 64 * 1024;

const MAX_OFFSET: u64 = i64::MAX as u64;

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

/// A header as it is on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// What kind of block it is.
    pub descriptor: Descriptor,
    /// How many bytes follow.
    pub count: u64,
    /// Where they belong, or the number of EODs.
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

    /// The header that these bytes are.
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

/// What a header means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Block {
    /// Bytes of the file.
    Data {
        /// Where they belong.
        offset: u64,
        /// How many there are; may be 0.
        count: u64,
        /// They are the last on this connection.
        end_of_data: bool,
        /// The sender closes the connection.
        close: bool,
    },
    /// The number of EODs is known; no payload.
    EndOfFile {
        /// How many connections will say EOD.
        eods: u64,
        /// This one says it with the same block.
        end_of_data: bool,
        /// The sender closes the connection.
        close: bool,
    },
    /// The end of this connection's data; no payload.
    EndOfData {
        /// The sender closes the connection.
        close: bool,
    },
    /// A restart marker of the sender; its payload is to be skipped.
    RestartMarker {
        /// How long the payload is, in bytes.
        count: u64,
    },
}

/// A header that cannot be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BlockError {
    /// Bits without a meaning.
    #[error("unknown descriptor bits in 0x{0:02x}")]
    UnknownBits(u8),
    /// The block lies past the largest file offset.
    #[error(
        "a block of {count} bytes at offset {offset} ends past the largest file offset, {MAX_OFFSET}"
    )]
    TooLarge {
        /// The offset field.
        offset: u64,
        /// The count field.
        count: u64,
    },
    /// The sender does not trust its own block.
    #[error("the sender marks the block as suspected to be wrong")]
    Suspect,
    /// An EOF with a number of EODs that cannot be.
    #[error("EOF announces {0} data connections; 1 to {MAX_EODS} are possible")]
    EodCount(u64),
    /// A restart marker without measure.
    #[error("a restart marker of {0} bytes; at most {MAX_MARKER_BYTES} are accepted")]
    MarkerTooLong(u64),
}

impl Block {
    /// Reads the meaning of a header.
    ///
    /// # Errors
    ///
    /// When it has none, or one that no file could follow.
    pub fn parse(header: Header) -> Result<Self, BlockError> {
        let Header {
            descriptor,
            count,
            offset,
        } = header;
        let end_of_data = descriptor.has(Descriptor::EOD);
        let close = descriptor.has(Descriptor::CLOSE);
        if descriptor.0 & 0x03 != 0 {
            return Err(BlockError::UnknownBits(descriptor.0));
        }
        if descriptor.has(Descriptor::SUSPECT) {
            return Err(BlockError::Suspect);
        }
        if descriptor.has(Descriptor::EOF) {
            if !(1..=MAX_EODS).contains(&offset) {
                return Err(BlockError::EodCount(offset));
            }
            return Ok(Self::EndOfFile {
                eods: offset,
                end_of_data,
                close,
            });
        }
        if descriptor.has(Descriptor::RESTART) {
            if count > MAX_MARKER_BYTES {
                return Err(BlockError::MarkerTooLong(count));
            }
            return Ok(Self::RestartMarker { count });
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

/// Ends that do not add up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EodError {
    /// EOF came before.
    #[error("EOF was sent twice")]
    SecondEof,
    /// More connections ended than EOF announced.
    #[error("{seen} data connections ended, but EOF announced {announced}")]
    TooMany {
        /// As EOF said.
        announced: u64,
        /// How many ended.
        seen: u64,
    },
}

/// The account of EOF and EODs of one stripe.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EndOfDataCount {
    expected: Option<u64>,
    seen: u64,
}

impl EndOfDataCount {
    /// Counts an EOF.
    ///
    /// # Errors
    ///
    /// When it is the second, or announces fewer EODs than there were.
    pub fn on_end_of_file(&mut self, eods: u64) -> Result<(), EodError> {
        if self.expected.is_some() {
            return Err(EodError::SecondEof);
        }
        if eods < self.seen {
            return Err(EodError::TooMany {
                announced: eods,
                seen: self.seen,
            });
        }
        self.expected = Some(eods);
        Ok(())
    }

    /// Counts an EOD.
    ///
    /// # Errors
    ///
    /// When more come than were announced.
    pub fn on_end_of_data(&mut self) -> Result<(), EodError> {
        let seen = self.seen + 1;
        match self.expected {
            Some(announced) if seen > announced => Err(EodError::TooMany { announced, seen }),
            _ => {
                self.seen = seen;
                Ok(())
            }
        }
    }

    /// As EOF said, if it came.
    pub fn expected(&self) -> Option<u64> {
        self.expected
    }

    /// How many EODs came.
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// Whether EOF came, and as many EODs as it announced.
    pub fn complete(&self) -> bool {
        self.expected == Some(self.seen)
    }
}
