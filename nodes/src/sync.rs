//! Locks.

use std::sync::{LockResult, Mutex, MutexGuard, PoisonError};

/// Locks a mutex, also after a panic of another thread: what these locks protect is valid after every statement.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    ignore_poison(mutex.lock())
}

/// As [`lock`], for the result of a wait.
pub(crate) fn ignore_poison<T>(result: LockResult<T>) -> T {
    result.unwrap_or_else(PoisonError::into_inner)
}
