//! Locks, and the primitives that the model checker replaces.
//!
//! Built with `--cfg loom`, the dispenser and the ledger run on loom's primitives and their tests try
//! every interleaving.

use std::sync::{Mutex, MutexGuard, PoisonError};

#[cfg(loom)]
pub(crate) use loom::sync::{Mutex as CheckedMutex, atomic::AtomicU64};
#[cfg(not(loom))]
pub(crate) use std::sync::{Mutex as CheckedMutex, atomic::AtomicU64};

/// Locks, also after another worker has panicked: what the locks of a transfer guard is valid after
/// every statement, and the panic is reported by the transfer that it happened in.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
