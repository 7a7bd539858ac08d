//! The counters of the front process for the page of metrics, in memory that it shares with the serving process. A
//! compromised front process can falsify these numbers, and nothing else.

use std::io;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

/// A counter that both processes see.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add_one(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn set(&self, value: usize) {
        self.0.store(value as u64, Ordering::Relaxed);
    }

    pub(crate) fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// All counters. Zeros are valid.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Counts {
    /// Present connections, including those of clients that are being served.
    pub(crate) open: Counter,
    /// Present connections before login.
    pub(crate) before_login: Counter,
    pub(crate) sessions: Counter,
    pub(crate) connections_refused: Counter,
    /// By mechanism (GSSAPI, TLS, other) and result (success, failure).
    pub(crate) authentications: [[Counter; 2]; 3],
    pub(crate) logins_failed: Counter,
    pub(crate) commands_refused: Counter,
}

impl Counts {
    /// The number of refused connections, handshakes, logins and commands.
    pub(crate) fn refusals(&self) -> u64 {
        let handshakes = self.authentications.iter().map(|[_, failed]| failed);
        let others = [
            &self.connections_refused,
            &self.logins_failed,
            &self.commands_refused,
        ];
        handshakes.chain(others).map(Counter::value).sum()
    }
}

/// The counters of a front process. The memory is never unmapped.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FrontCounts(NonNull<Counts>);

// SAFETY: it points to atomics that are never unmapped.
unsafe impl Send for FrontCounts {}
// SAFETY: as above; atomics may be used by many threads.
unsafe impl Sync for FrontCounts {}

impl FrontCounts {
    /// Allocates counters that this process shares with the processes that it forks later.
    pub(crate) fn new() -> io::Result<Self> {
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing else.
        let start =
            unsafe { mmap_anonymous(std::ptr::null_mut(), size_of::<Counts>(), access, flags) }?;
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self(start))
    }
}

impl Deref for FrontCounts {
    type Target = Counts;

    fn deref(&self) -> &Counts {
        // SAFETY: the mapping is as long as `Counts`, aligned to a page, zeroed by the kernel, which is valid for
        // atomics, written through atomics only, and never unmapped.
        unsafe { self.0.as_ref() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_begin_with_zero_and_are_the_same_in_every_copy() {
        let counts = FrontCounts::new().expect("memory");
        let copy = counts;
        assert_eq!(copy.open.value(), 0);
        counts.open.set(3);
        counts.authentications[1][0].add_one();
        assert_eq!(
            (copy.open.value(), copy.authentications[1][0].value()),
            (3, 1)
        );
    }
}
