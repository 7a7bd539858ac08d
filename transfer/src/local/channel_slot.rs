//! The data channels of a session between and during transfers.

use std::mem;
use std::sync::Mutex;

use gridhaul_protocol::command::TransferMode;

use crate::channels::DataChannels;
use crate::error::SequenceError;
use crate::running::Running;
use crate::sync::lock;

/// Holds the data channels of a session, and lends them to one transfer at a time.
#[derive(Debug, Default)]
pub(super) struct ChannelSlot(Mutex<Slot>);

#[derive(Debug, Default)]
enum Slot {
    /// The client has not requested a data port.
    #[default]
    Empty,
    /// Ready for a transfer.
    Ready(DataChannels),
    /// In use by a transfer, which returns them unless the client requests others before.
    Lent,
    /// A transfer failed before it used them. No other transfer may use them, but the port stays open: the other
    /// end of a third-party copy may be about to connect, and its "connection refused" would reach the
    /// client before the actual error.
    Spent { _port: DataChannels },
}

impl ChannelSlot {
    /// Closes the present channels and listeners.
    pub(super) fn clear(&self) {
        *lock(&self.0) = Slot::Empty;
    }

    /// Replaces the present channels.
    pub(super) fn set(&self, channels: DataChannels) {
        *lock(&self.0) = Slot::Ready(channels);
    }

    /// Takes the channels for a transfer.
    pub(super) fn lend(&self) -> Result<DataChannels, SequenceError> {
        let mut slot = lock(&self.0);
        match mem::take(&mut *slot) {
            Slot::Ready(channels) => {
                *slot = Slot::Lent;
                Ok(channels)
            }
            Slot::Empty => Err(SequenceError::NoDataPort),
            Slot::Spent { _port } => {
                *slot = Slot::Spent { _port };
                Err(SequenceError::NoDataPort)
            }
            Slot::Lent => {
                *slot = Slot::Lent;
                Err(SequenceError::Busy)
            }
        }
    }

    /// Checks a condition of the channels; `false` if none are ready.
    pub(super) fn are_ready(&self, condition: impl FnOnce(&DataChannels) -> bool) -> bool {
        match &*lock(&self.0) {
            Slot::Ready(channels) => condition(channels),
            _ => false,
        }
    }

    /// Returns the channels after a transfer. Those of a successful MODE E transfer stay open for the next one.
    /// After a failure they may still carry data, so they are closed.
    pub(super) fn give_back(&self, mode: TransferMode, channels: DataChannels, running: &Running) {
        let mut slot = lock(&self.0);
        if matches!(*slot, Slot::Lent) {
            *slot = match (running.has_failed(), mode) {
                (false, TransferMode::Extended) => Slot::Ready(channels),
                (true, _) if !running.used_channels() => Slot::Spent { _port: channels },
                _ => Slot::Empty,
            };
        }
    }
}
