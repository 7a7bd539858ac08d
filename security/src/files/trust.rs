//! Trust directories.

use std::path::Path;
use std::sync::Arc;

use super::FileError;
use crate::trust::{TrustProblem, TrustStore};

/// A trust directory that is read again when it changes.
#[derive(Debug)]
pub struct TrustDirectory {}

impl TrustDirectory {
    /// Reads a directory.
    pub fn open(path: &Path) -> Result<Self, FileError> {
        todo!("{path:?}")
    }

    /// What it holds now. Looks at the directory at most once a second; a directory that has become
    /// unreadable leaves what was there. May block.
    pub fn current(&self) -> Arc<TrustStore> {
        todo!()
    }

    /// The files that could not be used.
    pub fn problems(&self) -> Vec<TrustProblem> {
        todo!()
    }
}
