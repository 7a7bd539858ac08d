//! Iterates over the entries of a directory.
//!
//! Users expect sorted listings, but sorting a large directory would need memory for all its entries. So a directory is
//! sorted in runs; one of ordinary size is a single run.

use std::{fmt, vec};

use crate::{DirectoryEntry, DirectoryStream, StorageError};

/// The entries of a directory, in sorted runs.
pub struct Entries {
    stream: Box<dyn DirectoryStream>,
    run_entries: usize,
    run: vec::IntoIter<DirectoryEntry>,
}

impl Entries {
    /// Entries in sorted runs of at least `run_entries`.
    pub fn new(stream: Box<dyn DirectoryStream>, run_entries: usize) -> Self {
        Self {
            stream,
            run_entries,
            run: Vec::new().into_iter(),
        }
    }

    /// The next entry, `None` at the end.
    ///
    /// # Errors
    ///
    /// When the directory cannot be read.
    pub fn next_entry(&mut self) -> Result<Option<DirectoryEntry>, StorageError> {
        loop {
            if let Some(entry) = self.run.next() {
                return Ok(Some(entry));
            }
            let Some(mut run) = self.stream.next_run(self.run_entries)? else {
                return Ok(None);
            };
            let mut entries = Vec::with_capacity(run.count());
            run.entries(&mut |name, metadata| {
                entries.push(DirectoryEntry {
                    name: name.to_owned(),
                    metadata: metadata.clone(),
                });
            })?;
            self.run = entries.into_iter();
        }
    }
}

impl fmt::Debug for Entries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entries")
            .field("waiting", &self.run.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;
    use crate::{PosixOptions, PosixStorage, Storage as _};

    #[test]
    fn every_entry_comes_once_and_runs_are_sorted() {
        const RUN_ENTRIES: usize = 4096;
        let directory = TempDir::new().expect("a temporary directory");
        let count = 3 * RUN_ENTRIES;
        for number in 0..count {
            std::fs::write(directory.path().join(number.to_string()), "").expect("written");
        }
        let storage = PosixStorage::open(directory.path(), PosixOptions::default()).expect("open");
        let mut entries = Entries::new(storage.list("/".as_ref()).expect("listed"), RUN_ENTRIES);
        let mut names = Vec::new();
        while let Some(entry) = entries.next_entry().expect("listed") {
            names.push(entry.name);
        }
        assert!(names[..RUN_ENTRIES].is_sorted());
        let falls = names.windows(2).filter(|pair| pair[0] > pair[1]).count();
        assert!(falls <= count / RUN_ENTRIES, "{falls} runs");
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
