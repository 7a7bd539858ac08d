//! Checksums of a received file that are computed from its content, after it has arrived.

use std::path::Path;
use std::sync::atomic::AtomicU64;

use gridhaul_storage::{
    ChecksumAlgorithm, ChecksumWatch, OpenedFile, StorageError, StoredFile, Writing,
};

use super::part::Part;
use crate::context::Context;

/// The checksums of a file of `length` bytes that other nodes have received parts of; remembers them. None for a file that
/// cannot be read.
pub(super) fn checksums(
    context: &Context,
    algorithms: &[ChecksumAlgorithm],
    (part, path): (&Part, &Path),
    length: u64,
    writing: Writing,
) -> Vec<(ChecksumAlgorithm, String)> {
    let storage = &*context.storage;
    let compute = |&algorithm: &ChecksumAlgorithm| {
        let file = storage.open_read(path).ok();
        // The name may belong to another file by now.
        let file = file.filter(|file| writing.is_of(file))?;
        Some((algorithm, of_file(context, &file, path, algorithm).ok()?))
    };
    let sums: Vec<_> = algorithms.iter().filter_map(compute).collect();
    part.remember(writing, &StoredFile { storage, path }, length, sums.clone());
    sums
}

/// The checksum of the file at `path`.
pub(super) fn checksum(
    context: &Context,
    path: &Path,
    algorithm: ChecksumAlgorithm,
) -> Result<String, StorageError> {
    let file = context.storage.open_read(path)?;
    of_file(context, &file, path, algorithm)
}

fn of_file(
    context: &Context,
    file: &OpenedFile,
    path: &Path,
    algorithm: ChecksumAlgorithm,
) -> Result<String, StorageError> {
    let running = &context.running;
    // No byte moves meanwhile.
    running.settle();
    let watch = ChecksumWatch {
        done: &AtomicU64::new(0),
        cancelled: &|| running.cancel.is_cancelled(),
    };
    let storage = &*context.storage;
    let file = (file, &StoredFile { storage, path });
    let checksums = &context.resources.checksums;
    let found = checksums.of(file, algorithm, (0, None), &watch)?;
    Ok(found.value)
}
