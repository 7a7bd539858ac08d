//! Why transfers fail.

use std::io;
use std::time::Duration;

use gridhaul_stack::{ChannelError, StackError};
use gridhaul_storage::{Rule, StorageError};
use gridhaul_transfer::{CancelReason, ListenFailure, PeerError, TransferError};

use crate::control::ControlError;

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
    /// The server does not connect to this machine, which listens for the data connections of MODE E.
    #[error(
        "source: the server cannot connect to this machine for data ({0}): say --mode stream, or open the firewall"
    )]
    Unreachable(String),
    /// The stack cannot be built here.
    #[error("this machine: {0}")]
    Stack(#[from] StackError),
    /// Data channels are to be authenticated, and the login was without a certificate.
    #[error(
        "data channels can be protected only with a certificate: use a gsiftp or ftps URL, or say --dcau none"
    )]
    NoCertificate,
    /// Data between two servers is to be protected, and one of them has no certificate of the user.
    #[error(
        "data between two servers can be protected only with gsiftp URLs: use these, or say --dcau none, or --relay"
    )]
    BetweenTls,
    /// The ends do not agree about the length of the file.
    #[error(
        "the file has {expected} bytes, and {copied} were copied: it has changed meanwhile, or the transfer was cut short"
    )]
    Length {
        /// The size of the source, in bytes.
        expected: u64,
        /// What was copied, now and before, in bytes.
        copied: u64,
    },
    /// The source has called a transfer complete that was to continue from a restart, and bytes are missing.
    #[error(
        "source: the server has called the file complete after a restart, and {arrived} of the missing {asked} bytes have arrived; if it does so again, remove the unfinished copy at the destination, and copy the file again"
    )]
    Unsent {
        /// The bytes that the destination lacked, and the source was asked for.
        asked: u64,
        /// Those of them that have arrived, as far as that is known.
        arrived: u64,
    },
    /// The server sends more than it has announced.
    #[error(
        "source: the server sends more than the {0} bytes that it has announced or that were asked for: the file has grown meanwhile, or the server is wrong; nothing was written behind them"
    )]
    Excess(u64),
    /// The ends have different checksums.
    #[error(
        "the checksum of the source is {source_sum}, that of the destination {destination_sum}{}",
        match .replaced {
            true => ": do not use the copy",
            false => "; the copy was removed",
        }
    )]
    Checksum {
        /// Of the source.
        source_sum: String,
        /// Of the destination.
        destination_sum: String,
        /// The wrong copy has the name of the file.
        replaced: bool,
    },
    /// The checksum of a file of this machine cannot be computed.
    #[error("this machine: {0}")]
    Checksumming(#[source] StorageError),
    /// There is no pipe between two transfers.
    #[error("this machine: no pipe: {0}")]
    Pipe(#[source] io::Error),
    /// A thread of this machine has ended.
    #[error("this machine: a worker ended without a result, which is a defect of this program")]
    Lost,
    /// No byte has moved for this long.
    #[error("no byte has moved for {} s", .0.as_secs())]
    Stalled(Duration),
    /// A pipeline of uploads ended, and the server has not answered all commands.
    #[error(
        "{0}; the server has not answered all commands that were sent ahead, and may still store these files: copy them again later"
    )]
    Unsettled(#[source] Box<Self>),
}

impl TransferFailure {
    /// A failure of this end, with what it means for a file that is got.
    pub(super) fn of_local(error: TransferError) -> Self {
        match error {
            TransferError::Peer(PeerError::Excess { limit }) => Self::Excess(limit),
            error => Self::Local(Box::new(error)),
        }
    }

    /// Whether data connections of this machine have failed, or were missing.
    pub(super) fn is_of_connections(&self) -> bool {
        let Self::Local(error) = self else {
            return false;
        };
        match &**error {
            // That is about the file, as [`TransferError::Storage`].
            TransferError::Channel(error) => !matches!(error, ChannelError::File(_)),
            TransferError::Connect(_)
            | TransferError::NoConnection(_)
            | TransferError::Peer(
                PeerError::EndedBeforeEod
                | PeerError::MissingEods { .. }
                | PeerError::MissingEof { .. }
                | PeerError::Incomplete { .. }
                | PeerError::Unfinished(_),
            ) => true,
            _ => false,
        }
    }

    /// Whether the destination has no room left.
    pub(crate) fn is_about_room(&self) -> bool {
        match self {
            Self::Destination(error) => error.is_about_room(),
            Self::Local(error) => error.is_about_room(),
            Self::Unsettled(failure) => failure.is_about_room(),
            _ => false,
        }
    }

    /// Whether another upload has the file at the destination.
    pub(crate) fn is_in_use(&self) -> bool {
        match self {
            Self::Destination(error) => error.is_in_use(),
            Self::Local(error) => match &**error {
                TransferError::Open { error, .. } => error.rule == Some(Rule::UploadRuns),
                TransferError::Cancelled(reason) => *reason == CancelReason::Replaced,
                _ => false,
            },
            Self::Unsettled(failure) => failure.is_in_use(),
            _ => false,
        }
    }

    /// Whether the same transfer may succeed later: a connection or a server failed, and nothing was refused for good.
    /// `has_moved` says whether bytes of the file had moved.
    pub fn is_transient(&self, has_moved: bool) -> bool {
        match self {
            Self::Source(error) | Self::Destination(error) => error.is_transient(has_moved),
            Self::Local(_) => self.is_of_connections(),
            Self::Length { .. }
            | Self::Unsent { .. }
            | Self::Excess(_)
            | Self::Checksum { .. }
            | Self::Stalled(_) => true,
            Self::Unreachable(_)
            | Self::Listen(_)
            | Self::Stack(_)
            | Self::NoCertificate
            | Self::BetweenTls
            | Self::Checksumming(_)
            | Self::Pipe(_)
            | Self::Unsettled(_)
            | Self::Lost => false,
        }
    }
}
