//! Why a command or a transfer failed, and the side at fault: for audit records, metrics and alerts.

use gridhaul_stack::{ChannelError, ConnectError};
use gridhaul_storage::StorageError;
use gridhaul_transfer::{CancelReason, TransferError};
use rustix::io::Errno;

use super::end::End;
use super::replies::is_internal;
use crate::telemetry::FailureCause;

/// Why a command failed, in more detail than its reply.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    pub(super) text: String,
    pub(super) cause: FailureCause,
}

impl Failure {
    /// Whether the server is to blame.
    pub(super) fn is_fault(&self) -> bool {
        self.cause.is_fault()
    }
}

impl From<&StorageError> for Failure {
    fn from(error: &StorageError) -> Self {
        Self {
            text: error.to_string(),
            cause: of_storage(error),
        }
    }
}

impl From<&TransferError> for Failure {
    fn from(error: &TransferError) -> Self {
        Self {
            text: error.to_string(),
            cause: of_transfer(error),
        }
    }
}

impl From<&End> for Failure {
    fn from(end: &End) -> Self {
        Self {
            text: end.to_string(),
            cause: match end {
                End::Shutdown | End::Administrator | End::Refused => FailureCause::Administrator,
                _ => FailureCause::Client,
            },
        }
    }
}

fn of_transfer(error: &TransferError) -> FailureCause {
    match error {
        TransferError::Open { error, .. }
        | TransferError::Storage(error)
        | TransferError::Lost(error) => of_storage(error),
        TransferError::Channel(ChannelError::File(error)) => {
            of_storage(&StorageError::from_io("", error))
        }
        TransferError::Local(_) | TransferError::Connect(ConnectError::Local { .. }) => {
            FailureCause::Server
        }
        TransferError::Cancelled(CancelReason::Shutdown | CancelReason::Administrator) => {
            FailureCause::Administrator
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

/// A quota is the client's, a full file system the server's. A file system that is mounted read-only is the administrator's
/// will.
fn of_storage(error: &StorageError) -> FailureCause {
    match error.errno {
        // Rules of this server, and work that was given up.
        _ if error.rule.is_some() => FailureCause::Client,
        Errno::INVAL | Errno::CANCELED | Errno::INTR => FailureCause::Client,
        Errno::NOSPC => FailureCause::DiskFull,
        Errno::IO
        | Errno::STALE
        | Errno::TIMEDOUT
        | Errno::NODEV
        | Errno::NXIO
        | Errno::NOTCONN
        | Errno::HOSTDOWN
        | Errno::REMOTEIO
        | Errno::UCLEAN => FailureCause::Storage,
        // Exhausted resources, a process that has ended, and errors that no client causes.
        errno if is_internal(errno) => FailureCause::Server,
        _ => FailureCause::Client,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(errno: Errno) -> TransferError {
        TransferError::Storage(StorageError::new("write", errno))
    }

    #[test]
    fn errors_of_the_server_are_apart_from_those_of_clients() {
        let opening = |errno| TransferError::Open {
            path: "/f".into(),
            error: StorageError::new("open", errno),
        };
        for (error, cause) in [
            (opening(Errno::NOENT), FailureCause::Client),
            (opening(Errno::ACCESS), FailureCause::Client),
            (opening(Errno::MFILE), FailureCause::Server),
            (stored(Errno::BUSY), FailureCause::Server),
            (stored(Errno::DQUOT), FailureCause::Client),
            (stored(Errno::ROFS), FailureCause::Client),
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
                TransferError::Cancelled(CancelReason::Administrator),
                FailureCause::Administrator,
            ),
            (
                TransferError::Local("no thread".to_owned()),
                FailureCause::Server,
            ),
        ] {
            assert_eq!(Failure::from(&error).cause, cause, "{error}");
        }
    }

    #[test]
    fn a_broken_or_full_disk_is_the_servers_fault_and_a_wrong_name_is_not() {
        let is_fault = |errno| Failure::from(&StorageError::new("write", errno)).is_fault();
        for errno in [
            Errno::IO,
            Errno::NOSPC,
            Errno::NOMEM,
            Errno::STALE,
            Errno::MFILE,
            Errno::TIMEDOUT,
        ] {
            assert!(is_fault(errno), "{errno:?}");
        }
        for errno in [
            Errno::NOENT,
            Errno::ACCESS,
            Errno::EXIST,
            Errno::NOTEMPTY,
            Errno::DQUOT,
            Errno::ROFS,
            Errno::INVAL,
        ] {
            assert!(!is_fault(errno), "{errno:?}");
        }
        assert!(!Failure::from(&End::Administrator).is_fault());
    }
}
