//! Where checksums of files come from: the memory, or the file.

use std::sync::Arc;
use std::time::SystemTime;

use super::ChecksumAlgorithm;
use super::compute::{ChecksumWatch, compute};
use super::memory::{ChecksumMemory, version};
use super::threads::SpareThreads;
use crate::{OpenedFile, StorageError};

/// The checksums of a node's files.
#[derive(Debug)]
pub struct Checksums {
    memory: Arc<ChecksumMemory>,
    spare: SpareThreads,
}

impl Checksums {
    /// All checksums together are computed on `threads` threads beside those that ask for them, and those
    /// of `files` files are remembered.
    pub fn new(threads: usize, files: usize) -> Self {
        Self {
            memory: ChecksumMemory::new(files),
            spare: SpareThreads::new(threads),
        }
    }

    /// What is known without reading.
    pub fn memory(&self) -> &Arc<ChecksumMemory> {
        &self.memory
    }

    /// The checksum of `length` bytes of `file` from `offset`, in lower-case hexadecimal.
    ///
    /// Without a length, or with one that passes the end, the part goes to the end; a part that starts
    /// past the end is empty. Memory is bounded, whatever the length.
    ///
    /// # Errors
    ///
    /// Every read error, `EIO` if the file is cut while it is read, and `ECANCELED`.
    pub fn of(
        &self,
        file: &OpenedFile,
        algorithm: ChecksumAlgorithm,
        offset: u64,
        length: Option<u64>,
        watch: &ChecksumWatch<'_>,
    ) -> Result<String, StorageError> {
        let before = version(file)?;
        let start = offset.min(before.size);
        let end = length
            .and_then(|length| start.checked_add(length))
            .map_or(before.size, |end| end.min(before.size));
        let whole = start == 0 && end == before.size;
        if whole && let Some(sum) = self.memory.recall(file, algorithm) {
            return Ok(sum);
        }
        let sum = compute(file, algorithm, start..end, &self.spare, watch)?;
        if whole {
            let sum = (algorithm, sum.clone());
            self.memory
                .remember_computed(file, before, sum, SystemTime::now());
        }
        Ok(sum)
    }
}
