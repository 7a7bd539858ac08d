//! Files of credentials, trust directories, grid-mapfiles and vomsdirs, which are reloaded when they change. The other
//! modules of this crate open no files.

use std::fmt;
use std::fs::{self, File, Metadata};
use std::io;
use std::path::{Path, PathBuf};

use crate::bans::BanListError;
use crate::credential::CredentialError;

mod bans;
mod credential;
mod gridmap;
mod read;
mod roots;
mod trust;
mod voms;
mod watched;

pub use bans::BanListFile;
pub use credential::{
    read_credential, read_credential_with, read_encrypted_credential, read_session_credential,
};
pub use gridmap::GridmapFile;
pub use read::open_file;
pub use roots::read_roots;
pub use trust::TrustDirectory;
pub use voms::{VomsDirectory, VomsProblem};

/// Opens files. A process without permission may have another process open them.
pub trait OpenFiles: Send + Sync + fmt::Debug {
    /// Opens a file for reading.
    ///
    /// # Errors
    ///
    /// When it cannot be opened.
    fn open(&self, path: &Path) -> io::Result<File>;

    /// The metadata of a file.
    ///
    /// # Errors
    ///
    /// When it is not accessible.
    fn metadata(&self, path: &Path) -> io::Result<Metadata>;
}

/// Opens files with the permissions of this process.
#[derive(Debug)]
pub struct OwnRights;

impl OpenFiles for OwnRights {
    fn open(&self, path: &Path) -> io::Result<File> {
        open_file(path)
    }

    fn metadata(&self, path: &Path) -> io::Result<Metadata> {
        fs::metadata(path)
    }
}

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// A system call failed.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        error: io::Error,
    },
    /// The mode of a private key gives permissions to other accounts.
    #[error("{}: the private key may be read by others (mode {mode:04o}): chmod 0600 it", path.display())]
    Permissions {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// The certificate is where the key is expected, and the key where the certificate is.
    #[error(
        "{} has the certificate and {} its private key: they are swapped; name them the other way around",
        key.display(), certificates.display()
    )]
    Swapped {
        /// The file that was read as the certificate.
        certificates: PathBuf,
        /// The file that was read as the key.
        key: PathBuf,
    },
    /// The content is invalid.
    #[error("{}: {error}", path.display())]
    Credential {
        /// The file.
        path: PathBuf,
        /// The reason.
        error: CredentialError,
    },
    /// There is no usable certificate.
    #[error("{}: there is no certificate of an authority in it", .0.display())]
    NoRoots(PathBuf),
    /// A line of a ban list is invalid.
    #[error("{}: {error}", path.display())]
    BanList {
        /// The file.
        path: PathBuf,
        /// The line and the reason.
        error: BanListError,
    },
}
