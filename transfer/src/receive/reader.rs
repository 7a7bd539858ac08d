//! Reads MODE E blocks from a channel.

use gridhaul_protocol::block::{HEADER_BYTES, Header};
use gridhaul_stack::{Channel, ChannelError, FileRange, Operation, Received};

/// Bytes of a channel that were received and not used yet.
///
/// While blocks are small, one call receives a header together with what follows it: a small file with
/// its header and its EOD is then one system call, not four. While blocks are large, nothing is read
/// ahead, so that payloads go from the channel straight to the file.
#[derive(Debug, Default)]
pub(crate) struct BlockReader {
    ahead: Vec<u8>,
    used: usize,
    large_blocks: bool,
}

/// How much is received at once while blocks are small.
const READ_AHEAD_BYTES: usize = 16 * 1024;

/// Blocks from this size are received without reading ahead.
const LARGE_BLOCK_BYTES: u64 = 64 * 1024;

/// What comes where a header is expected.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NextHeader {
    /// A header.
    Header(Header),
    /// The end of the stream, between two blocks.
    EndOfStream,
    /// The end of the stream, within a header.
    Truncated,
}

impl BlockReader {
    /// Receives the next header.
    pub(crate) fn header(
        &mut self,
        channel: &mut dyn Channel,
        operation: &Operation<'_>,
    ) -> Result<NextHeader, ChannelError> {
        while self.unused().len() < HEADER_BYTES {
            if !self.fill(channel, HEADER_BYTES, operation)? {
                let between = self.unused().is_empty();
                return Ok(if between {
                    NextHeader::EndOfStream
                } else {
                    NextHeader::Truncated
                });
            }
        }
        let mut bytes = [0; HEADER_BYTES];
        bytes.copy_from_slice(&self.unused()[..HEADER_BYTES]);
        self.used += HEADER_BYTES;
        let header = Header::decode(&bytes);
        // EOD and EOF carry no payload, and say nothing about the size of the blocks that do.
        if header.count > 0 {
            self.large_blocks = header.count >= LARGE_BLOCK_BYTES;
        }
        Ok(NextHeader::Header(header))
    }

    /// Moves a part of a block's payload to a range of a file. Returns how many bytes came: fewer than
    /// `range.length` only if the stream ended.
    pub(crate) fn payload_into(
        &mut self,
        channel: &mut dyn Channel,
        range: FileRange<'_>,
        operation: &Operation<'_>,
    ) -> Result<u64, ChannelError> {
        let ahead = self.at_most(range.length);
        range.writer().write(ahead, 0)?;
        let taken = ahead.len() as u64;
        self.used += ahead.len();
        if taken == range.length {
            return Ok(taken);
        }
        let rest = FileRange {
            offset: range.offset + taken,
            length: range.length - taken,
            ..range
        };
        Ok(taken + channel.receive_into(rest, operation)?)
    }

    /// Receives a part of a block's payload into memory. Returns how many bytes came: fewer than there is
    /// room for only if the stream ended.
    pub(crate) fn payload(
        &mut self,
        channel: &mut dyn Channel,
        buffer: &mut [u8],
        operation: &Operation<'_>,
    ) -> Result<usize, ChannelError> {
        let ahead = self.at_most(buffer.len() as u64);
        let mut done = ahead.len();
        buffer[..done].copy_from_slice(ahead);
        self.used += done;
        while done < buffer.len() {
            match channel.receive(&mut buffer[done..], operation)? {
                Received::Bytes(count) => done += count.get(),
                Received::EndOfStream => break,
            }
        }
        Ok(done)
    }

    /// Receives and forgets `length` bytes; `false` if the stream ended before.
    pub(crate) fn skip(
        &mut self,
        channel: &mut dyn Channel,
        mut length: u64,
        operation: &Operation<'_>,
    ) -> Result<bool, ChannelError> {
        loop {
            let ahead = self.at_most(length).len();
            self.used += ahead;
            length -= ahead as u64;
            if length == 0 {
                return Ok(true);
            }
            if !self.fill(channel, READ_AHEAD_BYTES, operation)? {
                return Ok(false);
            }
        }
    }

    fn unused(&self) -> &[u8] {
        &self.ahead[self.used..]
    }

    fn at_most(&self, limit: u64) -> &[u8] {
        let unused = self.unused();
        let count = usize::try_from(limit).map_or(unused.len(), |limit| limit.min(unused.len()));
        &unused[..count]
    }

    /// Receives more: what is missing of `wanted` bytes, or as much as there is while blocks are
    /// small. `false` at the end of the stream.
    fn fill(
        &mut self,
        channel: &mut dyn Channel,
        wanted: usize,
        operation: &Operation<'_>,
    ) -> Result<bool, ChannelError> {
        self.ahead.drain(..self.used);
        self.used = 0;
        let present = self.ahead.len();
        let room = if self.large_blocks {
            wanted - present
        } else {
            READ_AHEAD_BYTES - present
        };
        self.ahead.resize(present + room, 0);
        let received = channel.receive(&mut self.ahead[present..], operation);
        let count = match received {
            Ok(Received::Bytes(count)) => count.get(),
            Ok(Received::EndOfStream) | Err(_) => 0,
        };
        self.ahead.truncate(present + count);
        received.map(|_| count > 0)
    }
}
