//! Stream mode: one channel; its end is the end of the data (RFC 959 3.4.1).

use std::sync::atomic::Ordering;

use gridhaul_stack::{Body, Channel, ChannelError, Operation};

use super::file_part::FilePart;
use super::text::Text;
use crate::channels::{DataChannels, sending_channel};
use crate::context::Context;
use crate::error::TransferError;

pub(super) fn send_file(
    context: &Context,
    part: &FilePart,
    channels: &mut DataChannels,
) -> Result<(), TransferError> {
    let running = &context.running;
    let (_permit, mut channel) = sending_channel(context, &mut channels.port)?;
    let used = running.count_channel(0, &*channel);
    let operation = running.operation();
    let mut buffer = context.buffer()?;
    running.note_block(buffer.len() as u64);
    let mut sent = Ok(());
    let mut done = 0;
    while sent.is_ok() && done < part.length {
        let length = context.piece_bytes(part.length - done);
        sent = context.pay(length).and_then(|()| {
            let range = (part.offset + done, length);
            part.send_stream(range, &mut *channel, &mut buffer, &used.moved, &operation)?;
            Ok(())
        });
        done += length;
    }
    let sent = sent.and_then(|()| Ok(finish(&mut *channel, &operation)?));
    running.note_use(&used, &*channel);
    // To the receiver, an orderly end after a failure would look like the end of the file.
    sent.inspect_err(|_| channel.abort())?;
    Ok(())
}

/// Ends a stream after its last byte. A peer that closes as soon as it has all bytes may reset the connection before or
/// after we end it; it has received the same data in both cases. So a reset is an error only if the peer's host has not
/// acknowledged all bytes.
fn finish(channel: &mut dyn Channel, operation: &Operation<'_>) -> Result<(), ChannelError> {
    match channel.finish(operation) {
        Err(ChannelError::Aborted | ChannelError::PeerClosed) if channel.is_delivered() => Ok(()),
        ended => ended,
    }
}

pub(super) fn send_text(
    context: &Context,
    mut text: Box<dyn Text>,
    channels: &mut DataChannels,
) -> Result<(), TransferError> {
    let running = &context.running;
    let (_permit, mut channel) = sending_channel(context, &mut channels.port)?;
    let used = running.count_channel(0, &*channel);
    let operation = running.operation();
    let mut piece = Vec::new();
    let mut largest = 0;
    let sent = loop {
        match text.next_piece(&mut piece) {
            Ok(true) => {}
            Ok(false) => break finish(&mut *channel, &operation).map_err(TransferError::from),
            Err(error) => break Err(error),
        }
        largest = largest.max(piece.len() as u64);
        if let Err(error) = context.pay(piece.len() as u64) {
            break Err(error);
        }
        if let Err(error) = channel.send(&[], Body::Memory(&piece), &operation) {
            break Err(ChannelError::into(error));
        }
        used.moved.fetch_add(piece.len() as u64, Ordering::Release);
    };
    running.note_block(largest);
    running.note_use(&used, &*channel);
    sent.inspect_err(|_| channel.abort())
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use gridhaul_stack::{Cancel, ChannelInfo, Received};

    use super::*;

    /// A channel that cannot be finished, because the peer has reset it.
    #[derive(Debug)]
    struct Closed {
        is_delivered: bool,
    }

    impl Channel for Closed {
        fn send(&mut self, _: &[u8], _: Body<'_>, _: &Operation<'_>) -> Result<(), ChannelError> {
            Ok(())
        }

        fn receive(&mut self, _: &mut [u8], _: &Operation<'_>) -> Result<Received, ChannelError> {
            Ok(Received::EndOfStream)
        }

        fn finish(&mut self, _: &Operation<'_>) -> Result<(), ChannelError> {
            Err(ChannelError::Aborted)
        }

        fn is_delivered(&self) -> bool {
            self.is_delivered
        }

        fn abort(&mut self) {}

        fn peer(&self) -> SocketAddr {
            ([127, 0, 0, 1], 1).into()
        }

        fn info(&self) -> ChannelInfo {
            ChannelInfo::default()
        }
    }

    #[test]
    fn a_reset_is_no_error_if_all_bytes_were_acknowledged() {
        let cancel = Cancel::new();
        let operation = Operation {
            deadline: None,
            cancel: &cancel,
        };
        let end = |is_delivered| finish(&mut Closed { is_delivered }, &operation);
        assert!(end(true).is_ok());
        assert!(matches!(end(false), Err(ChannelError::Aborted)));
    }
}
