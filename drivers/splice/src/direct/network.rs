//! The network side of direct I/O: the socket that pieces are sent to and received from.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use gridhaul_stack::{Channel as _, ChannelError, Operation, Received};
use gridhaul_tcp::TcpChannel;

use super::reading::Sink;
use super::zerocopy::ZeroCopy;

/// Sends pieces, without a copy where possible.
pub(crate) struct Network<'a> {
    pub(crate) channel: &'a mut TcpChannel,
    pub(crate) zerocopy: &'a mut ZeroCopy,
    /// The number of the next piece.
    pub(crate) sent: u64,
    /// The most pieces that the kernel may hold for zero-copy sends; the others are filled in the meantime.
    pub(crate) max_held: usize,
    pub(crate) moved: &'a AtomicU64,
    pub(crate) operation: &'a Operation<'a>,
}

impl Sink for Network<'_> {
    fn send(&mut self, bytes: &[u8], left: u64) -> Result<(), ChannelError> {
        let is_early = left > self.max_held as u64;
        let may_use = is_early && self.zerocopy.held() < self.max_held;
        let piece = (self.sent, bytes);
        let is_more = left > 0;
        self.zerocopy
            .send(self.channel, piece, may_use, is_more, self.operation)?;
        self.sent += 1;
        self.moved.fetch_add(bytes.len() as u64, Ordering::Release);
        Ok(())
    }

    fn is_free(&mut self, index: u64, must_be: bool) -> Result<bool, ChannelError> {
        self.zerocopy
            .is_free(self.channel, index, must_be, self.operation)
    }
}

impl Network<'_> {
    /// Waits until the kernel has released all pieces. If the wait fails, the connection is reset: otherwise the kernel could
    /// send, or retransmit, what another transfer writes to this memory.
    pub(crate) fn settle(&mut self) -> Result<(), ChannelError> {
        self.zerocopy
            .settle(self.channel, self.operation)
            .inspect_err(|_| self.channel.abort())
    }
}

/// Receives, or returns `None` at the time `until`, which is not an error.
pub(crate) fn receive_until(
    channel: &mut TcpChannel,
    memory: &mut [u8],
    until: Option<Instant>,
    operation: &Operation<'_>,
) -> Result<Option<Received>, ChannelError> {
    let deadline = match (operation.deadline, until) {
        (Some(deadline), Some(until)) => Some(deadline.min(until)),
        (deadline, until) => deadline.or(until),
    };
    let cancel = operation.cancel;
    match channel.receive(memory, &Operation { deadline, cancel }) {
        Err(ChannelError::DeadlineExceeded) if operation.check().is_ok() => Ok(None),
        received => received.map(Some),
    }
}
