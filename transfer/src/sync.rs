//! Locks, and the primitives that the model checker replaces.
//!
//! Built with `--cfg loom`, the dispenser and the ledger run on loom's primitives and their tests try
//! every interleaving.

use std::sync::{LockResult, Mutex, MutexGuard, PoisonError};

#[cfg(loom)]
pub(crate) use loom::sync::{Mutex as CheckedMutex, atomic::AtomicU64};
#[cfg(not(loom))]
pub(crate) use std::sync::{Mutex as CheckedMutex, atomic::AtomicU64};

/// Locks a mutex, poisoned or not; see [`ignore_poison`].
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    ignore_poison(mutex.lock())
}

/// The result of locking a mutex or of waiting on a condition variable, also after another thread has
/// panicked: the data behind the locks of this crate is valid after every statement, and the panic is
/// reported by the transfer in which it occurred.
pub(crate) fn ignore_poison<T>(result: LockResult<T>) -> T {
    result.unwrap_or_else(PoisonError::into_inner)
}
