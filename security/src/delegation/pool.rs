//! A pool of RSA keys that are generated in advance.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use super::DelegationKeys;
use crate::key::{KeyError, PrivateKey};

/// A pool of RSA keys of 2048 bits. A thread replaces keys that are taken. If the pool is empty, [`take`] generates a key
/// itself. The thread ends after the pool is dropped, when its current key is finished.
///
/// [`take`]: DelegationKeys::take
#[derive(Debug)]
pub struct KeyPool {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    size: usize,
    keys: Mutex<Keys>,
    /// Signals that a key was taken or added, or that the pool was dropped.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Keys {
    ready: VecDeque<PrivateKey>,
    is_dropped: bool,
}

/// The lowest priority: filling the pool is not urgent, and transfers need the processor.
const LEAST_PRIORITY: i32 = 19;

impl KeyPool {
    /// Starts the thread that fills a pool of `size` keys.
    ///
    /// # Errors
    ///
    /// When the thread cannot be started.
    pub fn start(size: usize) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            size,
            keys: Mutex::default(),
            changed: Condvar::new(),
        });
        let filler = Arc::clone(&shared);
        thread::Builder::new()
            .name("delegation-keys".into())
            .spawn(move || filler.fill())?;
        Ok(Self { shared })
    }
}

impl DelegationKeys for KeyPool {
    fn take(&self) -> Result<PrivateKey, KeyError> {
        let key = self.shared.lock().ready.pop_front();
        self.shared.changed.notify_all();
        key.map_or_else(PrivateKey::generate_rsa, Ok)
    }
}

impl Drop for KeyPool {
    fn drop(&mut self) {
        self.shared.lock().is_dropped = true;
        self.shared.changed.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Keys> {
        // No operation under the lock can panic.
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fill(&self) {
        // Affects this thread only (nice(2), "C library/kernel differences").
        let _ = rustix::process::nice(LEAST_PRIORITY);
        loop {
            let keys = self
                .changed
                .wait_while(self.lock(), |keys| {
                    !keys.is_dropped && keys.ready.len() >= self.size
                })
                .unwrap_or_else(PoisonError::into_inner);
            if keys.is_dropped {
                return;
            }
            drop(keys);
            // A generator that fails once will fail again. `take` reports the error.
            let Ok(key) = PrivateKey::generate_rsa() else {
                return;
            };
            self.lock().ready.push_back(key);
            self.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait_for(pool: &KeyPool, count: usize) {
        let keys = pool
            .shared
            .changed
            .wait_while(pool.shared.lock(), |keys| keys.ready.len() < count)
            .expect("no panic");
        assert_eq!(keys.ready.len(), count);
    }

    #[test]
    fn a_key_is_given_once_and_replaced() {
        let pool = KeyPool::start(2).expect("a thread");
        wait_for(&pool, 2);
        let one = pool.take().expect("a key").public_key_info();
        let other = pool.take().expect("a key").public_key_info();
        assert_ne!(one, other);
        wait_for(&pool, 2);
    }

    #[test]
    fn an_empty_pool_makes_a_key_on_demand() {
        let pool = KeyPool::start(0).expect("a thread");
        pool.take().expect("a key");
    }

    #[test]
    fn the_thread_ends_with_the_pool() {
        let pool = KeyPool::start(1).expect("a thread");
        let shared = Arc::downgrade(&pool.shared);
        drop(pool);
        while shared.upgrade().is_some() {
            thread::yield_now();
        }
    }
}
