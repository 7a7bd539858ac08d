//! How many files are ahead in a pipeline.
//!
//! A file that fails costs those behind it whose commands were sent: they are copied again. So the number is halved after each pipeline
//! that ends with a failure, and doubled after several times as many complete files.

/// Fewer are no pipeline.
const LEAST: usize = 2;

/// So many times the files ahead must be complete before their number is doubled: else a tenth of refused files would keep it high.
const TIMES: usize = 4;

/// The number of files ahead of a worker.
#[derive(Debug)]
pub(in super::super) struct Length {
    now: usize,
    /// The limit of the user, or of the servers.
    most: usize,
    /// Complete files since the number was changed.
    complete: usize,
}

impl Length {
    /// As many as the limit allows.
    pub(in super::super) fn new() -> Self {
        Self {
            now: usize::MAX,
            most: usize::MAX,
            complete: 0,
        }
    }

    /// The next pipeline has this limit.
    pub(super) fn limit(&mut self, most: usize) {
        self.most = most.max(LEAST);
        self.now = self.now.min(self.most);
    }

    pub(super) fn files(&self) -> usize {
        self.now
    }

    /// A file is complete.
    pub(super) fn succeeds(&mut self) {
        self.complete += 1;
        if self.complete >= TIMES.saturating_mul(self.now) {
            self.now = self.now.saturating_mul(2).min(self.most);
            self.complete = 0;
        }
    }

    /// A file has ended the pipeline.
    pub(super) fn fails(&mut self) {
        self.now = (self.now / 2).max(LEAST);
        self.complete = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_follows_failures_and_complete_files() {
        let mut length = Length::new();
        length.limit(32);
        assert_eq!(length.files(), 32);
        let after_failures = [0; 6].map(|_| {
            length.fails();
            length.files()
        });
        assert_eq!(after_failures, [16, 8, 4, 2, 2, 2]);
        for (files, expected) in [(7, 2), (1, 4), (15, 4), (1, 8), (200, 32)] {
            for _ in 0..files {
                length.succeeds();
            }
            assert_eq!(length.files(), expected);
        }
        length.fails();
        assert_eq!(length.files(), 16);
        for _ in 0..64 {
            length.succeeds();
        }
        assert_eq!(length.files(), 32);
        length.limit(10);
        assert_eq!(length.files(), 10);
    }

    /// The files that are copied again, if each `nth` file is refused when it is the oldest one.
    fn repeated(files: usize, nth: usize, most: usize) -> usize {
        let (mut length, mut place, mut repeated) = (Length::new(), 0, 0);
        length.limit(most);
        while place < files {
            place += 1;
            match place % nth {
                0 => {
                    repeated += length.files().min(files + 1 - place) - 1;
                    length.fails();
                }
                _ => length.succeeds(),
            }
        }
        repeated
    }

    #[test]
    fn few_files_are_copied_again_where_a_tenth_is_refused() {
        // With 32 files always ahead: about 3,000.
        assert!(repeated(1000, 10, 32) < 400);
        // One of 100 is no reason to wait for each file.
        assert!(repeated(1000, 100, 32) > 200);
    }
}
