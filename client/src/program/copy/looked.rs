//! What a directory of the copy had before.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use gridhaul_storage::{FileKind, Metadata, Storage, StorageErrorKind};

use super::error::CopyError;
use super::version::Version;
use crate::control::ControlError;
use crate::listing::ListingError;

/// What a look at a directory has found.
pub(super) enum Looked {
    Entries(HashMap<Vec<u8>, Had>),
    TooMany,
    /// There is no such directory, or the server refuses to list it.
    Missing(CopyError),
}

impl Looked {
    pub(super) fn entries(self) -> Result<Option<HashMap<Vec<u8>, Had>>, CopyError> {
        match self {
            Self::Entries(had) => Ok(Some(had)),
            Self::TooMany => Ok(None),
            Self::Missing(error) => Err(error),
        }
    }
}

/// An entry that was there before.
pub(super) struct Had {
    /// A directory itself, and no link to one.
    pub(super) is_directory: bool,
    pub(super) version: Version,
    /// The source has it, too.
    pub(super) stays: bool,
}

pub(super) fn is_refused(error: &ListingError) -> bool {
    matches!(error, ListingError::Server(error) if matches!(**error, ControlError::Refused { .. }))
}

pub(super) fn look_local(
    storage: &dyn Storage,
    path: &Path,
    room: usize,
) -> Result<Looked, CopyError> {
    /// Entries that are read at a time.
    const RUN: usize = 4096;

    let mut had = HashMap::new();
    let path = match path.as_os_str().is_empty() {
        true => Path::new("/"),
        false => path,
    };
    let mut stream = match storage.list(path) {
        Err(error) if error.kind() == StorageErrorKind::NotFound => {
            return Ok(Looked::Missing(error.into()));
        }
        stream => stream?,
    };
    while let Some(mut run) = stream.next_run(RUN)? {
        let mut note = |name: &OsStr, found: &Metadata| {
            // A link is removed, and not what it leads to.
            let is_directory = found.kind == FileKind::Directory && found.link_target.is_none();
            let version = Version {
                size: Some(found.size),
                modified: Some(found.modified),
                mode: None,
            };
            let entry = Had {
                is_directory,
                version,
                stays: false,
            };
            had.insert(name.as_bytes().to_vec(), entry);
        };
        run.entries(&mut note)?;
        if had.len() > room {
            return Ok(Looked::TooMany);
        }
    }
    had.remove(b".".as_slice());
    had.remove(b"..".as_slice());
    Ok(Looked::Entries(had))
}
