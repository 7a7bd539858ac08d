//! Why the files of a local account are not available.

use std::time::Duration;

use rustix::io::Errno;

use crate::refusal::{Refusal, os_error};

/// Why the files of a local account are not available.
#[derive(Debug, thiserror::Error)]
pub enum AccountError {
    /// The account may not be used, or its root cannot be opened.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A server that was started without root serves its own account only.
    #[error(
        "the server was started without root by '{own}', and the map asks for '{wanted}': start it as \
         root, or map to '{own}'"
    )]
    NotOurs {
        /// The server's own account.
        own: String,
        /// The requested account.
        wanted: String,
    },
    /// The limit of brokers is reached, and none is idle.
    #[error(
        "{0} accounts are at work, and that is the limit: try again later, or raise max-brokers"
    )]
    Busy(usize),
    /// The account's share of brokers is reached, and none of them is idle.
    #[error(
        "{0} processes act for this account already, and others need theirs: try again when fewer directories of it are \
         in use, or raise max-brokers"
    )]
    AccountBusy(usize),
    /// A new login needs another broker, and too many replaced ones are still busy.
    #[error(
        "{0} processes still finish listings and other work of the account's earlier sessions, and a login needs another: \
         try again when that is done"
    )]
    Finishing(usize),
    /// The account database, or the root's file system, does not respond.
    #[error("looking up the account and opening its root took more than {} seconds", .0.as_secs())]
    Silent(Duration),
    /// The account's file system hangs: an earlier call exceeded its time limit.
    #[error("the account's files do not answer within {} seconds", .0.as_secs())]
    Unresponsive(Duration),
    /// No broker can be started: the monitor has ended, or a system call failed.
    #[error("no process can be started to act as the account: {}", os_error(*.0))]
    Monitor(Errno),
}
