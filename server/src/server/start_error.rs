//! Errors that keep a server from starting.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use gridhaul_storage::StorageError;

use super::activation_error::ActivationError;
use crate::admin::AdminError;
use crate::checksum_key::ChecksumKeyError;
use crate::shared::SettingsError;

/// An error that keeps a server from starting.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The server cannot listen at an address.
    #[error("cannot listen at {address}: {error}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The underlying OS error.
        error: io::Error,
    },
    /// A socket that the server was started with cannot be used.
    #[error(transparent)]
    Activation(#[from] ActivationError),
    /// The directory cannot be served.
    #[error("cannot serve {}: {error}", root.display())]
    Root {
        /// The directory.
        root: PathBuf,
        /// The underlying error.
        error: StorageError,
    },
    /// The key of stored checksums is wrong.
    #[error(transparent)]
    ChecksumKey(#[from] ChecksumKeyError),
    /// The transfer log cannot be written.
    #[error("the transfer log {}: {error}", path.display())]
    TransferLog {
        /// The file.
        path: PathBuf,
        /// The underlying OS error.
        error: io::Error,
    },
    /// The administration interface cannot be used.
    #[error(transparent)]
    Admin(#[from] AdminError),
    /// A thread cannot be started.
    #[error("cannot start a thread: {0}")]
    Threads(io::Error),
    /// The configuration, or a file that it names, cannot be used.
    #[error(transparent)]
    Settings(#[from] SettingsError),
}
