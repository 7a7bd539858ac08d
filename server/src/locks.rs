//! Locks whose data is valid whenever they are released.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, poisoned or not: every change under the locks of this program is complete before the lock is released, so a panic
/// elsewhere leaves no partial state.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
