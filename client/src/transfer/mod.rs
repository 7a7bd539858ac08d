//! Transfers of one file: between this machine and a server, and between two servers.

mod local_end;
mod said;
mod third_party;
mod two_party;

use std::time::Duration;

use gridhaul_protocol::ranges::RangeSet;
use gridhaul_stack::StackError;
use gridhaul_transfer::{ListenFailure, TransferError};

pub use third_party::{ThirdPartyCopy, third_party};
pub use two_party::{Direction, FileCopy, two_party};

use crate::control::ControlError;

/// What a complete transfer has moved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transferred {
    /// Bytes of the file that were moved.
    pub bytes: u64,
    /// Data channels.
    pub channels: usize,
    /// From the command to the last reply.
    pub took: Duration,
    /// How the driver of this machine moved the bytes, where it had a choice.
    pub movement: Option<String>,
}

/// Why a transfer failed.
#[derive(Debug, thiserror::Error)]
pub enum TransferFailure {
    /// The source server.
    #[error("source: {0}")]
    Source(#[source] ControlError),
    /// The destination server.
    #[error("destination: {0}")]
    Destination(#[source] ControlError),
    /// This machine.
    #[error("this machine: {0}")]
    Local(#[source] Box<TransferError>),
    /// This machine does not listen for data connections.
    #[error("this machine: {0}")]
    Listen(#[source] ListenFailure),
    /// The stack cannot be built here.
    #[error("this machine: {0}")]
    Stack(#[from] StackError),
    /// Data channels are to be authenticated, and the login was without a certificate.
    #[error(
        "data channels can be protected only after a login with a certificate: use a gsiftp URL, or say --dcau none"
    )]
    NoCertificate,
    /// The ends do not agree about the file.
    #[error("{0}")]
    Differs(String),
    /// No byte has moved for this long.
    #[error("no byte has moved for {} s", .0.as_secs())]
    Stalled(Duration),
}

/// Receives what happens during a transfer.
pub trait Observer: Send {
    /// The bytes that have moved in this transfer, in all.
    fn moved(&mut self, bytes: u64);

    /// Ranges that the destination has stored, for a restart.
    fn stored(&mut self, _ranges: &RangeSet) {}
}
