//! Runs the programs that make certificates.

use std::io;
use std::path::Path;

use crate::support::client::{Client, ClientError, Finished};

/// Why the files could not be made.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// A file or directory.
    #[error("cannot make test certificates: {0}")]
    Files(#[from] io::Error),
    /// A program did not run to its end.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// A program failed.
    #[error("cannot make test certificates\n{0}")]
    Program(Finished),
    /// This account has no name.
    #[error("the account that runs the tests has no name")]
    NoAccount,
}

/// Runs a program that makes certificates in `directory`, to its successful end.
pub(super) fn run(directory: &Path, program: Client) -> Result<Finished, PkiError> {
    let finished = program
        .directory(directory)
        // OpenSSL keeps the state of its random number generator there (`.rnd`).
        .env("HOME", directory)
        .run()?;
    if finished.status.success() {
        Ok(finished)
    } else {
        Err(PkiError::Program(finished))
    }
}
