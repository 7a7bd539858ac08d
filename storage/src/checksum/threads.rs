//! How many threads compute checksums.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Threads that a checksum may use beside the one that it was asked on, shared by all checksums. Nobody
/// waits for them: who comes when all are at work does without.
#[derive(Debug)]
pub(super) struct SpareThreads {
    spare: AtomicUsize,
}

/// Some of them; they go back when this is dropped.
#[derive(Debug)]
pub(super) struct Lent<'a> {
    owner: &'a SpareThreads,
    count: usize,
}

impl SpareThreads {
    pub(super) fn new(count: usize) -> Self {
        Self {
            spare: AtomicUsize::new(count),
        }
    }

    /// Takes as many as there are, and not more than `wanted`.
    pub(super) fn take(&self, wanted: usize) -> Lent<'_> {
        let before = self
            .spare
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |spare| {
                Some(spare - spare.min(wanted))
            })
            .unwrap_or(0);
        Lent {
            owner: self,
            count: before.min(wanted),
        }
    }
}

impl Lent<'_> {
    pub(super) fn count(&self) -> usize {
        self.count
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        self.owner.spare.fetch_add(self.count, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_never_more_than_there_are() {
        let threads = SpareThreads::new(3);
        let first = threads.take(2);
        let second = threads.take(2);
        assert_eq!((first.count(), second.count()), (2, 1));
        assert_eq!(threads.take(1).count(), 0);
        drop(first);
        assert_eq!(threads.take(5).count(), 2);
    }
}
