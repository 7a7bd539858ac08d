//! The checksums of a bounded number of files, and which files are being received.
//!
//! It opens no file: the caller passes the file's state.

use std::collections::HashMap;

use super::ChecksumAlgorithm;
use super::seal::Sums;
use super::version::{Place, Version};

/// Files are put into the young generation when they are remembered or asked for. When it is full the old
/// one is forgotten, and the young one is the old one.
#[derive(Debug)]
pub(super) struct KnownFiles {
    /// Of both generations.
    limit: usize,
    young: HashMap<Place, Known>,
    old: HashMap<Place, Known>,
    /// The files that are being received now.
    writers: HashMap<Place, Writers>,
}

#[derive(Debug)]
struct Known {
    version: Version,
    sums: Sums,
}

#[derive(Debug, Default)]
struct Writers {
    active: usize,
    /// There were several of them at a time.
    met: bool,
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

    /// What is known of a content, unless the file is being received.
    pub(super) fn of(&mut self, place: Place, version: Version) -> Option<&Sums> {
        if self.is_written(place) {
            return None;
        }
        let known = self.find(place)?;
        (known.version == version).then_some(&known.sums)
    }

    /// Adds to what is known of a content.
    pub(super) fn remember(&mut self, place: Place, version: Version, sums: Sums) {
        match self.find(place) {
            Some(known) if known.version == version => add(&mut known.sums, sums),
            _ => self.insert(place, Known { version, sums }),
        }
    }

    /// A file is being received. What was known of it is forgotten.
    pub(super) fn begin_writing(&mut self, place: Place) {
        self.young.remove(&place);
        self.old.remove(&place);
        let writers = self.writers.entry(place).or_default();
        writers.active += 1;
        writers.met |= writers.active > 1;
    }

    pub(super) fn end_writing(&mut self, place: Place) {
        if let Some(writers) = self.writers.get_mut(&place) {
            writers.active -= 1;
            if writers.active == 0 {
                self.writers.remove(&place);
            }
        }
    }

    pub(super) fn is_written(&self, place: Place) -> bool {
        self.writers.contains_key(&place)
    }

    /// Whether who receives the file has not been the only one all the time.
    pub(super) fn writers_met(&self, place: Place) -> bool {
        self.writers.get(&place).is_none_or(|writers| writers.met)
    }

    /// What is known of a file, which is young again for it.
    fn find(&mut self, place: Place) -> Option<&mut Known> {
        if let Some(known) = self.old.remove(&place) {
            self.insert(place, known);
        }
        self.young.get_mut(&place)
    }

    fn insert(&mut self, place: Place, known: Known) {
        let generation = self.limit / 2;
        if self.young.len() >= generation {
            self.old = std::mem::take(&mut self.young);
        }
        if generation > 0 {
            self.young.insert(place, known);
        }
    }
}

/// Bounded by the number of algorithms.
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
        let place = |inode| Place { device: 0, inode };
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
        files.remember(place(1000), version, sums());
        for inode in 0..100 {
            files.remember(place(inode), version, sums());
            assert_eq!(files.of(place(1000), version), Some(&sums()));
            assert!(files.young.len() + files.old.len() <= 16);
        }
        assert_eq!(files.of(place(0), version), None);
        assert_eq!(files.of(place(99), version), Some(&sums()));
    }
}
