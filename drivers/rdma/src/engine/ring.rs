//! The layout of a stream in a ring.

use std::num::NonZeroU64;

use crate::memory::Span;

/// The layout of a stream in a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ring {
    bytes: NonZeroU64,
}

impl Ring {
    pub(crate) fn new(bytes: NonZeroU64) -> Self {
        Self { bytes }
    }

    /// Whether 32 bits identify a position. Valid positions lie within one ring before and one ring
    /// after the consumed position.
    pub(crate) fn fits_immediates(self) -> bool {
        self.bytes() <= 1 << 31
    }

    /// The length of the ring in bytes.
    pub(crate) fn bytes(self) -> u64 {
        self.bytes.get()
    }

    /// The place of `length` bytes of the stream from `start`. They must not cross the end of the
    /// ring.
    pub(crate) fn place(self, start: u64, length: u64) -> Span {
        let offset = start % self.bytes;
        debug_assert!(offset + length <= self.bytes(), "a piece lies in one part");
        let fits = "a ring is memory of this process";
        Span::new(
            usize::try_from(offset).expect(fits),
            usize::try_from(length).expect(fits),
        )
    }

    /// The offsets in the ring of bytes of the stream, which must not cross the end of the ring.
    pub(crate) fn range(self, start: u64, end: u64) -> (u64, u64) {
        let offset = start % self.bytes;
        (offset, offset + (end - start))
    }

    /// How many bytes from `start` on are contiguous in the ring.
    pub(crate) fn contiguous(self, start: u64) -> u64 {
        self.bytes() - start % self.bytes
    }
}

/// The immediate data that announces a piece: the low 32 bits of its position in the stream.
pub(crate) fn immediate(start: u64) -> u32 {
    let [.., a, b, c, d] = start.to_be_bytes();
    u32::from_be_bytes([a, b, c, d])
}

/// The first position from `least` on whose low 32 bits are this number.
pub(super) fn place_of_immediate(number: u32, least: u64) -> u64 {
    least + u64::from(number.wrapping_sub(immediate(least)))
}
