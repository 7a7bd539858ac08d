//! Files that are being received, and their checksums once they are complete.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::memory::ChecksumMemory;
use super::seal::Sums;
use super::version::{FileId, facts, stamp};
use crate::{OpenedFile, StorageError, StoredFile};

/// How far in the past the modification time of a received file is set: longer than a tick of the slowest clock that
/// Linux is built with (100 Hz).
const BACKDATED: Duration = Duration::from_millis(20);

/// A file that is being received. The reception ends when this is dropped.
#[derive(Debug)]
pub struct Writing {
    memory: Arc<ChecksumMemory>,
    id: FileId,
}

impl ChecksumMemory {
    /// Marks a file as being received, and forgets its checksums.
    ///
    /// # Errors
    ///
    /// When the file's identity cannot be determined.
    pub fn begin_writing(self: &Arc<Self>, file: &OpenedFile) -> Result<Writing, StorageError> {
        let (id, _) = facts(file)?;
        self.lock().begin_writing(id);
        Ok(Writing {
            memory: self.clone(),
            id,
        })
    }
}

impl Writing {
    /// Whether `file` is the file that is being received.
    pub fn is_of(&self, file: &OpenedFile) -> bool {
        facts(file).is_ok_and(|(id, _)| id == self.id)
    }

    /// Remembers the checksums of the file, which is complete with `length` bytes and still open. Sets its modification
    /// time, by its name if the descriptor does not allow it.
    pub fn remember(self, file: &OpenedFile, stored: &StoredFile<'_>, length: u64, sums: Sums) {
        let is_disabled = self.memory.lock().limit() == 0 && self.memory.attribute.is_none();
        if sums.is_empty() || is_disabled || self.had_concurrent_writers() {
            return;
        }
        let time = SystemTime::now() - BACKDATED;
        // If neither is possible the checksums are not remembered. The transfer has still succeeded.
        if stamp(file, time).is_err() && stored.storage.set_modified(stored.path, time).is_err() {
            return;
        }
        let Ok((id, version)) = facts(file) else {
            return;
        };
        if id != self.id || version.size != length || !version.is_lasting() {
            return;
        }
        let Some(version) = self.memory.store((file, stored), id, version, &sums) else {
            return;
        };
        let mut files = self.memory.lock();
        if !files.had_concurrent_writers(id) {
            files.remember(id, version, sums);
            return;
        }
        drop(files);
        // A second session that began meanwhile may have written before the modification time was set.
        self.memory.remove_stored(stored);
    }

    fn had_concurrent_writers(&self) -> bool {
        self.memory.lock().had_concurrent_writers(self.id)
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        self.memory.lock().end_writing(self.id);
    }
}
