//! The time limits of transfers.

use std::time::{Duration, Instant};

/// How long an end may work on a file without a byte that moves: it writes to disk, or computes checksums.
const SETTLING: Duration = Duration::from_secs(3600);

/// For how many time limits a server may say that it works, without a byte that moves.
const WORDS: u32 = 4;

/// How long one end may take after the other one has failed.
pub(super) const FAREWELL: Duration = Duration::from_secs(10);

/// Notices when nothing moves.
#[derive(Debug)]
pub(super) struct StallWatch {
    limit: Duration,
    progress: Instant,
    /// The last progress, or the last sign that an end works.
    sign: Instant,
    bytes: u64,
}

impl StallWatch {
    pub(super) fn new(limit: Duration) -> Self {
        let now = Instant::now();
        Self {
            limit,
            progress: now,
            sign: now,
            bytes: 0,
        }
    }

    pub(super) fn limit(&self) -> Duration {
        self.limit
    }

    /// A step that a transfer makes only once, or only with more bytes.
    pub(super) fn progressed(&mut self) {
        self.progress = Instant::now();
        self.sign = self.progress;
    }

    /// Whether this is more than before, which is progress.
    pub(super) fn has_moved_to(&mut self, bytes: u64) -> bool {
        if bytes <= self.bytes {
            return false;
        }
        self.bytes = bytes;
        self.progressed();
        true
    }

    /// This machine works. That counts for an hour after the last progress.
    pub(super) fn works(&mut self) {
        self.has_sign(SETTLING);
    }

    /// A server says that it works. That counts for some time limits after the last progress, and for an hour at most: words must not hold a
    /// transfer for ever.
    pub(super) fn hears(&mut self) {
        self.has_sign(SETTLING.min(self.limit.saturating_mul(WORDS)));
    }

    fn has_sign(&mut self, within: Duration) {
        if self.progress.elapsed() < within {
            self.sign = Instant::now();
        }
    }

    /// One end has failed: the other one has little time.
    pub(super) fn shorten(&mut self) {
        self.shorten_to(FAREWELL);
    }

    pub(super) fn shorten_to(&mut self, limit: Duration) {
        self.limit = self.limit.min(limit);
        self.progressed();
    }

    pub(super) fn is_overdue(&self) -> bool {
        self.sign.elapsed() >= self.limit
    }
}
