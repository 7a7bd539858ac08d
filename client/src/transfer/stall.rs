//! The time limits of transfers.

use std::time::{Duration, Instant};

/// How long an end may work on a file without a byte that moves: it writes to disk, or computes checksums.
const SETTLING: Duration = Duration::from_secs(3600);

/// For how many time limits a server may say that it works, without a byte that moves.
const WORDS: u32 = 4;

/// How long one end may take after the other one has failed.
pub(super) const FAREWELL: Duration = Duration::from_secs(10);

/// The least rate of progress that a server tells, in bytes per second of the time limit: a count that grows by less must not hold a
/// transfer.
const LEAST_TOLD: u64 = 1024;

/// The bytes that a server says to have moved or stored.
#[derive(Debug)]
pub(super) struct Claims {
    step: u64,
    counted: u64,
}

impl Claims {
    /// Of a transfer with this time limit.
    pub(super) fn new(limit: Duration) -> Self {
        let step = limit.as_secs().saturating_mul(LEAST_TOLD);
        Self {
            step: step.max(1),
            counted: 0,
        }
    }

    /// Whether these are so many more bytes than before that they are progress. More than `most` do not count; reaching these does.
    pub(super) fn advance_to(&mut self, bytes: u64, most: u64) -> bool {
        let bytes = bytes.min(most);
        let enough = self.counted.saturating_add(self.step).min(most);
        if bytes <= self.counted || bytes < enough {
            return false;
        }
        self.counted = bytes;
        true
    }
}

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

    /// How long there was no progress.
    pub(super) fn since_progress(&self) -> Duration {
        self.progress.elapsed()
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
        self.limit = self.limit.min(FAREWELL);
        self.progressed();
    }

    pub(super) fn is_overdue(&self) -> bool {
        self.sign.elapsed() >= self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_count_in_steps_up_to_the_bytes_that_there_are() {
        let mut claims = Claims::new(Duration::from_secs(2));
        let counted = [
            0,
            1,
            2047,
            2048,
            2049,
            4095,
            4096,
            4097,
            5000,
            9000,
            u64::MAX,
        ];
        let counted = counted.map(|bytes| claims.advance_to(bytes, 5000));
        let expected = [0, 0, 0, 1, 0, 0, 1, 0, 1, 0, 0].map(|is| is == 1);
        assert_eq!(counted, expected);
        // More bytes have moved meanwhile.
        assert!(claims.advance_to(9000, 5001));
        assert!(!claims.advance_to(0, 0));
    }

    #[test]
    fn claims_of_a_short_time_limit_need_a_byte() {
        let mut claims = Claims::new(Duration::from_millis(10));
        assert!(claims.advance_to(1, 10) && !claims.advance_to(1, 10));
    }
}
