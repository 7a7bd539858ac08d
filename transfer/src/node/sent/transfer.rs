//! Errors of transfers as plain values.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use gridhaul_stack::{ChannelError, ConnectError};

use super::{SentStorageError, SentSystemError, bounded};
use crate::error::{CancelReason, PeerError, SequenceError, TransferError};

/// A [`TransferError`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SentTransferError {
    /// [`TransferError::Sequence`].
    Sequence(SequenceError),
    /// [`TransferError::Open`].
    Open {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        error: SentStorageError,
    },
    /// [`TransferError::Storage`].
    Storage(SentStorageError),
    /// [`TransferError::Lost`].
    Lost(SentStorageError),
    /// [`ConnectError::Peer`].
    ConnectPeer {
        /// The peer's address.
        peer: SocketAddr,
        /// The operating system's error.
        error: SentSystemError,
    },
    /// [`ConnectError::Local`].
    ConnectLocal {
        /// The peer's address.
        peer: SocketAddr,
        /// The operating system's error.
        error: SentSystemError,
    },
    /// [`ConnectError::Channel`].
    ConnectChannel(SentChannelError),
    /// [`TransferError::NoConnection`].
    NoConnection(Duration),
    /// [`TransferError::Channel`].
    Channel(SentChannelError),
    /// [`TransferError::Peer`].
    Peer(SentPeerError),
    /// [`TransferError::Cancelled`].
    Cancelled(CancelReason),
    /// [`TransferError::Local`].
    Local(String),
}

/// A [`ChannelError`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SentChannelError {
    /// [`ChannelError::File`].
    File(SentSystemError),
    /// [`ChannelError::FileTooShort`].
    FileTooShort {
        /// Where the file ended, in bytes.
        end: u64,
    },
    /// An error of the connection or of the peer, as its text.
    Connection(String),
}

/// A [`PeerError`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SentPeerError {
    /// The peer sent what the protocol does not allow, as the text of the error.
    Violation(String),
    /// The peer ended its data too early, as the text of the error.
    Unfinished(String),
    /// [`PeerError::WrongChecksum`].
    WrongChecksum {
        /// The checksum of the file.
        computed: String,
        /// The announced one.
        expected: String,
    },
}

impl From<&TransferError> for SentTransferError {
    fn from(error: &TransferError) -> Self {
        match error {
            TransferError::Sequence(error) => Self::Sequence(*error),
            TransferError::Open { path, error } => Self::Open {
                path: path.clone(),
                error: error.into(),
            },
            TransferError::Storage(error) => Self::Storage(error.into()),
            TransferError::Lost(error) => Self::Lost(error.into()),
            TransferError::Connect(error) => error.into(),
            TransferError::NoConnection(waited) => Self::NoConnection(*waited),
            TransferError::Channel(error) => Self::Channel(error.into()),
            TransferError::Peer(error) => Self::Peer(error.into()),
            TransferError::Cancelled(reason) => Self::Cancelled(*reason),
            TransferError::Local(text) => Self::Local(text.clone()),
        }
    }
}

impl From<SentTransferError> for TransferError {
    fn from(sent: SentTransferError) -> Self {
        match sent {
            SentTransferError::Sequence(error) => Self::Sequence(error),
            SentTransferError::Open { path, error } => Self::Open {
                path,
                error: error.into(),
            },
            SentTransferError::Storage(error) => Self::Storage(error.into()),
            SentTransferError::Lost(error) => Self::Lost(error.into()),
            SentTransferError::ConnectPeer { peer, error } => Self::Connect(ConnectError::Peer {
                peer,
                error: error.into(),
            }),
            SentTransferError::ConnectLocal { peer, error } => Self::Connect(ConnectError::Local {
                peer,
                error: error.into(),
            }),
            SentTransferError::ConnectChannel(error) => {
                Self::Connect(ConnectError::Channel(error.into()))
            }
            SentTransferError::NoConnection(waited) => Self::NoConnection(waited),
            SentTransferError::Channel(error) => Self::Channel(error.into()),
            SentTransferError::Peer(error) => Self::Peer(error.into()),
            SentTransferError::Cancelled(reason) => Self::Cancelled(reason),
            SentTransferError::Local(text) => Self::Local(bounded(text)),
        }
    }
}

impl From<&ConnectError> for SentTransferError {
    fn from(error: &ConnectError) -> Self {
        match error {
            ConnectError::Peer { peer, error } => Self::ConnectPeer {
                peer: *peer,
                error: error.into(),
            },
            ConnectError::Local { peer, error } => Self::ConnectLocal {
                peer: *peer,
                error: error.into(),
            },
            ConnectError::Channel(error) => Self::ConnectChannel(error.into()),
        }
    }
}

impl From<&ChannelError> for SentChannelError {
    fn from(error: &ChannelError) -> Self {
        match error {
            ChannelError::File(error) => Self::File(error.into()),
            ChannelError::FileTooShort { end } => Self::FileTooShort { end: *end },
            ChannelError::Aborted
            | ChannelError::PeerClosed
            | ChannelError::Cancelled
            | ChannelError::DeadlineExceeded
            | ChannelError::Network(_)
            | ChannelError::Protocol { .. }
            | ChannelError::Refused { .. }
            | ChannelError::Remote(_) => Self::Connection(error.to_string()),
        }
    }
}

impl From<SentChannelError> for ChannelError {
    fn from(sent: SentChannelError) -> Self {
        match sent {
            SentChannelError::File(error) => Self::File(error.into()),
            SentChannelError::FileTooShort { end } => Self::FileTooShort { end },
            SentChannelError::Connection(text) => Self::Remote(bounded(text)),
        }
    }
}

impl From<&PeerError> for SentPeerError {
    fn from(error: &PeerError) -> Self {
        match error {
            PeerError::Header(_)
            | PeerError::EndOfData(_)
            | PeerError::Overlap(_)
            | PeerError::TooManyHoles { .. }
            | PeerError::Excess { .. }
            | PeerError::Violation(_) => Self::Violation(error.to_string()),
            PeerError::EndedBeforeEod
            | PeerError::MissingEods { .. }
            | PeerError::MissingEof { .. }
            | PeerError::Incomplete { .. }
            | PeerError::Unfinished(_) => Self::Unfinished(error.to_string()),
            PeerError::WrongChecksum { computed, expected } => Self::WrongChecksum {
                computed: computed.clone(),
                expected: expected.clone(),
            },
        }
    }
}

impl From<SentPeerError> for PeerError {
    fn from(sent: SentPeerError) -> Self {
        match sent {
            SentPeerError::Violation(text) => Self::Violation(bounded(text)),
            SentPeerError::Unfinished(text) => Self::Unfinished(bounded(text)),
            SentPeerError::WrongChecksum { computed, expected } => Self::WrongChecksum {
                computed: bounded(computed),
                expected: bounded(expected),
            },
        }
    }
}
