//! Why a local account cannot be used.

use gridhaul_storage::StorageError;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// Why a local account cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    /// The account database has no such account.
    #[error("there is no local account '{0}': make one, or map to another")]
    Unknown(String),
    /// It is root, or another account with uid 0.
    #[error("'{0}' is root, and root is not allowed: map to another account, or set allow-root")]
    Root(String),
    /// It is a system account.
    #[error(
        "the account '{account}' has the number {uid}, and least-uid allows {least} and above: map to another account, or \
         lower least-uid"
    )]
    System {
        /// The account.
        account: String,
        /// Its uid.
        uid: u32,
        /// The least uid that the configuration allows.
        least: u32,
    },
    /// Its shell is not an executable file.
    #[error(
        "the account '{account}' is disabled: its shell '{shell}' {why} (allow-disabled-login skips \
         this check)"
    )]
    Shell {
        /// The account.
        account: String,
        /// Its shell.
        shell: String,
        /// What is wrong with the shell.
        why: String,
    },
    /// It has expired.
    #[error("the account '{account}' has expired (allow-disabled-login skips this check)")]
    Expired {
        /// The account.
        account: String,
    },
    /// PAM's account stage refuses it.
    #[error("PAM's service '{service}' refuses the account '{account}': {reason}")]
    Pam {
        /// The account.
        account: String,
        /// The service.
        service: String,
        /// The text of `pam_strerror`.
        reason: String,
    },
    /// The account has no access to its root, or the root is not a directory.
    #[error("the account '{account}' cannot open its root {root}: {reason}")]
    Directory {
        /// The account.
        account: String,
        /// The directory.
        root: String,
        /// The text of the operating system's error.
        reason: String,
    },
    /// The operating system refuses a step of becoming the account.
    #[error("the server cannot act as '{account}': {what}: {reason}")]
    Machine {
        /// The account.
        account: String,
        /// The system call or step.
        what: String,
        /// The text of the operating system's error.
        reason: String,
    },
}

/// The operating system's text for an error number.
pub(crate) fn os_error(errno: Errno) -> String {
    StorageError::new("", errno).reason()
}
