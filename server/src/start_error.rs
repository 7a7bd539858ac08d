//! Why a server does not start.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use gridhaul_protocol::stack::StackSyntaxError;
use gridhaul_stack::StackError;
use gridhaul_storage::StorageError;

use crate::checksum_key::ChecksumKeyError;
use crate::passwords::PasswordsError;
use crate::security::SecurityError;

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An address cannot be listened at.
    #[error("cannot listen at {address}: {error}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The kernel's word.
        error: io::Error,
    },
    /// The directory cannot be served.
    #[error("cannot serve {}: {error}", root.display())]
    Root {
        /// The directory.
        root: PathBuf,
        /// The kernel's word.
        error: StorageError,
    },
    /// The password file is wrong.
    #[error(transparent)]
    Passwords(#[from] PasswordsError),
    /// The key of the checksums that files carry is wrong.
    #[error(transparent)]
    ChecksumKey(#[from] ChecksumKeyError),
    /// A certificate, a trust directory or a map is wrong.
    #[error(transparent)]
    Security(#[from] SecurityError),
    /// The login process has not read the configuration again.
    #[error(
        "logins are still decided by the users, passwords, maps and rules from before, because what decides them cannot \
         be read again: {0}"
    )]
    Login(String),
    /// The transfer log cannot be written.
    #[error("the transfer log {}: {error}", path.display())]
    TransferLog {
        /// The file.
        path: PathBuf,
        /// The kernel's word.
        error: io::Error,
    },
    /// A thread cannot be started.
    #[error("cannot start a thread: {0}")]
    Threads(io::Error),
    /// The driver stack is none.
    #[error("stack '{stack}': {error}")]
    StackText {
        /// What was configured.
        stack: String,
        /// What is wrong with it.
        error: StackSyntaxError,
    },
    /// What clients may set of a driver's options makes no sense.
    #[error("client-options '{rules}': {error}")]
    ClientOptions {
        /// What was configured.
        rules: String,
        /// What is wrong with it.
        error: Box<StackError>,
    },
    /// Each option must be allowed by all rules for its driver, so two of them would refuse each other's.
    #[error("client-options: {driver} has two rules; write them as one, such as {driver}:A;B<=1M")]
    TwoRules {
        /// The driver.
        driver: String,
    },
    /// The driver stack cannot be built.
    #[error("stack '{stack}': {error}")]
    Stack {
        /// What was configured.
        stack: String,
        /// What is wrong with it.
        error: StackError,
    },
}
