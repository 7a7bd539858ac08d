//! Which checksums clients ask for after they have stored a file.
//!
//! Computing a checksum while a file arrives slows the transfer down, and is wasted if no client asks for it.
//! Clients of a site do the same thing over and over: who asked for a checksum of a file just stored will
//! ask for that of the next.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use gridhaul_storage::{ChecksumAlgorithm, OpenedFile};

/// For so long one question stands for others to come.
const MEMORY: Duration = Duration::from_secs(15 * 60);

/// A file that was modified so shortly before was just stored.
const JUST_STORED: Duration = Duration::from_secs(5 * 60);

/// What was asked for lately.
#[derive(Debug)]
pub(crate) struct Asked {
    began: Instant,
    /// For each algorithm until when it counts, in seconds after `began`.
    until: [AtomicU64; ChecksumAlgorithm::ALL.len()],
}

impl Asked {
    pub(crate) fn new() -> Self {
        Self {
            began: Instant::now(),
            until: [const { AtomicU64::new(0) }; ChecksumAlgorithm::ALL.len()],
        }
    }

    /// A client asked for the checksum of a whole file.
    pub(crate) fn note(&self, algorithm: ChecksumAlgorithm, file: &OpenedFile) {
        if was_just_stored(file) {
            let until = (self.began.elapsed() + MEMORY).as_secs();
            self.of(algorithm).store(until, Ordering::Relaxed);
        }
    }

    /// What was asked for, and may be asked for again.
    pub(crate) fn lately(&self) -> impl Iterator<Item = ChecksumAlgorithm> {
        let now = self.began.elapsed().as_secs();
        let counts =
            move |algorithm: &ChecksumAlgorithm| now < self.of(*algorithm).load(Ordering::Relaxed);
        ChecksumAlgorithm::ALL.into_iter().filter(counts)
    }

    fn of(&self, algorithm: ChecksumAlgorithm) -> &AtomicU64 {
        let place = ChecksumAlgorithm::ALL
            .iter()
            .position(|&other| other == algorithm);
        &self.until[place.expect("ALL has every algorithm")]
    }
}

fn was_just_stored(file: &OpenedFile) -> bool {
    let Ok(facts) = rustix::fs::fstat(file) else {
        return false;
    };
    let modified = u64::try_from(facts.st_mtime).unwrap_or(0);
    let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(modified);
    SystemTime::now()
        .duration_since(modified)
        .is_ok_and(|age| age < JUST_STORED)
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    fn opened(file: &File) -> OpenedFile {
        let file = file.try_clone().expect("a descriptor");
        OpenedFile::new(file.into(), 0)
    }

    #[test]
    fn a_question_about_a_new_file_stands_for_others() {
        let asked = Asked::new();
        let file = tempfile::tempfile().expect("a temporary file");
        assert_eq!(asked.lately().count(), 0);
        asked.note(ChecksumAlgorithm::Crc32c, &opened(&file));
        assert!(asked.lately().eq([ChecksumAlgorithm::Crc32c]));
        let old = SystemTime::now() - JUST_STORED;
        file.set_modified(old).expect("our file");
        asked.note(ChecksumAlgorithm::Md5, &opened(&file));
        assert!(asked.lately().eq([ChecksumAlgorithm::Crc32c]));
    }
}
