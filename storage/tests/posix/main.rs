//! What `PosixStorage` does with real directories. Most of it is asked of other storages as well.

mod attributes;
mod direct;
mod escape;
mod fixture;
mod kinds;
mod listing;
mod model;
mod names;
mod options;
mod read_only;
mod remove_tree;
mod shared;

use std::path::Path;

use fixture::*;
use gridhaul_storage::{PosixOptions, PosixStorage, Rights, StorageError};

/// The storage that is tested.
type Files = PosixStorage;

/// As a broker opens it, so that the tests are the same for both.
fn open(root: &Path, options: PosixOptions) -> Result<Files, StorageError> {
    let options = PosixOptions {
        rights: Rights::Account,
        ..options
    };
    PosixStorage::open(root, options)
}
