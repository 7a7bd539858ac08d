//! `PosixStorage` on real directories. The crate `gridhaul-accounts` runs most of these tests on brokers as well.

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
mod unnamed;
mod uploads;

use std::path::Path;

use fixture::*;
use gridhaul_storage::{PosixOptions, PosixStorage, Rights, StorageError};

/// The storage under test.
type Files = PosixStorage;

/// Opens it with the options of a broker, so that the same tests pass on both.
fn open(root: &Path, options: PosixOptions) -> Result<Files, StorageError> {
    let options = PosixOptions {
        rights: Rights::Account,
        ..options
    };
    PosixStorage::open(root, options)
}
