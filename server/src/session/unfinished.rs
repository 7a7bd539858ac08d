//! Unfinished uploads, where uploads have temporary names: what commands on their final names do.
//!
//! `SIZE` of a name that only an unfinished upload has answers the size of that upload: lftp (`put -c`) and curl (`-C -`) ask it
//! for the offset at which they restart. All other commands, and all listings, treat the name as missing, because clients
//! conclude from them that a file is complete: gfal2, rclone and globus-url-copy use `MLST`. `DELE` removes an unfinished
//! upload too: gfal2 sends it after a failure.

use std::path::Path;

use gridhaul_storage::{FileKind, Storage, StorageError, StorageErrorKind, UploadForm};
use gridhaul_transfer::UploadName;

/// The size of a file, or of its unfinished upload.
pub(super) fn size(
    storage: &dyn Storage,
    path: &Path,
    uploads: UploadName,
) -> Result<u64, StorageError> {
    let missing = match storage.stat(path) {
        Err(error) if is_missing(&error) && uploads == UploadName::Temporary => error,
        found => return found.map(|found| found.size),
    };
    // An upload in blocks may have gaps, so its end is no offset for a restart.
    let Some(unfinished) = UploadForm::Stream.unfinished(path) else {
        return Err(missing);
    };
    match storage.stat(&unfinished) {
        Ok(found) if found.kind == FileKind::File && found.link_target.is_none() => Ok(found.size),
        _ => Err(missing),
    }
}

/// Removes a file and its unfinished uploads. One of them is enough for success.
pub(super) fn remove_file(
    storage: &dyn Storage,
    path: &Path,
    uploads: UploadName,
) -> Result<(), StorageError> {
    let mut removed = storage.remove_file(path);
    if uploads == UploadName::Final || removed.as_ref().is_err_and(|error| !is_missing(error)) {
        return removed;
    }
    for form in UploadForm::ALL {
        if let Some(unfinished) = form.unfinished(path)
            && storage.remove_file(&unfinished).is_ok()
        {
            removed = Ok(());
        }
    }
    removed
}

fn is_missing(error: &StorageError) -> bool {
    error.kind() == StorageErrorKind::NotFound
}
