//! Finds the checksum of a file: in memory, in an attribute of the file, or by reading the content.

use std::sync::Arc;
use std::time::SystemTime;

use super::compute::compute;
use super::memory::ChecksumMemory;
use super::reader::ChecksumWatch;
use super::threads::SpareThreads;
use super::version::version;
use super::{ChecksumAlgorithm, ChecksumKey};
use crate::{OpenedFile, StorageError, StoredFile};

/// The checksums of a node's files.
#[derive(Debug)]
pub struct Checksums {
    memory: Arc<ChecksumMemory>,
    spare: SpareThreads,
}

/// A checksum and its source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundChecksum {
    /// In lower-case hexadecimal.
    pub value: String,
    /// How it was found.
    pub source: ChecksumSource,
    /// The number of bytes that were read to compute it.
    pub read_bytes: u64,
}

/// How a checksum was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChecksumSource {
    /// In the memory of this process.
    Memory,
    /// In the attribute of the file.
    Attribute,
    /// By reading the file.
    Content,
}

impl Checksums {
    /// Computations share `threads` threads beside those of their callers. The checksums of up to `files` files are
    /// remembered. With a key, they are stored with the files as well.
    pub fn new(threads: usize, files: usize, key: Option<ChecksumKey>) -> Self {
        Self {
            memory: ChecksumMemory::new(files, key),
            spare: SpareThreads::new(threads),
        }
    }

    /// The remembered checksums.
    pub fn memory(&self) -> &Arc<ChecksumMemory> {
        &self.memory
    }

    /// The checksum of `length` bytes of `file` from `offset`. `stored` is its name.
    ///
    /// Without a length, or with one that passes the end, the part goes to the end; a part that starts
    /// past the end is empty. Memory use does not depend on the length.
    ///
    /// # Errors
    ///
    /// Read errors, `EIO` if the file is truncated while it is read, and `ECANCELED`.
    pub fn of(
        &self,
        (file, stored): (&OpenedFile, &StoredFile<'_>),
        algorithm: ChecksumAlgorithm,
        (offset, length): (u64, Option<u64>),
        watch: &ChecksumWatch<'_>,
    ) -> Result<FoundChecksum, StorageError> {
        let before = version(file)?;
        let start = offset.min(before.size);
        let end = length
            .and_then(|length| start.checked_add(length))
            .map_or(before.size, |end| end.min(before.size));
        let whole = start == 0 && end == before.size;
        if whole && let Some(known) = self.known(file, stored, algorithm) {
            return Ok(known);
        }
        let value = compute(file, algorithm, start..end, &self.spare, watch)?;
        if whole {
            let sum = (algorithm, value.clone());
            self.memory
                .remember_computed((file, stored), before, sum, SystemTime::now());
        }
        Ok(FoundChecksum {
            value,
            source: ChecksumSource::Content,
            read_bytes: end - start,
        })
    }

    fn known(
        &self,
        file: &OpenedFile,
        stored: &StoredFile<'_>,
        algorithm: ChecksumAlgorithm,
    ) -> Option<FoundChecksum> {
        let found = |source| {
            move |value| FoundChecksum {
                value,
                source,
                read_bytes: 0,
            }
        };
        let remembered = self.memory.recall(file, algorithm);
        remembered.map(found(ChecksumSource::Memory)).or_else(|| {
            let stored = self.memory.recall_stored(file, stored, algorithm);
            stored.map(found(ChecksumSource::Attribute))
        })
    }
}
