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

use std::path::Path;

use fixture::*;
use gridhaul_storage::{PosixOptions, PosixStorage, StorageError};

/// The storage that is tested.
type Files = PosixStorage;

fn open(root: &Path, options: PosixOptions) -> Result<Files, StorageError> {
    PosixStorage::open(root, options)
}
