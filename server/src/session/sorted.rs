//! Directories in the order of their names.
//!
//! People and programs expect a sorted listing, and constant memory forbids to sort a large one: so a
//! directory is sorted in runs, and one of ordinary size is a single run.

use std::vec;

use gridhaul_storage::{DirectoryEntry, DirectoryStream, StorageError};

/// How many entries are sorted together.
const RUN_ENTRIES: usize = 4096;

/// The entries of a directory, in runs of which each is sorted.
pub(super) struct Sorted {
    stream: Box<dyn DirectoryStream>,
    run: vec::IntoIter<DirectoryEntry>,
    ended: bool,
}

impl Sorted {
    pub(super) fn new(stream: Box<dyn DirectoryStream>) -> Self {
        Self {
            stream,
            run: Vec::new().into_iter(),
            ended: false,
        }
    }

    /// The next entry, `None` at the end.
    pub(super) fn next_entry(&mut self) -> Result<Option<DirectoryEntry>, StorageError> {
        if self.run.len() == 0 && !self.ended {
            self.run = self.next_run()?.into_iter();
        }
        Ok(self.run.next())
    }

    fn next_run(&mut self) -> Result<Vec<DirectoryEntry>, StorageError> {
        let mut run = Vec::new();
        while run.len() < RUN_ENTRIES {
            match self.stream.next_entry()? {
                Some(entry) => run.push(entry),
                None => {
                    self.ended = true;
                    break;
                }
            }
        }
        run.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(run)
    }
}

#[cfg(test)]
mod tests {
    use gridhaul_storage::{PosixOptions, PosixStorage, Storage};
    use tempfile::TempDir;

    use super::*;

    #[test]
    fn every_entry_comes_once_and_runs_are_sorted() {
        let directory = TempDir::new().expect("a temporary directory");
        let count = RUN_ENTRIES + 10;
        for number in 0..count {
            std::fs::write(directory.path().join(number.to_string()), "").expect("written");
        }
        let storage = PosixStorage::open(directory.path(), PosixOptions::default()).expect("open");
        let mut sorted = Sorted::new(storage.list("/".as_ref()).expect("listed"));
        let mut names = Vec::new();
        while let Some(entry) = sorted.next_entry().expect("listed") {
            names.push(entry.name);
        }
        assert!(names[..RUN_ENTRIES].is_sorted());
        assert!(names[RUN_ENTRIES..].is_sorted());
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
