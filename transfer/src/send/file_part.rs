//! The part of a file that is sent.

use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::atomic::AtomicU64;

use gridhaul_protocol::block::{HEADER_BYTES, Header};
use gridhaul_protocol::ranges::RangeSet;
use gridhaul_stack::{Body, Channel, ChannelError, FileRange, Operation};
use gridhaul_storage::{OpenedFile, StorageError};
use rustix::io::Errno;

use super::extents::Extents;
use crate::error::TransferError;

/// The part of a file that is sent, and the ranges that the peer already has.
#[derive(Debug)]
pub(crate) struct FilePart {
    pub(super) file: OpenedFile,
    pub(super) offset: u64,
    pub(super) length: u64,
    pub(super) restart: RangeSet,
    /// Other nodes send parts of it as well.
    pub(super) divided: bool,
    /// The holes of the file, if they are not read.
    pub(super) extents: Option<Extents>,
}

impl FilePart {
    /// The bytes on the wire if the whole part is sent with one call on one channel; `None` if it is too large.
    pub(crate) fn small_bytes(&self, buffer_bytes: usize) -> Option<usize> {
        let payload = usize::try_from(self.length).ok()?;
        self.fits(buffer_bytes).then(|| payload + 2 * HEADER_BYTES)
    }

    /// Whether the whole part fits into one buffer, between a header and an end of data.
    pub(super) fn fits(&self, buffer_bytes: usize) -> bool {
        !self.divided
            && self.restart.is_empty()
            && self.length + 2 * HEADER_BYTES as u64 <= buffer_bytes as u64
    }

    /// Reads a small file in its wire format: one block and the end of data, in one buffer. Thousands of
    /// small files are sent this way, each with one system call.
    pub(super) fn read_whole<'a>(
        &self,
        buffer: &'a mut [u8],
        end: &[u8; HEADER_BYTES],
    ) -> Result<&'a [u8], TransferError> {
        // `fits` has checked that the length is less than that of a buffer.
        let length = usize::try_from(self.length).unwrap_or(0);
        let mut at = 0;
        if length > 0 {
            buffer[..HEADER_BYTES].copy_from_slice(&Header::data(0, self.length).encode());
            self.read_exact(&mut buffer[HEADER_BYTES..HEADER_BYTES + length])?;
            at = HEADER_BYTES + length;
        }
        buffer[at..at + HEADER_BYTES].copy_from_slice(end);
        Ok(&buffer[..at + HEADER_BYTES])
    }

    /// Sends a range of the part as one block.
    pub(super) fn send_block(
        &self,
        block: Range<u64>,
        channel: &mut dyn Channel,
        buffer: &mut [u8],
        moved: &AtomicU64,
        operation: &Operation<'_>,
    ) -> Result<(), TransferError> {
        let length = block.end - block.start;
        let header = Header::data(block.start, length).encode();
        let offset = self.offset + block.start;
        self.send_range((offset, length), &header, channel, buffer, moved, operation)?;
        Ok(())
    }

    /// Sends a range of the file without a header.
    pub(super) fn send_stream(
        &self,
        range: (u64, u64),
        channel: &mut dyn Channel,
        buffer: &mut [u8],
        moved: &AtomicU64,
        operation: &Operation<'_>,
    ) -> Result<(), ChannelError> {
        self.send_range(range, &[], channel, buffer, moved, operation)
    }

    /// Sends `head` and a range of the file, without reading holes if that was configured.
    fn send_range(
        &self,
        (offset, length): (u64, u64),
        head: &[u8],
        channel: &mut dyn Channel,
        buffer: &mut [u8],
        moved: &AtomicU64,
        operation: &Operation<'_>,
    ) -> Result<(), ChannelError> {
        let range = FileRange {
            direct: self.file.direct(),
            ..FileRange::new(self.file.as_fd(), offset, length, buffer, moved)
        };
        match &self.extents {
            Some(extents) => extents.send(channel, head, range, operation),
            None => channel.send(head, Body::File(range), operation),
        }
    }

    fn read_exact(&self, mut bytes: &mut [u8]) -> Result<(), TransferError> {
        let mut offset = self.offset;
        while !bytes.is_empty() {
            match rustix::io::pread(self.file.as_fd(), &mut *bytes, offset) {
                Ok(0) => {
                    return Err(ChannelError::FileTooShort { end: offset }.into());
                }
                Ok(count) => {
                    bytes = &mut bytes[count..];
                    offset += count as u64;
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(StorageError::new("read", errno).into()),
            }
        }
        Ok(())
    }
}
