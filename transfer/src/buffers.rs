//! Memory for workers, with a hard limit.
//!
//! Buffers are mapped pages, not heap memory: unmapping returns them to the system at once, so that the
//! process is as small after a busy hour as before it.

use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

use gridhaul_shares::{Allocation, Grant, Load, Pool, Source};
use gridhaul_stack::{Cancel, ChannelError};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use crate::error::TransferError;
use crate::sync::lock;

/// Buffers of one size, never more than a fixed number of them.
#[derive(Debug)]
pub(crate) struct BufferPool {
    buffer_bytes: usize,
    /// One unit for each buffer.
    shares: Pool,
    idle: Mutex<Vec<Pages>>,
}

/// How many unused buffers stay mapped for the next transfer.
const KEPT_IDLE: usize = 4;

impl BufferPool {
    /// A pool whose buffers together take at most `total_bytes`, but at least one buffer.
    pub(crate) fn new(buffer_bytes: usize, total_bytes: usize) -> Arc<Self> {
        Arc::new(Self {
            buffer_bytes,
            shares: Pool::new((total_bytes / buffer_bytes).max(1)),
            idle: Mutex::default(),
        })
    }

    /// The size of each buffer.
    pub(crate) fn buffer_bytes(&self) -> usize {
        self.buffer_bytes
    }

    /// The buffers in use, their limit, and the channels that wait for one.
    pub(crate) fn load(&self) -> Load {
        self.shares.load()
    }

    /// Takes a buffer; waits while all are in use, or the client has its share.
    pub(crate) fn take(
        self: &Arc<Self>,
        source: &Source,
        cancel: &Cancel,
    ) -> Result<Buffer, TransferError> {
        let share = match self.shares.take(source, 1) {
            Allocation::Granted(share) => share,
            Allocation::Queued(waiting) => waiting
                .wait(None, || cancel.is_cancelled())
                .map_err(|_| ChannelError::Cancelled)?,
        };
        self.lend(share)
            .map_err(|error| TransferError::Local(format!("no memory for a buffer: {error}")))
    }

    /// Takes a buffer for optional use: only if no worker waits for one and less than half of all are in use. Never
    /// waits.
    pub(crate) fn take_spare(self: &Arc<Self>, source: &Source) -> Option<Buffer> {
        self.lend(self.shares.try_take_spare(source, 1)?).ok()
    }

    fn lend(self: &Arc<Self>, share: Grant) -> io::Result<Buffer> {
        let idle = lock(&self.idle).pop();
        let pages = match idle {
            Some(pages) => pages,
            None => Pages::map(self.buffer_bytes)?,
        };
        Ok(Buffer {
            pages: Some(pages),
            pool: self.clone(),
            _share: share,
        })
    }
}

/// The content of an unused buffer in debug builds.
const STALE: u8 = 0xdb;

/// A buffer in use; returns to its pool when it is dropped. It is not cleared: at first it may hold data of another session.
///
/// Therefore bytes leave a buffer only up to the count that a read or receive has placed there or that this program has written,
/// never up to a length that the peer sent. Drivers that use one as scratch memory observe the same rule. In debug builds a
/// returned buffer is filled with [`STALE`], so that every test that compares contents detects a violation.
#[derive(Debug)]
pub(crate) struct Buffer {
    /// `None` only while it is dropped.
    pages: Option<Pages>,
    pool: Arc<BufferPool>,
    /// Dropped after the pages are kept or unmapped, so that the mapped pages never exceed the limit.
    _share: Grant,
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if cfg!(debug_assertions) {
            self.fill(STALE);
        }
        let mut idle = lock(&self.pool.idle);
        if idle.len() < KEPT_IDLE {
            idle.extend(self.pages.take());
        }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.pages.as_ref().map_or(&[], Pages::bytes)
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.pages.as_mut().map_or(&mut [], Pages::bytes_mut)
    }
}

/// An anonymous private mapping.
#[derive(Debug)]
struct Pages {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the mapping is owned by this value alone, like the allocation of a Box.
unsafe impl Send for Pages {}

impl Pages {
    fn map(length: usize) -> io::Result<Self> {
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing else.
        let start = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                length,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        }?;
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, length })
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping is `length` bytes long, readable, zero-filled by the kernel, and lives
        // as long as `self`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and `&mut self` makes this the only reference.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `map` and no slice of it outlives `self`. Unmapping a whole mapping
        // cannot fail; if it did, the pages would stay mapped and unused.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.length) };
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn client(host: u8) -> Source {
        Source::at([192, 0, 2, host].into()).with_account(host.to_string())
    }

    #[test]
    fn the_limit_holds_and_waiters_get_what_comes_back() {
        let pool = BufferPool::new(4096, 8192);
        let cancel = Cancel::new();
        let first = pool.take(&client(1), &cancel).expect("within the limit");
        let _second = pool.take(&client(2), &cancel).expect("within the limit");
        let waiter = thread::spawn({
            let pool = pool.clone();
            move || {
                pool.take(&client(3), &Cancel::new())
                    .map(|buffer| buffer.len())
            }
        });
        while pool.shares.load().waiting == 0 {
            thread::yield_now();
        }
        drop(first);
        assert_eq!(waiter.join().expect("no panic").expect("a buffer"), 4096);
    }

    #[test]
    fn spare_buffers_are_half_of_all() {
        let pool = BufferPool::new(4096, 4 * 4096);
        let spare = [pool.take_spare(&client(7)), pool.take_spare(&client(8))];
        assert!(spare.iter().all(Option::is_some));
        assert!(pool.take_spare(&client(9)).is_none());
        let _needed = pool
            .take(&client(4), &Cancel::new())
            .expect("within the limit");
        drop(spare);
        assert!(pool.take_spare(&client(9)).is_some());
    }

    /// Without this, tests that transfer the same content twice would not detect stale bytes.
    #[test]
    fn returned_buffers_are_overwritten_in_debug_builds() {
        let pool = BufferPool::new(4096, 4096);
        let cancel = Cancel::new();
        pool.take(&client(5), &cancel).expect("a buffer").fill(1);
        let again = pool.take(&client(6), &cancel).expect("a buffer");
        if cfg!(debug_assertions) {
            assert!(again.iter().all(|byte| *byte == STALE));
        }
    }

    #[test]
    fn buffers_of_one_client_leave_room_for_others() {
        let pool = BufferPool::new(4096, 8 * 4096);
        let cancel = Cancel::new();
        let held: Vec<_> = (0..6).map(|_| pool.take(&client(1), &cancel)).collect();
        assert!(held.iter().all(Result::is_ok));
        let late = Cancel::new();
        late.cancel();
        assert!(pool.take(&client(1), &late).is_err(), "it has its share");
        assert!(pool.take(&client(2), &cancel).is_ok());
    }

    #[test]
    fn a_cancelled_waiter_leaves_the_queue() {
        let pool = BufferPool::new(4096, 4096);
        let held = pool
            .take(&client(7), &Cancel::new())
            .expect("within the limit");
        let cancel = Cancel::new();
        cancel.cancel();
        assert!(matches!(
            pool.take(&client(8), &cancel),
            Err(TransferError::Channel(ChannelError::Cancelled))
        ));
        drop(held);
        assert_eq!(
            pool.take(&client(9), &Cancel::new())
                .expect("the queue is empty")
                .len(),
            4096
        );
    }
}
