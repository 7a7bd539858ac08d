//! The side that made a transfer fail, so that an administrator can tell errors of the server from those of clients.

use gridhaul_stack::ChannelError;
use gridhaul_storage::StorageError;
use gridhaul_transfer::{CancelReason, TransferError};
use rustix::io::Errno;

use crate::telemetry::FailureCause;

pub(super) fn of_transfer(error: &TransferError) -> FailureCause {
    match error {
        TransferError::Open { error, .. } | TransferError::Storage(error) => of_storage(error),
        TransferError::Channel(ChannelError::File(error)) => {
            of_errno(Errno::from_io_error(error).unwrap_or(Errno::IO))
        }
        TransferError::Local(_)
        | TransferError::Cancelled(CancelReason::Shutdown | CancelReason::Administrator) => {
            FailureCause::Server
        }
        TransferError::Sequence(_)
        | TransferError::Channel(ChannelError::FileTooShort { .. })
        | TransferError::Cancelled(
            CancelReason::Abort | CancelReason::ControlChannelLost | CancelReason::Replaced,
        ) => FailureCause::Client,
        TransferError::Connect(_)
        | TransferError::NoConnection(_)
        | TransferError::Channel(_)
        | TransferError::Peer(_)
        | TransferError::Cancelled(CancelReason::Stalled) => FailureCause::Peer,
    }
}

pub(super) fn of_storage(error: &StorageError) -> FailureCause {
    of_errno(error.errno)
}

/// A quota is the client's, a full file system the server's.
fn of_errno(errno: Errno) -> FailureCause {
    match errno {
        Errno::NOSPC => FailureCause::DiskFull,
        Errno::IO
        | Errno::STALE
        | Errno::TIMEDOUT
        | Errno::NODEV
        | Errno::NXIO
        | Errno::ROFS
        | Errno::NOTCONN
        | Errno::HOSTDOWN
        | Errno::REMOTEIO
        | Errno::UCLEAN => FailureCause::Storage,
        Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS | Errno::AGAIN => {
            FailureCause::Server
        }
        _ => FailureCause::Client,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_server_are_apart_from_those_of_clients() {
        let opening = |errno| TransferError::Open {
            path: "/f".into(),
            error: StorageError::new("open", errno),
        };
        let stored = |errno| TransferError::Storage(StorageError::new("write", errno));
        for (error, cause) in [
            (opening(Errno::NOENT), FailureCause::Client),
            (opening(Errno::ACCESS), FailureCause::Client),
            (opening(Errno::MFILE), FailureCause::Server),
            (stored(Errno::DQUOT), FailureCause::Client),
            (stored(Errno::NOSPC), FailureCause::DiskFull),
            (stored(Errno::IO), FailureCause::Storage),
            (
                TransferError::Channel(ChannelError::File(Errno::IO.into())),
                FailureCause::Storage,
            ),
            (
                TransferError::Channel(ChannelError::Aborted),
                FailureCause::Peer,
            ),
            (
                TransferError::Cancelled(CancelReason::Abort),
                FailureCause::Client,
            ),
            (
                TransferError::Local("no thread".to_owned()),
                FailureCause::Server,
            ),
        ] {
            assert_eq!(of_transfer(&error), cause, "{error}");
        }
    }
}
