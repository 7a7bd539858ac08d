//! MODE E blocks: a header of 17 bytes and a payload (GFD.20, extended block mode).

use std::io::{self, Read, Write};

/// The bits of a block's first byte.
pub mod descriptor {
    /// End of file: the offset field is the number of channels that send an end of data.
    pub const EOF: u8 = 0x40;
    /// The sender suspects errors in this block.
    pub const ERROR: u8 = 0x20;
    /// The payload is a restart marker.
    pub const RESTART: u8 = 0x10;
    /// End of data on this channel.
    pub const EOD: u8 = 0x08;
    /// The sender closes the channel after this block.
    pub const CLOSE: u8 = 0x04;
}

/// The largest payload that is read; tests send less in one block.
const LARGEST: u64 = 64 << 20;

/// The header of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// Bits of [`descriptor`].
    pub descriptor: u8,
    /// The length of the payload in bytes.
    pub count: u64,
    /// The offset in the file; with [`descriptor::EOF`], the number of channels.
    pub offset: u64,
}

impl Block {
    /// The header of a block of data.
    pub const fn data(count: u64, offset: u64) -> Self {
        Self {
            descriptor: 0,
            count,
            offset,
        }
    }

    /// End of data on a channel.
    pub const fn end_of_data() -> Self {
        Self {
            descriptor: descriptor::EOD,
            count: 0,
            offset: 0,
        }
    }

    /// End of data on this channel and end of file after this many channels.
    pub const fn end_of_file(channels: u64) -> Self {
        Self {
            descriptor: descriptor::EOF | descriptor::EOD,
            count: 0,
            offset: channels,
        }
    }

    /// The encoded header.
    pub fn bytes(self) -> [u8; 17] {
        let mut bytes = [0; 17];
        bytes[0] = self.descriptor;
        bytes[1..9].copy_from_slice(&self.count.to_be_bytes());
        bytes[9..].copy_from_slice(&self.offset.to_be_bytes());
        bytes
    }

    /// Decodes a header.
    pub fn parse(bytes: [u8; 17]) -> Self {
        let number = |from: usize| {
            let mut number = [0; 8];
            number.copy_from_slice(&bytes[from..from + 8]);
            u64::from_be_bytes(number)
        };
        Self {
            descriptor: bytes[0],
            count: number(1),
            offset: number(9),
        }
    }

    /// Whether the channel carries no more data after this block.
    pub fn ends_data(self) -> bool {
        self.descriptor & descriptor::EOD != 0
    }
}

/// Writes a block of data.
///
/// # Errors
///
/// When the peer does not accept the bytes.
pub fn write_block(channel: &mut impl Write, offset: u64, payload: &[u8]) -> io::Result<()> {
    channel.write_all(&Block::data(payload.len() as u64, offset).bytes())?;
    channel.write_all(payload)
}

/// The blocks that end a transfer over this number of channels, one for each.
pub fn end_blocks(channels: usize) -> Vec<Block> {
    let mut ends = vec![Block::end_of_data(); channels];
    if let Some(first) = ends.first_mut() {
        *first = Block::end_of_file(channels as u64);
    }
    ends
}

/// A block as it arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Incoming {
    /// Its header.
    pub block: Block,
    /// Its payload: `block.count` bytes.
    pub payload: Vec<u8>,
}

/// Reads a block; `None` when the channel ends before its first byte.
///
/// # Errors
///
/// When the channel ends inside a block, or the block is larger than any of the tests.
pub fn read_block(channel: &mut impl Read) -> io::Result<Option<Incoming>> {
    let mut header = [0; 17];
    let first = channel.read(&mut header)?;
    if first == 0 {
        return Ok(None);
    }
    channel.read_exact(&mut header[first..])?;
    let block = Block::parse(header);
    let length = usize::try_from(block.count)
        .ok()
        .filter(|_| block.count <= LARGEST);
    let Some(length) = length else {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("{block:?} is too large"),
        ));
    };
    let mut payload = vec![0; length];
    channel.read_exact(&mut payload)?;
    Ok(Some(Incoming { block, payload }))
}

/// Reads a channel to its end of data.
///
/// # Errors
///
/// As [`read_block`]; and when the channel ends before its end of data.
pub fn read_channel(channel: &mut impl Read) -> io::Result<Vec<Incoming>> {
    let mut blocks = Vec::new();
    loop {
        let Some(block) = read_block(channel)? else {
            let words = format!(
                "the channel ended after {} blocks without EOD",
                blocks.len()
            );
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, words));
        };
        let ends = block.block.ends_data();
        blocks.push(block);
        if ends {
            return Ok(blocks);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Recorded from globus-gridftp-server 13.24.
    #[test]
    fn headers_are_the_bytes_of_the_real_server() {
        let hex = |block: Block| -> String {
            block
                .bytes()
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect()
        };
        assert_eq!(
            hex(Block::data(200_000, 300_000)),
            "000000000000030d4000000000000493e0"
        );
        assert_eq!(
            hex(Block::end_of_file(4)),
            "4800000000000000000000000000000004"
        );
        assert_eq!(
            hex(Block::end_of_data()),
            "0800000000000000000000000000000000"
        );
        let block = Block::data(137_856, 862_144);
        assert_eq!(Block::parse(block.bytes()), block);
    }

    #[test]
    fn a_channel_is_read_to_its_end_of_data() {
        let mut bytes = Vec::new();
        write_block(&mut bytes, 7, b"data").unwrap();
        bytes.extend(Block::end_of_file(1).bytes());
        bytes.push(0);
        let blocks = read_channel(&mut bytes.as_slice()).unwrap();
        assert_eq!(blocks[0].payload, b"data");
        assert_eq!(blocks[1].block, Block::end_of_file(1));
        assert!(read_channel(&mut &bytes[..20]).is_err());
        assert!(read_channel(&mut &bytes[..21]).is_err());
    }
}
