//! Receiving into files: many records are received with one call and opened in place.

use std::ops::Range;

use gridhaul_security::tls::MAX_RECORD;
use gridhaul_stack::{ChannelError, FileRange, Operation, Received};

use super::{TlsChannel, at_most};
use crate::engine::Engine;
use crate::incoming::whole_record;
use crate::pieces::Pieces;
use crate::record::{FULL_RECORD, TRUNCATED};

/// The most bytes that one call receives for a file.
const MAX_BATCH: usize = 64 * FULL_RECORD;

/// The most bytes that protection adds to a record.
const RECORD_OVERHEAD: usize = 32;

impl<E: Engine> TlsChannel<E> {
    /// Receives records into the scratch memory of a file range, and writes their content to the file, `done` bytes after the
    /// start of the range. Returns the number of bytes, or `None` at the end of the stream.
    pub(super) fn receive_batch(
        &mut self,
        range: &mut FileRange<'_>,
        done: u64,
        operation: &Operation<'_>,
    ) -> Result<Option<u64>, ChannelError> {
        if self.offload.is_receiving {
            return self.receive_batch_by_kernel(range, done, operation);
        }
        let wanted = range.length - done;
        let Some(filled) = self.fill_scratch(range.scratch, wanted, operation)? else {
            return Ok(None);
        };
        let mut batch = Batch {
            next: 0,
            left: wanted,
            unused: 0..0,
        };
        let writer = range.writer();
        let mut written = done;
        let mut pieces = Pieces::new();
        loop {
            let records = &mut range.scratch[..filled];
            let opened = self.open_batch(records, &mut batch, &mut pieces);
            // Records before one that cannot be opened are valid.
            written += pieces.write(range.scratch, &writer, written)?;
            match opened {
                Ok(true) => {}
                Ok(false) => break,
                Err(reason) => return Err(self.refuse(reason, operation)),
            }
        }
        let sealed = &range.scratch[batch.next..filled];
        self.incoming.keep(&range.scratch[batch.unused], sealed);
        self.flush(operation)?;
        Ok(Some(wanted - batch.left))
    }

    /// Moves buffered records into the scratch memory, and receives more unless one is complete. Returns the number of bytes
    /// there, or `None` at the end of the stream.
    fn fill_scratch(
        &mut self,
        scratch: &mut [u8],
        wanted: u64,
        operation: &Operation<'_>,
    ) -> Result<Option<usize>, ChannelError> {
        let filled = self.incoming.move_sealed(scratch);
        let first = whole_record(&scratch[..filled]).map_err(|reason| self.fail(reason))?;
        if first.is_some() {
            return Ok(Some(filled));
        }
        // Only as much as the range needs, so that few bytes must be kept for the next range.
        let wanted = usize::try_from(wanted).map_or(MAX_BATCH, |wanted| wanted.min(MAX_BATCH));
        let records = wanted + (wanted / FULL_RECORD + 1) * RECORD_OVERHEAD;
        let end = records.clamp(MAX_RECORD, scratch.len());
        match self.inner.receive(&mut scratch[filled..end], operation)? {
            Received::Bytes(count) => Ok(Some(filled + count.get())),
            Received::EndOfStream if filled == 0 => Ok(None),
            Received::EndOfStream => Err(self.fail(TRUNCATED)),
        }
    }

    /// Opens complete records until none is left, the range is complete, or `pieces` is full. Returns whether more may follow.
    fn open_batch(
        &mut self,
        records: &mut [u8],
        batch: &mut Batch,
        pieces: &mut Pieces,
    ) -> Result<bool, String> {
        while batch.left > 0 && !self.engine.is_closed_by_peer() {
            if pieces.is_full() {
                return Ok(true);
            }
            let Some(length) = whole_record(&records[batch.next..])? else {
                break;
            };
            let record = &mut records[batch.next..batch.next + length];
            let content = self.engine.open(record, &mut self.answers)?;
            let (start, end) = (batch.next + content.start, batch.next + content.end);
            let used = at_most(content.len(), batch.left);
            pieces.add(start..start + used);
            batch.next += length;
            batch.left -= used as u64;
            batch.unused = start + used..end;
        }
        Ok(false)
    }
}

/// Records in scratch memory.
struct Batch {
    /// The offset of the next record.
    next: usize,
    /// The bytes of content that the range still needs.
    left: u64,
    /// The opened content beyond that.
    unused: Range<usize>,
}
