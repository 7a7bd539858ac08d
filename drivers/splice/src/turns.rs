//! Turns at writing to one file.
//!
//! The kernel lets one thread write to a file at a time, and the others spin for the lock of its inode: with four
//! channels they burned a quarter of a receiver's processor time on a file in memory. So those who write to the same
//! file wait here, asleep. A wait here takes no longer than one in the kernel would.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Files that never wait for each other. All channels of a transfer write to one descriptor, and descriptors are
/// small numbers.
const PLACES: usize = 1024;

static TURNS: [Mutex<()>; PLACES] = [const { Mutex::new(()) }; PLACES];

/// The right to write to a file, until it is dropped.
pub(crate) fn turn(file: BorrowedFd<'_>) -> MutexGuard<'static, ()> {
    let place = file.as_raw_fd().unsigned_abs() as usize % PLACES;
    TURNS[place].lock().unwrap_or_else(PoisonError::into_inner)
}
