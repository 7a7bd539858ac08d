//! Credentials in files.

use std::path::Path;

use super::FileError;
use crate::credential::Credential;

/// Reads a certificate chain and its key, which may be one file.
pub fn read_credential(certificates: &Path, key: &Path) -> Result<Credential, FileError> {
    todo!("{certificates:?} {key:?}")
}
