//! Turns at writing to one file.
//!
//! The kernel lets one thread write to a file at a time, and the others spin for the lock of its inode: with four
//! channels they burned a quarter of a receiver's processor time on a file in memory. So those who write to the same
//! file wait here, asleep. A wait here takes no longer than one in the kernel would.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The right to write to a file, until it is dropped.
#[derive(Debug)]
#[must_use = "the turn ends when it is dropped"]
pub struct Turn {
    _held: MutexGuard<'static, ()>,
}

/// Files that never wait for each other. All channels of a transfer write to one descriptor, and descriptors are
/// small numbers.
const PLACES: usize = 1024;

static TURNS: [Mutex<()>; PLACES] = [const { Mutex::new(()) }; PLACES];

impl Turn {
    /// Waits for a turn at writing to `file`. It is for one system call: its holder must not wait for a peer or for
    /// another turn.
    pub fn take(file: BorrowedFd<'_>) -> Self {
        let place = file.as_raw_fd().unsigned_abs() as usize % PLACES;
        Self {
            _held: TURNS[place].lock().unwrap_or_else(PoisonError::into_inner),
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
    fn one_at_a_time_has_the_turn() {
        let file = tempfile::tempfile().expect("a temporary file");
        let holders = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        let _turn = Turn::take(file.as_fd());
                        assert_eq!(holders.fetch_add(1, Ordering::Relaxed), 0);
                        thread::yield_now();
                        holders.fetch_sub(1, Ordering::Relaxed);
                    }
                });
            }
        });
    }
}
