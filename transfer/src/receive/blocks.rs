//! MODE E: the blocks of one channel, in any order (GFD.20 3.4).

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gridhaul_protocol::block::Block;
use gridhaul_stack::{ChannelError, Operation};

use super::gatherer::{Gatherer, Piece};
use super::part::Part;
use crate::buffers::Buffer;
use crate::channels::{DataChannel, NextHeader};
use crate::checksums::Watcher;
use crate::context::Context;
use crate::error::{PeerError, TransferError};

/// Payloads are moved in ranges of this size, so that restart markers make progress within large blocks.
const RANGE_BYTES: u64 = 1024 * 1024;

/// The same past the page cache, where the end of each range waits for its last requests to the disk.
const DIRECT_RANGE_BYTES: u64 = 16 * RANGE_BYTES;

/// Receives the blocks of one channel.
pub(super) struct Blocks<'a> {
    context: &'a Context,
    part: &'a Part,
    stripe: usize,
    channel: &'a mut DataChannel,
    /// Counts the bytes written to the file.
    moved: &'a Arc<AtomicU64>,
    /// Restores the order of the file, if configured.
    gatherer: Option<&'a Gatherer>,
    /// Whether a header was received: without one, the channel is not used by the transfer.
    used: bool,
    watcher: Option<Watcher<'a>>,
    /// Taken with the first payload: an idle channel needs none.
    buffer: Option<Buffer>,
    /// The length of the largest block, in bytes.
    largest: u64,
}

/// The state of a channel after its end of data.
pub(super) enum ChannelEnd {
    /// Open for the next transfer.
    Open,
    /// The peer closes it.
    Closed,
}

impl<'a> Blocks<'a> {
    pub(super) fn new(
        context: &'a Context,
        part: &'a Part,
        stripe: usize,
        channel: &'a mut DataChannel,
        moved: &'a Arc<AtomicU64>,
        gatherer: Option<&'a Gatherer>,
    ) -> Self {
        Self {
            context,
            part,
            stripe,
            channel,
            moved,
            gatherer,
            used: false,
            watcher: part.watch(),
            buffer: None,
            largest: 0,
        }
    }

    /// Receives up to the end of the channel's data.
    pub(super) fn receive(mut self) -> Result<ChannelEnd, TransferError> {
        let received = self.receive_all();
        self.context.running.note_block(self.largest);
        received
    }

    fn receive_all(&mut self) -> Result<ChannelEnd, TransferError> {
        loop {
            let header = match self.next_header()? {
                Some(NextHeader::Header(header)) => header,
                // A port scan, a health check, or a channel that the peer closed between two
                // transfers.
                Some(NextHeader::EndOfStream) if !self.used => {
                    return Ok(ChannelEnd::Closed);
                }
                Some(NextHeader::EndOfStream | NextHeader::Truncated) => {
                    return Err(PeerError::EndedBeforeEod.into());
                }
                None => return Ok(ChannelEnd::Open),
            };
            self.used = true;
            if let Some(end) = self.receive_block(Block::parse(header).map_err(PeerError::from)?)? {
                return Ok(end);
            }
        }
    }

    /// The next header; `None` if the transfer is complete without this channel.
    fn next_header(&mut self) -> Result<Option<NextHeader>, TransferError> {
        let running = &self.context.running;
        let cancel = if self.used {
            &running.cancel
        } else {
            &running.accepting
        };
        let operation = Operation {
            deadline: None,
            cancel,
        };
        match self
            .channel
            .reader
            .header(&mut *self.channel.channel, &operation)
        {
            Ok(header) => Ok(Some(header)),
            Err(ChannelError::Cancelled) if !self.used && !running.has_failed() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Processes a block; returns the state of the channel after its last block.
    fn receive_block(&mut self, block: Block) -> Result<Option<ChannelEnd>, TransferError> {
        let ledger = &self.context.running.ledger;
        let (end_of_data, close) = match block {
            Block::Data {
                offset,
                count,
                end_of_data,
                close,
            } => {
                self.receive_payload(offset..offset + count)?;
                (end_of_data, close)
            }
            Block::EndOfFile {
                eods,
                end_of_data,
                close,
            } => {
                ledger
                    .end_of_file(self.stripe, eods)
                    .map_err(PeerError::from)?;
                (end_of_data, close)
            }
            Block::EndOfData { close } => (true, close),
            Block::RestartMarker { count } => {
                self.skip(count)?;
                (false, false)
            }
        };
        if end_of_data {
            ledger.end_of_data(self.stripe).map_err(PeerError::from)?;
        }
        if ledger.complete() {
            self.context.running.accepting.cancel();
        }
        let end = if close {
            ChannelEnd::Closed
        } else {
            ChannelEnd::Open
        };
        Ok(end_of_data.then_some(end))
    }

    fn receive_payload(&mut self, block: Range<u64>) -> Result<(), TransferError> {
        let place = self.part.place(&block)?;
        self.context.running.ledger.claim(block.clone())?;
        self.largest = self.largest.max(block.end - block.start);
        let mut buffer = match self.buffer.take() {
            Some(buffer) => buffer,
            None => self.context.buffer()?,
        };
        buffer = match self.gatherer {
            Some(gatherer) => self.receive_in_order(block, gatherer, buffer)?,
            None => self.receive_in_place(block, place, buffer)?,
        };
        self.buffer = Some(buffer);
        Ok(())
    }

    /// Receives a block straight into the file.
    fn receive_in_place(
        &mut self,
        block: Range<u64>,
        place: u64,
        mut buffer: Buffer,
    ) -> Result<Buffer, TransferError> {
        let running = &self.context.running;
        let longest = if self.part.is_direct() {
            DIRECT_RANGE_BYTES
        } else {
            RANGE_BYTES
        };
        let mut done = 0;
        while block.start + done < block.end {
            let most = longest.min(block.end - block.start - done);
            let length = self.context.piece_bytes(most);
            let before = self.moved.load(Ordering::Acquire);
            let watcher = self.watcher.as_ref();
            let range = self
                .part
                .range(place + done, length, &mut buffer, self.moved, watcher);
            let DataChannel { channel, reader } = &mut *self.channel;
            let received = reader.payload_into(&mut **channel, range, &running.operation());
            // Bytes written before a failure count as well, so that a restart does not send them again.
            let written = self.moved.load(Ordering::Acquire) - before;
            let start = block.start + done;
            running.ledger.record(start..start + written);
            self.part.note_stored(written)?;
            if received? < length {
                return Err(PeerError::EndedBeforeEod.into());
            }
            self.context.pay(length)?;
            done += length;
        }
        Ok(buffer)
    }

    /// Receives a block into memory; the gatherer writes it in the order of the file.
    fn receive_in_order(
        &mut self,
        block: Range<u64>,
        gatherer: &Gatherer,
        mut buffer: Buffer,
    ) -> Result<Buffer, TransferError> {
        let running = &self.context.running;
        let mut start = block.start;
        while start < block.end {
            let left = usize::try_from(block.end - start).unwrap_or(usize::MAX);
            let most = left.min(buffer.len());
            let most = self.context.piece_bytes(most as u64);
            let wanted = usize::try_from(most).unwrap_or(usize::MAX);
            let DataChannel { channel, reader } = &mut *self.channel;
            let received =
                reader.payload(&mut **channel, &mut buffer[..wanted], &running.operation())?;
            let piece = Piece {
                range: start..start + received as u64,
                buffer,
                moved: self.moved.clone(),
            };
            buffer = gatherer.hand_over(piece, &running.cancel)?;
            self.context.pay(received as u64)?;
            if received < wanted {
                return Err(PeerError::EndedBeforeEod.into());
            }
            start += received as u64;
        }
        Ok(buffer)
    }

    fn skip(&mut self, count: u64) -> Result<(), TransferError> {
        let operation = self.context.running.operation();
        let DataChannel { channel, reader } = &mut *self.channel;
        if reader.skip(&mut **channel, count, &operation)? {
            Ok(())
        } else {
            Err(PeerError::EndedBeforeEod.into())
        }
    }
}
