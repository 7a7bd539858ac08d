//! `gridhaul proxy destroy`.

use std::path::Path;

use gridhaul_security::files::{FileError, read_credential};

use super::place::{check_own, destroy};
use crate::login::Environment;
use crate::program::place::PlaceError;

/// Why a proxy is not removed.
#[derive(Debug, thiserror::Error)]
pub(super) enum DestroyError {
    #[error(transparent)]
    Place(#[from] PlaceError),
    #[error("{0}; only proxies are overwritten: remove the file with rm")]
    NotRead(FileError),
    #[error(
        "{0}: it has a certificate with its key, and no proxy: remove it with rm, if it is not needed"
    )]
    NoProxy(String),
}

/// Overwrites and removes a proxy, and nothing else: a key that exists once would be lost.
pub(super) fn run(file: Option<&Path>) -> Result<(), DestroyError> {
    let usual = || Environment::of_process().proxy();
    let path = file.map_or_else(usual, Path::to_owned);
    check_own(&path)?;
    match read_credential(&path, &path) {
        Ok(credential) if credential.leaf().proxy().is_none() => {
            return Err(DestroyError::NoProxy(path.display().to_string()));
        }
        Ok(_) => {}
        // It has the reason.
        Err(FileError::Io { .. }) => {}
        Err(error) => return Err(DestroyError::NotRead(error)),
    }
    Ok(destroy(&path)?)
}
