//! Takes arrived bytes out of the ring.

use std::sync::atomic::Ordering;

use gridhaul_direct::Call;
use gridhaul_stack::{ChannelError, FileRange, Operation, WriteLock};
use rustix::io::Errno;

use super::Streams;
use crate::memory::{Buffer, Span};

impl Streams {
    /// Waits for bytes; none at the end of the stream.
    fn ready(&mut self, operation: &Operation<'_>) -> Result<Span, ChannelError> {
        loop {
            let ready = self.opened.exchange.receiver.ready();
            if ready.length > 0 || self.opened.exchange.receiver.is_finished() {
                self.has_moved = false;
                return Ok(ready);
            }
            if self.opened.exchange.is_over() {
                return Err(self.end_reason(ChannelError::Aborted));
            }
            if !std::mem::take(&mut self.has_moved) {
                self.advance()?;
            }
            let has_come = self.opened.exchange.receiver.ready().length > 0
                || self.opened.exchange.receiver.is_finished()
                || self.opened.exchange.is_over();
            if !has_come {
                self.wait(operation)?;
            }
        }
    }

    /// Receives into `buffer`; returns 0 at the end of the stream.
    pub(crate) fn receive(
        &mut self,
        buffer: &mut [u8],
        operation: &Operation<'_>,
    ) -> Result<usize, ChannelError> {
        let ready = self.ready(operation)?.first(buffer.len());
        self.incoming()
            .copy_out(ready.offset, &mut buffer[..ready.length]);
        self.consume(ready.length)?;
        Ok(ready.length)
    }

    pub(super) fn consume(&mut self, count: usize) -> Result<(), ChannelError> {
        let receiver = &mut self.opened.exchange.receiver;
        receiver.consume(count);
        if receiver.owes_credit() {
            self.advance()?;
            self.has_moved = true;
        }
        Ok(())
    }

    /// Writes to a file straight from the ring; returns the count of bytes, less than the range only at the end of the stream.
    pub(crate) fn receive_into(
        &mut self,
        range: &FileRange<'_>,
        operation: &Operation<'_>,
    ) -> Result<u64, ChannelError> {
        let mut done = 0;
        while done < range.length {
            let piece = self.files.piece(range, done);
            let count = self.receive_piece(&piece, operation)?;
            self.files.end(count);
            done += count;
            if self.opened.exchange.receiver.is_finished() {
                break;
            }
        }
        Ok(done)
    }

    /// Receives a range in one way; returns the count of bytes, less than all of it at the end of the stream, where the stream moves
    /// to another ring, and after a call that has waited for the disk.
    fn receive_piece(
        &mut self,
        range: &FileRange<'_>,
        operation: &Operation<'_>,
    ) -> Result<u64, ChannelError> {
        let ring_bytes = self.opened.exchange.receiver.bytes_of_ring_in_use();
        if let Some(plan) = self.plan(range, Call::Write, ring_bytes)
            && let Some(done) = self.receive_queued(range, plan, operation)?
        {
            return Ok(done);
        }
        let mut done = 0;
        while done < range.length {
            let left = usize::try_from(range.length - done).unwrap_or(usize::MAX);
            let ready = self.ready(operation)?.first(left);
            if ready.length == 0 {
                break;
            }
            let (written, has_waited) = {
                let _turn = WriteLock::acquire(range.file);
                let timer = self.files.time_call();
                let offset = range.offset + done;
                let written = self.incoming().write_to(range.file, offset, ready);
                (written, self.files.note_call(Call::Write, timer))
            };
            let count = match written {
                Ok(0) => return Err(ChannelError::File(std::io::ErrorKind::WriteZero.into())),
                Ok(count) => count,
                Err(error) if error.raw_os_error() == Some(Errno::INTR.raw_os_error()) => continue,
                Err(error) => return Err(ChannelError::File(error)),
            };
            range.moved.fetch_add(count as u64, Ordering::Release);
            done += count as u64;
            self.consume(count)?;
            if has_waited {
                break;
            }
        }
        Ok(done)
    }

    /// Receives through memory, for callers that need to see the bytes.
    pub(crate) fn receive_through_memory(
        &mut self,
        range: FileRange<'_>,
        operation: &Operation<'_>,
    ) -> Result<u64, ChannelError> {
        let writer = range.writer();
        let mut done = 0;
        while done < range.length {
            let left = usize::try_from(range.length - done).unwrap_or(usize::MAX);
            let ready = self.ready(operation)?.first(left.min(range.scratch.len()));
            if ready.length == 0 {
                break;
            }
            let piece = &mut range.scratch[..ready.length];
            self.incoming().copy_out(ready.offset, piece);
            writer.write(piece, done)?;
            done += ready.length as u64;
            self.consume(ready.length)?;
        }
        Ok(done)
    }
}
