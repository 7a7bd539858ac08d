//! The checksums that clients request after they have stored a file.
//!
//! Computing a checksum while a file arrives slows the transfer down, and is wasted if no client requests it.
//! The clients of a site repeat themselves: after a request for the checksum of a new file, requests
//! for those of the next files are likely.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use gridhaul_storage::{ChecksumAlgorithm, OpenedFile};

/// How long a request makes further ones likely.
const MEMORY: Duration = Duration::from_secs(15 * 60);

/// The age up to which a file counts as just stored.
const JUST_STORED: Duration = Duration::from_secs(5 * 60);

/// The recent requests of all clients.
#[derive(Debug)]
pub(crate) struct RequestedChecksums {
    began: Instant,
    /// For each algorithm until when its last request counts, in seconds after `began`.
    until: [AtomicU64; ChecksumAlgorithm::ALL.len()],
}

impl RequestedChecksums {
    pub(crate) fn new() -> Self {
        Self {
            began: Instant::now(),
            until: [const { AtomicU64::new(0) }; ChecksumAlgorithm::ALL.len()],
        }
    }

    /// Records a request for the checksum of a whole file.
    pub(crate) fn note(&self, algorithm: ChecksumAlgorithm, file: &OpenedFile) {
        if was_just_stored(file) {
            let until = (self.began.elapsed() + MEMORY).as_secs();
            self.of(algorithm).store(until, Ordering::Relaxed);
        }
    }

    /// The algorithms that were requested recently.
    pub(crate) fn recent(&self) -> impl Iterator<Item = ChecksumAlgorithm> {
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
    fn requests_count_only_for_new_files() {
        let requested = RequestedChecksums::new();
        let file = tempfile::tempfile().expect("a temporary file");
        assert_eq!(requested.recent().count(), 0);
        requested.note(ChecksumAlgorithm::Crc32c, &opened(&file));
        assert!(requested.recent().eq([ChecksumAlgorithm::Crc32c]));
        let old = SystemTime::now() - JUST_STORED;
        file.set_modified(old).expect("our file");
        requested.note(ChecksumAlgorithm::Md5, &opened(&file));
        assert!(requested.recent().eq([ChecksumAlgorithm::Crc32c]));
    }
}
