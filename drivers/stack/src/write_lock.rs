//! A lock for writing to a file.
//!
//! The kernel lets one thread write to a file at a time, and other threads spin on the lock of its inode: with four
//! channels they used a quarter of a receiver's CPU time on a file in memory. Threads that write to the same file
//! therefore sleep on this lock first, for no longer than they would have spun in the kernel.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Held while writing to a file.
#[derive(Debug)]
#[must_use = "dropping it releases the lock"]
pub struct WriteLock {
    _held: MutexGuard<'static, ()>,
}

/// The number of locks. All channels of a transfer write to one descriptor, and descriptors are small numbers, so
/// different files rarely share a lock.
const LOCKS: usize = 1024;

static LOCK_TABLE: [Mutex<()>; LOCKS] = [const { Mutex::new(()) }; LOCKS];

impl WriteLock {
    /// Acquires the lock for `file`. Hold it for one system call: the holder must not wait for a peer or for another
    /// lock.
    pub fn acquire(file: BorrowedFd<'_>) -> Self {
        let index = file.as_raw_fd().unsigned_abs() as usize % LOCKS;
        Self {
            _held: LOCK_TABLE[index]
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use super::*;

    #[test]
    fn one_thread_at_a_time_holds_the_lock() {
        let file = tempfile::tempfile().expect("a temporary file");
        let holders = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        let _lock = WriteLock::acquire(file.as_fd());
                        assert_eq!(holders.fetch_add(1, Ordering::Relaxed), 0);
                        thread::yield_now();
                        holders.fetch_sub(1, Ordering::Relaxed);
                    }
                });
            }
        });
    }
}
