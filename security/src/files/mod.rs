//! The files that security is made of: credentials, trust directories, maps. The one module here that
//! opens files; it reads them again when they change.

use std::io;
use std::path::PathBuf;

use crate::credential::CredentialError;

mod credential;
mod maps;
mod trust;
mod watched;

pub use credential::{read_credential, read_credential_with};
pub use maps::{GridmapFile, VomsDirectory, VomsProblem};
pub use trust::TrustDirectory;

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The kernel refused.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        error: io::Error,
    },
    /// Others may read a private key.
    #[error("{}: the private key may be read by others (mode {mode:04o}): chmod 0600 it", path.display())]
    Permissions {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// The content is wrong.
    #[error("{}: {error}", path.display())]
    Credential {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        error: CredentialError,
    },
}
