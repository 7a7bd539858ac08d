//! What a directory of the copy had before.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use gridhaul_protocol::path::PathArgument;
use gridhaul_storage::{FileKind, Metadata, Storage, StorageErrorKind};

use super::error::CopyError;
use super::version::Version;
use crate::control::ControlError;
use crate::listing::{Lister, ListingError, ListingSettings};
use crate::session::Session;

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
#[derive(Debug)]
pub(super) struct Had {
    /// A directory itself, and no link to one.
    pub(super) is_directory: bool,
    /// A regular file, or a link to one.
    pub(super) is_file: bool,
    pub(super) version: Version,
    /// The source has it, too.
    pub(super) stays: bool,
}

impl Had {
    /// The version of a regular file.
    pub(super) fn file(&self) -> Option<Version> {
        self.is_file.then_some(self.version)
    }
}

/// Whether the server refuses for good.
fn is_refused(error: &ListingError) -> bool {
    let is_refusal = |error: &ControlError| matches!(error, ControlError::Refused { .. });
    matches!(error, ListingError::Server(error) if is_refusal(error) && !error.is_transient(false))
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
                is_file: found.kind == FileKind::File,
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

/// What a directory of a server has; at most so many entries.
pub(super) async fn look_remote(
    session: &mut Session,
    lister: &Lister,
    (path, how): (&PathArgument, &ListingSettings),
    room: usize,
) -> Result<Looked, CopyError> {
    let failed = |error| CopyError::DestinationListing(Box::new(error));
    let mut had = HashMap::new();
    let listing = match lister.list(session, path, how).await {
        Err(error) if is_refused(&error) => return Ok(Looked::Missing(failed(error))),
        listing => listing.map_err(failed)?,
    };
    for entry in listing {
        let entry = entry.map_err(failed)?;
        if had.len() >= room {
            return Ok(Looked::TooMany);
        }
        let found = Had {
            is_directory: entry.facts.is_real_directory(),
            is_file: entry.facts.may_be_file(),
            version: entry.facts.into(),
            stays: false,
        };
        had.insert(entry.name, found);
    }
    Ok(Looked::Entries(had))
}
