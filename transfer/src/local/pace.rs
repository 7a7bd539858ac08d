//! Whether the peer of a session sends small files quickly.

use std::sync::atomic::{AtomicU32, Ordering};

/// After a slow file, this many files are received by workers.
const SLOW_FILES: u32 = 16;

/// Decides whether the session's thread should wait for the next small file.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// How many more files are received by workers.
    slow_files: AtomicU32,
}

impl Pace {
    /// Whether the next file is likely to arrive quickly; counts it.
    pub(super) fn is_quick(&self) -> bool {
        let next = |left: u32| left.checked_sub(1);
        let counted = self
            .slow_files
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        counted.is_err()
    }

    /// Records whether a file arrived quickly.
    pub(super) fn note(&self, was_quick: bool) {
        if !was_quick {
            self.slow_files.store(SLOW_FILES, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_files_after_a_slow_one_are_left_to_workers() {
        let pace = Pace::default();
        assert!(pace.is_quick());
        pace.note(false);
        for _ in 0..SLOW_FILES {
            assert!(!pace.is_quick());
        }
        assert!(pace.is_quick());
        pace.note(true);
        assert!(pace.is_quick());
    }
}
