//! Stream mode: one channel; its end is the end of the data (RFC 959 3.4.1).

use std::sync::atomic::Ordering;

use gridhaul_stack::{Channel, Received};

use super::part::Part;
use crate::channels::{DataChannels, receiving_channel};
use crate::context::Context;
use crate::error::TransferError;

/// The length of a stream is unknown; a channel receives up to this much per call.
const RANGE_BYTES: u64 = 16 * 1024 * 1024;

/// Receives a file from an offset of the transfer on, which has this `place` in the file; returns the number of received bytes.
pub(super) fn receive_file(
    context: &Context,
    part: &Part,
    (offset, place): (u64, u64),
    channels: &mut DataChannels,
) -> Result<u64, TransferError> {
    let running = &context.running;
    let (_permit, mut channel) = receiving_channel(context, &mut channels.port)?;
    let used = running.count_channel(0, &*channel);
    let moved = &used.moved;
    let mut buffer = context.buffer()?;
    running.note_block(buffer.len() as u64);
    let watcher = part.watch();
    loop {
        let done = moved.load(Ordering::Acquire);
        let wanted = match part.limit().room(offset + done) {
            Ok(room) => context.piece_bytes(RANGE_BYTES).min(room),
            Err(excess) => {
                // Only the end may follow.
                return match receive(&mut *channel, &mut buffer, context) {
                    Ok(Received::EndOfStream) => {
                        running.note_use(&used, &*channel);
                        answer_end(&mut *channel, context);
                        Ok(done)
                    }
                    Ok(Received::Bytes(_)) => Err(excess.into()),
                    Err(error) => Err(error),
                }
                .inspect_err(|_| channel.abort());
            }
        };
        let range = part.range(place + done, wanted, &mut buffer, moved, watcher.as_ref());
        let received = channel.receive_into(range, &running.operation());
        if received.as_ref().ok() != Some(&wanted) {
            running.note_use(&used, &*channel);
        }
        let received = received.inspect_err(|_| channel.abort())?;
        part.note_stored(received)?;
        context.pay(received).inspect_err(|_| channel.abort())?;
        if received < wanted {
            answer_end(&mut *channel, context);
            return Ok(moved.load(Ordering::Acquire));
        }
    }
}

/// Receives text and converts its line ends to those of this system (RFC 959 3.1.1.1); returns the number of bytes
/// written.
pub(super) fn receive_text(
    context: &Context,
    part: &Part,
    offset: u64,
    channels: &mut DataChannels,
) -> Result<u64, TransferError> {
    let running = &context.running;
    let (_permit, mut channel) = receiving_channel(context, &mut channels.port)?;
    let used = running.count_channel(0, &*channel);
    let moved = &used.moved;
    let mut buffer = context.buffer()?;
    let mut lines = LineEnds::default();
    let mut text = Vec::new();
    loop {
        let received =
            receive(&mut *channel, &mut buffer, context).inspect_err(|_| channel.abort())?;
        text.clear();
        match received {
            Received::Bytes(count) => lines.convert(&buffer[..count.get()], &mut text),
            Received::EndOfStream => lines.finish(&mut text),
        }
        let done = moved.load(Ordering::Acquire);
        part.writer(offset + done, moved, None).write(&text, 0)?;
        part.note_stored(text.len() as u64)?;
        context
            .pay(text.len() as u64)
            .inspect_err(|_| channel.abort())?;
        if received == Received::EndOfStream {
            running.note_use(&used, &*channel);
            answer_end(&mut *channel, context);
            return Ok(moved.load(Ordering::Acquire));
        }
    }
}

pub(super) fn receive(
    channel: &mut dyn Channel,
    buffer: &mut [u8],
    context: &Context,
) -> Result<Received, TransferError> {
    Ok(channel.receive(buffer, &context.running.operation())?)
}

/// Ends the other direction as well: senders over TLS may wait for it (observed from Python's ftplib). An
/// error is irrelevant, because all data has arrived.
pub(super) fn answer_end(channel: &mut dyn Channel, context: &Context) {
    let _ = channel.finish(&context.running.operation());
}

/// Converts CRLF to LF; a CR without LF stays.
#[derive(Debug, Default)]
struct LineEnds {
    pending_cr: bool,
}

impl LineEnds {
    fn convert(&mut self, bytes: &[u8], text: &mut Vec<u8>) {
        for &byte in bytes {
            if self.pending_cr && byte != b'\n' {
                text.push(b'\r');
            }
            self.pending_cr = byte == b'\r';
            if !self.pending_cr {
                text.push(byte);
            }
        }
    }

    fn finish(&mut self, text: &mut Vec<u8>) {
        if std::mem::take(&mut self.pending_cr) {
            text.push(b'\r');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_ends_are_converted_across_reads() {
        let wire = b"a\r\nb\rc\r\r\nd\n\r";
        for cut in 0..=wire.len() {
            let mut lines = LineEnds::default();
            let mut text = Vec::new();
            lines.convert(&wire[..cut], &mut text);
            lines.convert(&wire[cut..], &mut text);
            lines.finish(&mut text);
            assert_eq!(text, b"a\nb\rc\r\nd\n\r", "cut at {cut}");
        }
    }
}
