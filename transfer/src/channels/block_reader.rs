//! Reads MODE E blocks from a channel.

use gridhaul_protocol::block::{Block, HEADER_BYTES, Header};
use gridhaul_stack::{Channel, ChannelError, FileRange, Operation, Received};

/// Reads headers and payloads of blocks, with read-ahead.
///
/// While blocks are small, one call receives a header together with the bytes that follow it: a small file with
/// its header and its EOD is then one system call, not four. While blocks are large, there is no
/// read-ahead, so that payloads go from the channel straight to the file.
#[derive(Debug, Default)]
pub(crate) struct BlockReader {
    /// Received bytes.
    ahead: Vec<u8>,
    /// How many of them were consumed.
    used: usize,
    large_blocks: bool,
}

/// The size of a receive call while blocks are small.
pub(crate) const READ_AHEAD_BYTES: usize = 16 * 1024;

/// Blocks of at least this size are received without read-ahead.
const LARGE_BLOCK_BYTES: u64 = 64 * 1024;

/// What a channel yields where a header is expected.
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
        // EOD and EOF carry no payload, so they do not indicate the size of data blocks.
        if header.count > 0 {
            self.large_blocks = header.count >= LARGE_BLOCK_BYTES;
        }
        Ok(NextHeader::Header(header))
    }

    /// Moves a part of a block's payload to a range of a file. Returns the number of bytes moved: less than
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

    /// Receives a part of a block's payload into memory. Returns the number of bytes received: less than the
    /// size of `buffer` only if the stream ended.
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

    /// Receives and discards `length` bytes; `false` if the stream ended before.
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

    /// Reads ahead a small transfer on a single channel as a whole. `false` if it is larger, uses more channels,
    /// or does not arrive in time; the bytes received so far stay available.
    pub(crate) fn receive_whole(
        &mut self,
        channel: &mut dyn Channel,
        operation: &Operation<'_>,
    ) -> bool {
        while !self.holds_whole() {
            let has_room = !self.large_blocks && self.unused().len() < READ_AHEAD_BYTES;
            if !has_room || !matches!(self.fill(channel, HEADER_BYTES, operation), Ok(true)) {
                return false;
            }
        }
        true
    }

    /// Whether bytes of the next transfer wait here or in the channel.
    pub(crate) fn has_input(&self, channel: &dyn Channel) -> bool {
        !self.unused().is_empty() || channel.has_input()
    }

    /// Whether the read-ahead contains all data up to EOD, and EOF announces no other channel.
    fn holds_whole(&self) -> bool {
        let mut rest = self.unused();
        let mut is_only_channel = false;
        while let Some((header, behind)) = rest.split_first_chunk() {
            match Block::parse(Header::decode(header)) {
                Ok(Block::Data {
                    count, end_of_data, ..
                }) => {
                    let payload = usize::try_from(count).unwrap_or(usize::MAX);
                    match behind.get(payload..) {
                        Some(_) if end_of_data => return is_only_channel,
                        Some(behind) => rest = behind,
                        None => return false,
                    }
                }
                Ok(Block::EndOfFile {
                    eods, end_of_data, ..
                }) => {
                    is_only_channel = eods == 1;
                    if end_of_data {
                        return is_only_channel;
                    }
                    rest = behind;
                }
                Ok(Block::EndOfData { .. }) => return is_only_channel,
                Ok(Block::RestartMarker { .. }) | Err(_) => return false,
            }
        }
        false
    }

    fn unused(&self) -> &[u8] {
        &self.ahead[self.used..]
    }

    fn at_most(&self, limit: u64) -> &[u8] {
        let unused = self.unused();
        let count = usize::try_from(limit).map_or(unused.len(), |limit| limit.min(unused.len()));
        &unused[..count]
    }

    /// Receives more bytes: the remainder of `wanted` bytes, or all available ones while blocks are
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

#[cfg(test)]
mod tests {
    use gridhaul_protocol::block::Descriptor;

    use super::*;

    fn header(descriptor: Descriptor, count: u64, offset: u64) -> [u8; HEADER_BYTES] {
        let header = Header {
            descriptor,
            count,
            offset,
        };
        header.encode()
    }

    #[test]
    fn a_transfer_is_whole_with_its_last_byte() {
        let data = Header::data(0, 3).encode();
        let both = Descriptor::EOF | Descriptor::EOD;
        let ends: [(&[[u8; HEADER_BYTES]], bool); 5] = [
            (&[header(both, 0, 1)], true),
            (
                &[header(Descriptor::EOF, 0, 1), header(Descriptor::EOD, 0, 0)],
                true,
            ),
            // Further channels are announced, or no EOF came.
            (&[header(both, 0, 2)], false),
            (&[header(Descriptor::EOD, 0, 0)], false),
            (&[header(Descriptor::EOF, 0, 1)], false),
        ];
        for (end, is_whole) in ends {
            let whole = [&data[..], b"abc", &end.concat()].concat();
            for length in 0..=whole.len() {
                let reader = BlockReader {
                    ahead: whole[..length].to_vec(),
                    ..BlockReader::default()
                };
                let expected = is_whole && length == whole.len();
                assert_eq!(reader.holds_whole(), expected, "{end:?} {length}");
            }
        }
    }
}
