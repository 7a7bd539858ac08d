//! The end of a transfer between this machine and a server.
//!
//! The last reply of the server may come before the bytes that were sent ahead of it. After an error they are still received, because they
//! need not be sent again. After a confirmation they have to come, but not all servers send anything after a restart.

use std::time::Duration;

use gridhaul_protocol::reply::Reply;
use gridhaul_stack::ChannelError;
use gridhaul_transfer::{CancelReason, Outcome, PeerError, TransferError};
use tokio::time::timeout;

use super::super::super::TransferFailure;
use super::super::super::local_end::LocalTransfer;
use super::super::super::stall::FAREWELL;
use super::super::Direction;
use super::Following;
use crate::control::ControlError;

/// So long after an error of the server without a byte, none is on the way any more.
const QUIET: Duration = Duration::from_secs(2);

impl Following<'_> {
    /// Ends what need not, or must not, go on here after the last reply of the server.
    pub(super) fn look_for_end(&self, local: &LocalTransfer) -> Result<(), TransferFailure> {
        let Some(reply) = self.reply.as_ref().filter(|_| !self.has_ended) else {
            return Ok(());
        };
        let since = self.replied.elapsed();
        if reply.is_completion() {
            let has_time = since < FAREWELL.min(self.copy.stall);
            let unsent = self.unsent(local.moved()).filter(|_| !has_time);
            return match unsent.filter(|_| !local.has_channels()) {
                Some(failure) => Err(failure),
                None => Ok(()),
            };
        }
        // What the server has sent before its error is on the way, and need not be sent again.
        let may_bring_more = self.copy.direction == Direction::Get
            && self.copy.stream.is_none()
            && self.told.has_begun()
            && self.sums.is_none();
        let is_over = since >= FAREWELL || self.watch.since_progress() >= QUIET;
        if !may_bring_more || is_over {
            self.cancel(local, CancelReason::Abort);
        }
        Ok(())
    }

    /// The failure of a server that has called a restarted file complete without sending all that this machine lacked. `None` if that is
    /// not so, or not known.
    pub(super) fn unsent(&self, arrived: u64) -> Option<TransferFailure> {
        let present = &self.copy.present;
        if self.copy.direction != Direction::Get || present.is_empty() {
            return None;
        }
        let asked = self.copy.size?.saturating_sub(present.covered());
        (arrived < asked).then_some(TransferFailure::Unsent { asked, arrived })
    }

    /// Whether the file is complete by the words of both ends.
    pub(super) fn check(&self, reply: Reply, outcome: Outcome) -> Result<Outcome, TransferFailure> {
        match &outcome.result {
            // What the server says follows from that.
            Err(
                TransferError::Peer(PeerError::Excess { .. })
                | TransferError::Channel(ChannelError::File(_)),
            ) => {}
            // Cancelled because the server refused, or failed when the server closed the data channels: its words say why.
            Err(
                TransferError::Cancelled(_)
                | TransferError::Channel(_)
                | TransferError::Connect(_)
                | TransferError::NoConnection(_)
                | TransferError::Peer(_),
            ) if !reply.is_completion() => return Err(self.refused(reply)),
            Err(_) => {}
            Ok(()) if !reply.is_completion() => return Err(self.refused(reply)),
            Ok(()) => {}
        }
        if let Err(TransferError::Peer(PeerError::Incomplete {
            promised: expected,
            arrived: copied,
            ..
        })) = outcome.result
        {
            return Err(TransferFailure::Length { expected, copied });
        }
        if let Err(error) = outcome.result {
            let failure = TransferFailure::of_local(error);
            let is_of_peer = reply.is_completion() && failure.is_of_connections();
            let unsent = self.unsent(outcome.bytes).filter(|_| is_of_peer);
            return Err(unsent.unwrap_or(failure));
        }
        self.check_length(outcome.bytes)?;
        Ok(outcome)
    }

    pub(super) fn check_length(&self, moved: u64) -> Result<(), TransferFailure> {
        let copied = moved.saturating_add(self.copy.present.covered());
        match self.copy.size {
            Some(expected) if expected != copied => {
                Err(TransferFailure::Length { expected, copied })
            }
            _ => Ok(()),
        }
    }

    pub(super) fn refused(&self, reply: Reply) -> TransferFailure {
        let verb = self.copy.command().verb();
        self.copy.of_server(ControlError::Refused { verb, reply })
    }

    fn cancel(&self, local: &LocalTransfer, reason: CancelReason) {
        local.running.cancel(reason);
        if let Some(stream) = &self.copy.stream {
            stream.end();
        }
    }

    /// Ends the transfer here, and notes what has arrived.
    pub(in super::super) async fn give_up(&mut self, local: &mut LocalTransfer) {
        self.cancel(local, CancelReason::ControlChannelLost);
        if !self.has_ended {
            // What a file system does not end in time, it ends later; a restart of the file waits for that.
            let _ = timeout(FAREWELL, &mut local.finished).await;
        }
        self.note_received(local);
    }
}
