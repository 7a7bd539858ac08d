//! Why a call or a transfer failed.

use std::time::Duration;

use gridhaul_storage::{Rule, StorageError};
use gridhaul_transfer::{
    AttachError, CancelReason, ListenFailure, SentAttachError, SentChannelError, SentListenFailure,
    SentPeerError, SentStorageError, SentSystemError, SentTransferError, SequenceError, ShareError,
    TransferError,
};
use rustix::io::Errno;

use super::values::{self, WireError};
use crate::generated::{self as message, channel_failure, failure::Error};

/// An error that a node sends.
pub(crate) trait Sent: Sized {
    fn to_error(&self) -> Error;
    /// `None` if the message is of another error.
    fn of_error(error: Error) -> Result<Option<Self>, WireError>;
}

impl message::Failure {
    pub(crate) fn of<E: Sent + ToString>(error: &E) -> Self {
        Self {
            unknown: false,
            text: error.to_string(),
            error: Some(error.to_error()),
        }
    }

    /// The error as it was on the node.
    pub(crate) fn restore<E: Sent>(self) -> Result<E, WireError> {
        let Some(error) = self.error else {
            return Err(WireError(self.text));
        };
        let restored = E::of_error(error)?;
        restored.ok_or_else(|| WireError(format!("an error of another kind: {}", self.text)))
    }

    /// For a call that this version does not know.
    pub(crate) fn unknown() -> Self {
        let text = "an error: it does not know this call; install the same version of gridhaul on both machines";
        Self {
            unknown: true,
            text: text.to_owned(),
            error: None,
        }
    }

    /// For a message that makes no value.
    pub(crate) fn refused(error: &WireError) -> Self {
        Self {
            unknown: false,
            text: error.0.clone(),
            error: None,
        }
    }
}

impl Sent for StorageError {
    fn to_error(&self) -> Error {
        Error::Storage(storage(self.into()))
    }

    fn of_error(error: Error) -> Result<Option<Self>, WireError> {
        match error {
            Error::Storage(sent) => Ok(Some(to_storage(sent)?.into())),
            _ => Ok(None),
        }
    }
}

impl Sent for AttachError {
    fn to_error(&self) -> Error {
        match self.into() {
            SentAttachError::Account(text) => Error::Account(text),
            SentAttachError::Root(error) => Error::Storage(storage(error)),
        }
    }

    fn of_error(error: Error) -> Result<Option<Self>, WireError> {
        let sent = match error {
            Error::Account(text) => SentAttachError::Account(text),
            Error::Storage(error) => SentAttachError::Root(to_storage(error)?),
            _ => return Ok(None),
        };
        Ok(Some(sent.into()))
    }
}

impl Sent for ListenFailure {
    fn to_error(&self) -> Error {
        match self.into() {
            SentListenFailure::Stack(text) => Error::Stack(text),
            SentListenFailure::PortRangeExhausted { first, last } => {
                Error::PortRange(message::PortRange {
                    first: first.into(),
                    last: last.into(),
                })
            }
            SentListenFailure::Network { address, error } => Error::Listen(connect(address, error)),
            SentListenFailure::Other(text) => Error::Local(text),
        }
    }

    fn of_error(error: Error) -> Result<Option<Self>, WireError> {
        let port = |port: u32| u16::try_from(port).map_err(|_| WireError(format!("port {port}")));
        let sent = match error {
            Error::Stack(text) => SentListenFailure::Stack(text),
            Error::PortRange(range) => SentListenFailure::PortRangeExhausted {
                first: port(range.first)?,
                last: port(range.last)?,
            },
            Error::Listen(failure) => {
                let (address, error) = to_connect(failure)?;
                SentListenFailure::Network { address, error }
            }
            Error::Local(text) => SentListenFailure::Other(text),
            _ => return Ok(None),
        };
        Ok(Some(sent.into()))
    }
}

impl Sent for TransferError {
    fn to_error(&self) -> Error {
        match self.into() {
            SentTransferError::Sequence(SequenceError::RestartPastEnd { offset, size }) => {
                Error::RestartPastEnd(message::RestartPastEnd { offset, size })
            }
            SentTransferError::Sequence(SequenceError::Share(ShareError::Stripes {
                stripes,
                total,
                peers,
            })) => Error::WrongShare(message::WrongShare {
                stripes: number(stripes),
                total: number(total),
                peers: number(peers),
            }),
            SentTransferError::Sequence(error) => Error::Sequence(position(&SEQUENCE, &error)),
            SentTransferError::Open { path, error } => Error::Open(message::OpenFailure {
                path: values::path(&path),
                error: Some(storage(error)),
            }),
            SentTransferError::Storage(error) => Error::Storage(storage(error)),
            SentTransferError::Lost(error) => Error::Lost(storage(error)),
            SentTransferError::ConnectPeer { peer, error } => {
                Error::ConnectPeer(connect(peer, error))
            }
            SentTransferError::ConnectLocal { peer, error } => {
                Error::ConnectLocal(connect(peer, error))
            }
            SentTransferError::ConnectChannel(error) => Error::ConnectChannel(channel(error)),
            SentTransferError::NoConnection(waited) => {
                Error::NoConnection(u64::try_from(waited.as_millis()).unwrap_or(u64::MAX))
            }
            SentTransferError::Channel(error) => Error::Channel(channel(error)),
            SentTransferError::Peer(SentPeerError::Violation(text)) => Error::PeerViolation(text),
            SentTransferError::Peer(SentPeerError::Unfinished(text)) => Error::PeerUnfinished(text),
            SentTransferError::Peer(SentPeerError::WrongChecksum { computed, expected }) => {
                Error::WrongChecksum(message::WrongChecksum { computed, expected })
            }
            SentTransferError::Cancelled(reason) => Error::Cancelled(cancel_reason(reason)),
            SentTransferError::Local(text) => Error::Local(text),
        }
    }

    fn of_error(error: Error) -> Result<Option<Self>, WireError> {
        let sent = match error {
            Error::RestartPastEnd(past) => {
                SentTransferError::Sequence(SequenceError::RestartPastEnd {
                    offset: past.offset,
                    size: past.size,
                })
            }
            Error::Sequence(sent) => SentTransferError::Sequence(
                *at(&SEQUENCE, sent).ok_or_else(|| WireError(format!("the error {sent}")))?,
            ),
            Error::Open(open) => SentTransferError::Open {
                path: values::to_path(&open.path)?,
                error: to_storage(open.error.unwrap_or_default())?,
            },
            Error::Storage(error) => SentTransferError::Storage(to_storage(error)?),
            Error::Lost(error) => SentTransferError::Lost(to_storage(error)?),
            Error::WrongShare(share) => {
                SentTransferError::Sequence(SequenceError::Share(ShareError::Stripes {
                    stripes: to_number(share.stripes),
                    total: to_number(share.total),
                    peers: to_number(share.peers),
                }))
            }
            Error::ConnectPeer(failure) => {
                let (peer, error) = to_connect(failure)?;
                SentTransferError::ConnectPeer { peer, error }
            }
            Error::ConnectLocal(failure) => {
                let (peer, error) = to_connect(failure)?;
                SentTransferError::ConnectLocal { peer, error }
            }
            Error::ConnectChannel(error) => SentTransferError::ConnectChannel(to_channel(error)?),
            Error::NoConnection(waited) => {
                SentTransferError::NoConnection(Duration::from_millis(waited))
            }
            Error::Channel(error) => SentTransferError::Channel(to_channel(error)?),
            Error::PeerViolation(text) => SentTransferError::Peer(SentPeerError::Violation(text)),
            Error::PeerUnfinished(text) => SentTransferError::Peer(SentPeerError::Unfinished(text)),
            Error::WrongChecksum(message::WrongChecksum { computed, expected }) => {
                SentTransferError::Peer(SentPeerError::WrongChecksum { computed, expected })
            }
            Error::Cancelled(reason) => SentTransferError::Cancelled(to_cancel_reason(reason)),
            Error::Local(text) => SentTransferError::Local(text),
            Error::Account(_) | Error::Stack(_) | Error::PortRange(_) | Error::Listen(_) => {
                return Ok(None);
            }
        };
        Ok(Some(sent.into()))
    }
}

/// Errors of sequence without values. Their positions are sent.
const SEQUENCE: [SequenceError; 8] = [
    SequenceError::NoDataPort,
    SequenceError::SenderMustConnect,
    SequenceError::ReceiverMustListen,
    SequenceError::StreamRestart,
    SequenceError::Busy,
    SequenceError::Share(ShareError::NotBlocks),
    SequenceError::Share(ShareError::Ordered),
    SequenceError::Share(ShareError::Append),
];

/// Reasons of a cancellation. Their positions are sent.
const REASONS: [CancelReason; 6] = [
    CancelReason::Abort,
    CancelReason::ControlChannelLost,
    CancelReason::Stalled,
    CancelReason::Shutdown,
    CancelReason::Administrator,
    CancelReason::Replaced,
];

pub(crate) fn cancel_reason(reason: CancelReason) -> u32 {
    position(&REASONS, &reason)
}

/// A reason of a later version counts as an abort.
pub(crate) fn to_cancel_reason(sent: u32) -> CancelReason {
    at(&REASONS, sent).copied().unwrap_or(CancelReason::Abort)
}

fn position<T: PartialEq>(all: &[T], one: &T) -> u32 {
    let position = all.iter().position(|other| other == one);
    position
        .and_then(|position| u32::try_from(position).ok())
        .unwrap_or(u32::MAX)
}

fn at<T>(all: &[T], position: u32) -> Option<&T> {
    all.get(usize::try_from(position).ok()?)
}

fn number(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn to_number(sent: u32) -> usize {
    usize::try_from(sent).unwrap_or(usize::MAX)
}

fn storage(error: SentStorageError) -> message::StorageFailure {
    message::StorageFailure {
        call: error.call,
        errno: error.errno,
        rule: error.rule.map(|rule| position(&Rule::ALL, &rule)),
    }
}

fn to_storage(sent: message::StorageFailure) -> Result<SentStorageError, WireError> {
    let rule = sent.rule.map(|rule| {
        let rule = at(&Rule::ALL, rule);
        rule.copied()
            .ok_or_else(|| WireError::new("a rule that is not known here"))
    });
    // This number has a meaning for the cluster, which only this end may give it.
    let errno = if sent.errno == Errno::HOSTDOWN.raw_os_error() {
        Errno::IO.raw_os_error()
    } else {
        sent.errno
    };
    Ok(SentStorageError {
        call: sent.call,
        errno,
        rule: rule.transpose()?,
    })
}

fn system(error: SentSystemError) -> message::SystemFailure {
    message::SystemFailure {
        errno: error.errno,
        text: error.text,
    }
}

fn to_system(sent: message::SystemFailure) -> SentSystemError {
    SentSystemError {
        errno: sent.errno,
        text: sent.text,
    }
}

fn connect(peer: std::net::SocketAddr, error: SentSystemError) -> message::ConnectFailure {
    message::ConnectFailure {
        address: Some(values::address(peer)),
        error: Some(system(error)),
    }
}

fn to_connect(
    sent: message::ConnectFailure,
) -> Result<(std::net::SocketAddr, SentSystemError), WireError> {
    let address = sent
        .address
        .as_ref()
        .ok_or_else(|| WireError::missing("address"))?;
    let error = to_system(sent.error.unwrap_or_default());
    Ok((values::to_address(address)?, error))
}

fn channel(error: SentChannelError) -> message::ChannelFailure {
    message::ChannelFailure {
        error: Some(match error {
            SentChannelError::File(error) => channel_failure::Error::File(system(error)),
            SentChannelError::FileTooShort { end } => channel_failure::Error::FileTooShort(end),
            SentChannelError::Connection(text) => channel_failure::Error::Connection(text),
        }),
    }
}

fn to_channel(sent: message::ChannelFailure) -> Result<SentChannelError, WireError> {
    Ok(
        match sent.error.ok_or_else(|| WireError::missing("error"))? {
            channel_failure::Error::File(error) => SentChannelError::File(to_system(error)),
            channel_failure::Error::FileTooShort(end) => SentChannelError::FileTooShort { end },
            channel_failure::Error::Connection(text) => SentChannelError::Connection(text),
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn come_back(error: TransferError) {
        let sent = SentTransferError::from(&error);
        let restored: TransferError = message::Failure::of(&error).restore().expect("an error");
        assert_eq!(SentTransferError::from(&restored), sent);
        assert_eq!(restored.to_string(), error.to_string());
    }

    #[test]
    fn errors_come_back_with_their_texts() {
        let full = || StorageError::new("write", Errno::NOSPC);
        come_back(TransferError::Storage(full()));
        come_back(TransferError::Lost(full()));
        let share = ShareError::Stripes {
            stripes: 2,
            total: 4,
            peers: 3,
        };
        come_back(SequenceError::Share(share).into());
        come_back(TransferError::Open {
            path: "/a".into(),
            error: full(),
        });
        come_back(TransferError::NoConnection(Duration::from_secs(30)));
        come_back(TransferError::Local("no thread".to_owned()));
        for reason in REASONS {
            come_back(TransferError::Cancelled(reason));
        }
        for error in SEQUENCE {
            come_back(error.into());
        }
        come_back(SequenceError::RestartPastEnd { offset: 5, size: 4 }.into());
        for rule in Rule::ALL {
            come_back(TransferError::Storage(StorageError::refused("open", rule)));
        }
    }

    #[test]
    fn an_error_of_another_kind_is_refused() {
        let failure = message::Failure::of(&TransferError::Local("no thread".to_owned()));
        let error = failure.restore::<StorageError>().expect_err("another kind");
        assert!(error.to_string().contains("no thread"), "{error}");
        message::Failure::unknown()
            .restore::<StorageError>()
            .expect_err("none");
    }
}
