//! Files whose directory, owner or permissions decide whether they are used.

use std::io;
use std::path::PathBuf;

/// Why a file is not read, written or removed.
#[derive(Debug, thiserror::Error)]
pub(super) enum PlaceError {
    #[error("{}: {error}", path.display())]
    Io { path: PathBuf, error: io::Error },
    #[error("{}: {reason}", path.display())]
    Refused { path: PathBuf, reason: &'static str },
}
