//! Limits the threads that compute checksums.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The threads that checksum computations may use beside those of their callers. All computations have equal shares.
///
/// A computation that finds no free thread continues without it. When another computation begins, shares become smaller,
/// and each computation returns its excess threads between two pieces of its file.
#[derive(Debug)]
pub(super) struct SpareThreads {
    total: usize,
    use_now: Mutex<Use>,
}

#[derive(Debug, Default)]
struct Use {
    lent: usize,
    computations: usize,
}

/// A computation that borrows threads.
#[derive(Debug)]
pub(super) struct Borrower<'a> {
    owner: &'a SpareThreads,
    held: Mutex<usize>,
}

/// A borrowed thread. It is returned when this is dropped.
#[derive(Debug)]
pub(super) struct Lent<'a> {
    borrower: &'a Borrower<'a>,
}

impl SpareThreads {
    pub(super) fn new(total: usize) -> Self {
        Self {
            total,
            use_now: Mutex::default(),
        }
    }

    pub(super) fn borrower(&self) -> Borrower<'_> {
        locked(&self.use_now).computations += 1;
        Borrower {
            owner: self,
            held: Mutex::new(0),
        }
    }
}

impl Borrower<'_> {
    /// Borrows a thread, if one is free and the computation has less than its share.
    pub(super) fn borrow(&self) -> Option<Lent<'_>> {
        let mut held = locked(&self.held);
        let mut use_now = locked(&self.owner.use_now);
        let share = self.owner.total.div_ceil(use_now.computations.max(1));
        if use_now.lent >= self.owner.total || *held >= share {
            return None;
        }
        use_now.lent += 1;
        *held += 1;
        Some(Lent { borrower: self })
    }
}

impl Drop for Borrower<'_> {
    fn drop(&mut self) {
        locked(&self.owner.use_now).computations -= 1;
    }
}

impl Lent<'_> {
    /// Returns the thread if its borrower has more than its share. The thread must end if this is `None`.
    pub(super) fn keep(self) -> Option<Self> {
        let owner = self.borrower.owner;
        let share = owner
            .total
            .div_ceil(locked(&owner.use_now).computations.max(1));
        // The lock is released at the end of the statement: dropping `self` takes it again.
        let too_many = *locked(&self.borrower.held) > share;
        (!too_many).then_some(self)
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        *locked(&self.borrower.held) -= 1;
        locked(&self.borrower.owner.use_now).lent -= 1;
    }
}

/// Locks data that is consistent whenever its lock is released, so that poisoning is harmless.
pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_never_exceeded() {
        let threads = SpareThreads::new(3);
        let only = threads.borrower();
        let lent: Vec<_> = std::iter::from_fn(|| only.borrow()).collect();
        assert_eq!(lent.len(), 3);
        let second = threads.borrower();
        assert!(second.borrow().is_none());
        drop(lent);
        let lent: Vec<_> = std::iter::from_fn(|| second.borrow()).collect();
        assert_eq!(lent.len(), 2);
    }

    #[test]
    fn excess_threads_are_returned_between_two_pieces() {
        let threads = SpareThreads::new(4);
        let first = threads.borrower();
        let lent: Vec<_> = std::iter::from_fn(|| first.borrow()).collect();
        assert_eq!(lent.len(), 4);
        let lent: Vec<_> = lent.into_iter().filter_map(Lent::keep).collect();
        assert_eq!(lent.len(), 4, "no other computation runs");
        let second = threads.borrower();
        let lent: Vec<_> = lent.into_iter().filter_map(Lent::keep).collect();
        assert_eq!(lent.len(), 2);
        let seconds: Vec<_> = std::iter::from_fn(|| second.borrow()).collect();
        assert_eq!(seconds.len(), 2);
        drop(seconds);
        drop(second);
        assert!(first.borrow().is_some(), "free threads are lent again");
    }
}
