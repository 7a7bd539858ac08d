//! The files that security is made of: credentials, trust directories, maps. The one module here that
//! opens files; it reads them again when they change.

use std::fmt;
use std::fs::{self, File, Metadata};
use std::io;
use std::path::{Path, PathBuf};

use crate::credential::CredentialError;

mod credential;
mod maps;
mod trust;
mod watched;

pub use credential::{read_credential, read_credential_with};
pub use maps::{GridmapFile, VomsDirectory, VomsProblem};
pub use trust::TrustDirectory;

/// How files are opened: a process may have to ask another one, which has the right to.
pub trait OpenFiles: Send + Sync + fmt::Debug {
    /// Opens a file for reading.
    ///
    /// # Errors
    ///
    /// When it cannot be opened.
    fn open(&self, path: &Path) -> io::Result<File>;

    /// What the kernel says of a file.
    ///
    /// # Errors
    ///
    /// When it cannot be looked at.
    fn metadata(&self, path: &Path) -> io::Result<Metadata>;
}

/// Opens files with the rights of this process.
#[derive(Debug)]
pub struct OwnRights;

impl OpenFiles for OwnRights {
    fn open(&self, path: &Path) -> io::Result<File> {
        File::open(path)
    }

    fn metadata(&self, path: &Path) -> io::Result<Metadata> {
        fs::metadata(path)
    }
}

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
