//! Stream mode: one channel, whose end is the end of the data (RFC 959 3.4.1).

use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use gridhaul_stack::{Body, Channel, ChannelError, FileRange, Operation};
use gridhaul_storage::OpenedFile;

use super::extents::Extents;
use super::text::Text;
use crate::error::TransferError;
use crate::local::{Context, DataChannels};

/// The part of a file that is sent.
#[derive(Debug)]
pub(super) struct FilePart {
    pub(super) file: OpenedFile,
    pub(super) offset: u64,
    pub(super) length: u64,
    /// Holes are not read.
    pub(super) extents: Option<Extents>,
}

pub(super) fn send_file(
    context: &Context,
    part: &FilePart,
    channels: &mut DataChannels,
) -> Result<(), TransferError> {
    let running = &context.running;
    let (_permit, mut channel) =
        context.stream_channel(&mut channels.port, &context.shared.senders)?;
    let used = running.count_channel(0, &*channel);
    let operation = running.operation();
    let mut buffer = context
        .shared
        .buffers
        .take(&context.account.source, &running.cancel)?;
    running.note_block(buffer.len() as u64);
    let file = part.file.as_fd();
    let range = FileRange {
        direct: part.file.direct(),
        ..FileRange::new(file, part.offset, part.length, &mut buffer, &used.moved)
    };
    let sent = match &part.extents {
        Some(extents) => extents.send(&mut *channel, &[], range, &operation),
        None => channel.send(&[], Body::File(range), &operation),
    };
    let sent = sent.and_then(|()| finish(&mut *channel, &operation));
    running.note_use(&used, &*channel);
    // A stream that just ends would look complete to the receiver.
    sent.inspect_err(|_| channel.abort())?;
    Ok(())
}

/// Ends a stream of which everything was sent. A peer that closes when it has all that it wants, without waiting for the
/// end, may reset the connection before or after we end it; which of the two it is does not change what it got. So only
/// bytes that its host did not acknowledge make a failure of it.
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
    let (_permit, mut channel) =
        context.stream_channel(&mut channels.port, &context.shared.senders)?;
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

    /// A channel that cannot be finished, because the peer was quicker.
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
    fn a_peer_that_closed_first_has_everything_if_its_host_says_so() {
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
