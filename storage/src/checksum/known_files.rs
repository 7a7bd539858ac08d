//! A cache of the checksums of a bounded number of files, and the set of files that are being received.
//!
//! It opens no file: the caller passes the file's version.
//!
//! The cache approximates least-recently-used eviction with two generations. A file is put into the young generation when
//! it is added or looked up. When the young generation is full it becomes the old one, and the previous old one is
//! dropped. So a file that is used at least once per generation stays. Exact order would need the crate `lru`: one
//! more package, with a linked list of raw pointers, where an imprecise eviction only costs reading a file again.

use std::collections::HashMap;

use super::ChecksumAlgorithm;
use super::seal::Sums;
use super::version::{FileId, Version};

/// The cache, and the files that are being received.
#[derive(Debug)]
pub(super) struct KnownFiles {
    /// The number of files in both generations.
    limit: usize,
    young: HashMap<FileId, Known>,
    old: HashMap<FileId, Known>,
    /// The files that are being received.
    writers: HashMap<FileId, Writers>,
}

#[derive(Debug)]
struct Known {
    version: Version,
    sums: Sums,
}

#[derive(Debug, Default)]
struct Writers {
    active: usize,
    /// Several were active at the same time.
    were_concurrent: bool,
}

impl KnownFiles {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            young: HashMap::new(),
            old: HashMap::new(),
            writers: HashMap::new(),
        }
    }

    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// The checksums of a version of a file, unless the file is being received.
    pub(super) fn of(&mut self, file: FileId, version: Version) -> Option<&Sums> {
        if self.is_written(file) {
            return None;
        }
        let known = self.find(file)?;
        (known.version == version).then_some(&known.sums)
    }

    /// Adds checksums of a version of a file.
    pub(super) fn remember(&mut self, file: FileId, version: Version, sums: Sums) {
        match self.find(file) {
            Some(known) if known.version == version => add(&mut known.sums, sums),
            _ => self.insert(file, Known { version, sums }),
        }
    }

    /// Marks a file as being received, and drops its checksums.
    pub(super) fn begin_writing(&mut self, file: FileId) {
        self.young.remove(&file);
        self.old.remove(&file);
        let writers = self.writers.entry(file).or_default();
        writers.active += 1;
        writers.were_concurrent |= writers.active > 1;
    }

    pub(super) fn end_writing(&mut self, file: FileId) {
        if let Some(writers) = self.writers.get_mut(&file) {
            writers.active -= 1;
            if writers.active == 0 {
                self.writers.remove(&file);
            }
        }
    }

    pub(super) fn is_written(&self, file: FileId) -> bool {
        self.writers.contains_key(&file)
    }

    /// Whether several sessions have received the file at the same time.
    pub(super) fn had_concurrent_writers(&self, file: FileId) -> bool {
        self.writers
            .get(&file)
            .is_none_or(|writers| writers.were_concurrent)
    }

    /// The entry of a file, which moves to the young generation.
    fn find(&mut self, file: FileId) -> Option<&mut Known> {
        if let Some(known) = self.old.remove(&file) {
            self.insert(file, known);
        }
        self.young.get_mut(&file)
    }

    fn insert(&mut self, file: FileId, known: Known) {
        let generation = self.limit / 2;
        if self.young.len() >= generation {
            self.old = std::mem::take(&mut self.young);
        }
        if generation > 0 {
            self.young.insert(file, known);
        }
    }
}

/// Adds checksums, at most one for each algorithm.
pub(super) fn add(sums: &mut Sums, others: Sums) {
    for (algorithm, sum) in others {
        sums.retain(|(known, _)| *known != algorithm);
        sums.push((algorithm, sum));
    }
}

pub(super) fn find_in(sums: &Sums, algorithm: ChecksumAlgorithm) -> Option<String> {
    let mut sums = sums.iter();
    let found = sums.find(|(known, _)| *known == algorithm);
    found.map(|(_, sum)| sum.clone())
}

#[cfg(test)]
mod tests {
    use super::super::version::Time;
    use super::*;

    #[test]
    fn the_number_of_files_is_bounded_and_those_in_use_stay() {
        let file = |inode| FileId { device: 0, inode };
        let time = Time {
            seconds: 1,
            nanoseconds: 0,
        };
        let version = Version {
            size: 7,
            modified: time,
            changed: time,
        };
        let mut files = KnownFiles::new(16);
        let sums = || vec![(ChecksumAlgorithm::Adler32, "1".to_owned())];
        files.remember(file(1000), version, sums());
        for inode in 0..100 {
            files.remember(file(inode), version, sums());
            assert_eq!(files.of(file(1000), version), Some(&sums()));
            assert!(files.young.len() + files.old.len() <= 16);
        }
        assert_eq!(files.of(file(0), version), None);
        assert_eq!(files.of(file(99), version), Some(&sums()));
    }
}
