//! The rings of all channels of the process, and who waits for one.
//!
//! Mappings that come back are kept for a while: the next channel then finds its pages there. They count against
//! the bound, and go first when somebody needs the memory. They are cleared before the next channel gets them, for writing and
//! for reading alike: a peer that may only write to a ring can still announce bytes that it never wrote, and the channel would
//! deliver what another session had left there. Registrations do not outlive their channel, because a key that one peer was
//! told must not open what is another's.

use std::collections::VecDeque;
use std::io;
use std::num::{NonZeroU64, NonZeroUsize};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use gridhaul_stack::Operation;

use super::bounds::{Bounds, Holder, Narrowest};
use super::limits;
use super::recycled::{Cleared, Reclaim, Used};
use super::region::Memory;

/// The memory of all rings.
#[derive(Debug)]
pub(crate) struct Pool {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    bounds: Bounds,
    idle: Vec<Idle>,
    /// Somebody looks after the idle ones.
    is_driven: bool,
    waiting: VecDeque<Arc<Waiter>>,
}

/// A mapping that nobody uses.
#[derive(Debug)]
struct Idle {
    pages: Used,
    since: Instant,
}

/// Somebody in the queue.
#[derive(Debug)]
struct Waiter {
    holder: Holder,
    ring_bytes: u64,
    /// The length of the rings that are this waiter's; zero until then, and set under the lock.
    granted: AtomicU64,
    thread: Thread,
}

/// How long a mapping is kept for the next channel.
const KEPT_IDLE: Duration = Duration::from_secs(10);

/// How often somebody who waits looks whether the operation was cancelled.
const CANCEL_CHECK: Duration = Duration::from_millis(25);

/// Why a channel gets no rings.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PoolError {
    #[error("cancelled while waiting for memory")]
    Cancelled,
    #[error("waited in vain for memory: {0}")]
    Waited(Narrowest),
    #[error("no ring fits the bound: {0}")]
    Bound(Narrowest),
}

/// What the rings of the process take, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryLoad {
    /// The rings of channels.
    pub used_bytes: u64,
    /// Those of them that are pinned for a device.
    pub pinned_bytes: u64,
    /// Kept for the next channels.
    pub idle_bytes: u64,
    /// What all of this may take.
    pub limit_bytes: u64,
    /// Channels that have rings.
    pub channels: u64,
    /// Channels that wait for some.
    pub waiting: usize,
}

impl Pool {
    /// A pool with bounds in bytes: on all rings, and on those that a provider pins.
    pub(crate) fn new(memory: u64, pinned: u64) -> Arc<Self> {
        let state = State {
            bounds: Bounds::new(memory, pinned),
            idle: Vec::new(),
            is_driven: false,
            waiting: VecDeque::new(),
        };
        Arc::new(Self {
            state: Mutex::new(state),
        })
    }

    /// That of the process.
    pub(crate) fn of_process() -> &'static Arc<Self> {
        static POOL: LazyLock<Arc<Pool>> =
            LazyLock::new(|| Pool::new(limits::default_bytes(), limits::pinned_bytes()));
        &POOL
    }

    /// The bound on all rings, from now on.
    pub(crate) fn set_limit(&self, bytes: u64) {
        let mut state = self.lock();
        state.bounds.set_memory(bytes);
        state.evict();
        state.serve();
    }

    /// What is used, and what may be.
    pub(crate) fn load(&self) -> MemoryLoad {
        let state = self.lock();
        MemoryLoad {
            used_bytes: state.bounds.memory().taken(),
            pinned_bytes: state.bounds.pinned().taken(),
            idle_bytes: state.idle_bytes(),
            limit_bytes: state.bounds.memory().limit(),
            channels: state.bounds.memory().holders(),
            waiting: state.waiting.len(),
        }
    }

    /// The length of the rings that many holders of a kind can all have: those who need none that are longer are equal, whoever
    /// comes first.
    pub(crate) fn common_ring_bytes(&self, pins: bool) -> u64 {
        let state = self.lock();
        let bytes = state.bounds.common_ring_bytes(pins);
        bytes - bytes % page_bytes()
    }

    /// Room for two rings of `ring_bytes`, or of less if that is what there is. Waits in the order of asking while
    /// there is nothing; most of the time that the operation has, so that the other end can be told.
    ///
    /// # Errors
    ///
    /// When the operation was cancelled or its time is over, or no ring fits the bound.
    pub(crate) fn take(
        self: &Arc<Self>,
        holder: Holder,
        ring_bytes: NonZeroU64,
        operation: &Operation<'_>,
    ) -> Result<Share, PoolError> {
        let ring_bytes = ring_bytes.get();
        let mut state = self.lock();
        if !state.can_ever(holder, ring_bytes) {
            return Err(PoolError::Bound(state.bounds.narrowest(holder)));
        }
        let is_first = state.waiting.iter().all(|other| other.holder != holder);
        if is_first && let Some(granted) = state.grant(holder, ring_bytes) {
            return Ok(self.share(holder, granted));
        }
        let waiter = Arc::new(Waiter {
            holder,
            ring_bytes,
            granted: AtomicU64::new(0),
            thread: thread::current(),
        });
        state.waiting.push_back(Arc::clone(&waiter));
        drop(state);
        self.wait(&waiter, operation)
    }

    fn wait(
        self: &Arc<Self>,
        waiter: &Arc<Waiter>,
        operation: &Operation<'_>,
    ) -> Result<Share, PoolError> {
        let patience = operation.remaining().map(|left| left - left / 4);
        let end = patience.map(|patience| Instant::now() + patience);
        loop {
            if let Some(granted) = NonZeroU64::new(waiter.granted.load(Ordering::Acquire)) {
                return Ok(self.share(waiter.holder, granted));
            }
            if operation.cancel.is_cancelled() {
                self.leave(waiter);
                return Err(PoolError::Cancelled);
            }
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                let narrowest = self.lock().bounds.narrowest(waiter.holder);
                self.leave(waiter);
                return Err(PoolError::Waited(narrowest));
            }
            thread::park_timeout(left.map_or(CANCEL_CHECK, |left| left.min(CANCEL_CHECK)));
        }
    }

    /// Gives up a place in the queue, or what came at the last moment.
    fn leave(self: &Arc<Self>, waiter: &Arc<Waiter>) {
        let mut state = self.lock();
        state.waiting.retain(|other| !Arc::ptr_eq(other, waiter));
        let granted = NonZeroU64::new(waiter.granted.load(Ordering::Acquire));
        drop(state);
        drop(granted.map(|granted| self.share(waiter.holder, granted)));
    }

    fn share(self: &Arc<Self>, holder: Holder, ring_bytes: NonZeroU64) -> Share {
        Share {
            pool: Arc::clone(self),
            holder,
            ring_bytes,
            beside: 0,
        }
    }

    /// Keeps what a channel does not need any more, if there is not too much of it.
    pub(super) fn keep(self: &Arc<Self>, pages: Used) {
        let mut state = self.lock();
        let most = state.bounds.memory().limit() / 4;
        if state.idle_bytes() + pages.length() as u64 > most {
            return;
        }
        state.idle.push(Idle {
            pages,
            since: Instant::now(),
        });
        if !state.is_driven {
            let pool = Arc::clone(self);
            let background = thread::Builder::new().name("rdma-memory".to_owned());
            match background.spawn(move || pool.drive()) {
                Ok(_) => state.is_driven = true,
                // Nobody would let go of them.
                Err(_) => state.idle.clear(),
            }
        }
    }

    /// Lets go of mappings that nobody wanted for a while, until there are none.
    fn drive(&self) {
        loop {
            let mut state = self.lock();
            let Some(next) = state.forget_idle(Instant::now()) else {
                state.is_driven = false;
                return;
            };
            drop(state);
            thread::sleep(next);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // What it guards is valid after every statement.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Whether a holder alone could have a ring.
    fn can_ever(&self, holder: Holder, ring_bytes: u64) -> bool {
        self.bounds
            .emptied()
            .offer(holder, ring_bytes, page_bytes())
            .is_some()
    }

    /// Takes rings as large as there are.
    fn grant(&mut self, holder: Holder, ring_bytes: u64) -> Option<NonZeroU64> {
        let granted = self.bounds.offer(holder, ring_bytes, page_bytes())?;
        self.bounds.take(holder, both(granted));
        self.evict();
        NonZeroU64::new(granted)
    }

    /// Hands rings to those who have waited longest; who cannot have any holds back only those of the same kind.
    fn serve(&mut self) {
        let mut held_back: Vec<Holder> = Vec::new();
        for waiter in std::mem::take(&mut self.waiting) {
            let granted = if held_back.contains(&waiter.holder) {
                None
            } else {
                self.grant(waiter.holder, waiter.ring_bytes)
            };
            match granted {
                Some(granted) => {
                    waiter.granted.store(granted.get(), Ordering::Release);
                    waiter.thread.unpark();
                }
                None => {
                    held_back.push(waiter.holder);
                    self.waiting.push_back(waiter);
                }
            }
        }
    }

    /// Lets go of idle mappings, the oldest first, until the bound holds.
    fn evict(&mut self) {
        let memory = self.bounds.memory();
        let room = memory.limit().saturating_sub(memory.taken());
        while self.idle_bytes() > room {
            self.idle.remove(0);
        }
    }

    /// Lets go of what has been idle for long; says when to look again, if anything is left.
    fn forget_idle(&mut self, now: Instant) -> Option<Duration> {
        let age = |idle: &Idle| now.saturating_duration_since(idle.since);
        self.idle.retain(|idle| age(idle) < KEPT_IDLE);
        self.idle.first().map(|oldest| KEPT_IDLE - age(oldest))
    }

    fn idle_bytes(&self) -> u64 {
        self.idle
            .iter()
            .map(|idle| idle.pages.length() as u64)
            .sum()
    }
}

/// A channel's part of the pool, as long as it or memory from it lives.
#[derive(Debug)]
pub(crate) struct Share {
    pool: Arc<Pool>,
    holder: Holder,
    /// The length of each of two rings.
    ring_bytes: NonZeroU64,
    /// What the channel has beside them, in bytes.
    beside: u64,
}

impl Share {
    /// The length that each of the two rings may have.
    pub(crate) fn ring_bytes(&self) -> NonZeroU64 {
        self.ring_bytes
    }

    /// Gives back what rings of this length do not need.
    pub(crate) fn shrink(&mut self, ring_bytes: NonZeroU64) {
        if ring_bytes < self.ring_bytes {
            let spare = both(self.ring_bytes.get()) - both(ring_bytes.get());
            self.ring_bytes = ring_bytes;
            let mut state = self.pool.lock();
            state.bounds.shrink(self.holder, spare);
            state.serve();
        }
    }

    /// Counts so many bytes that the channel has beside its rings, instead of what it had there before; `false` if there is
    /// no room for more.
    pub(crate) fn set_beside(&mut self, bytes: u64) -> bool {
        let mut state = self.pool.lock();
        if bytes > self.beside {
            if !state.bounds.grow(self.holder, bytes - self.beside) {
                return false;
            }
            state.evict();
        } else if bytes < self.beside {
            state.bounds.shrink(self.holder, self.beside - bytes);
            state.serve();
        }
        self.beside = bytes;
        true
    }

    /// Memory to send from and memory to receive in, all of it zeros. Both are as long as the rings may
    /// be, but for the first where `elsewhere` bytes are pinned in other places as long as it lives.
    ///
    /// # Errors
    ///
    /// The kernel's: there is no memory.
    pub(crate) fn map(self, elsewhere: usize) -> io::Result<[Arc<Memory>; 2]> {
        let ring_bytes = self.ring_bytes.get();
        let share = Arc::new(self);
        let memory = |bytes| -> io::Result<Arc<Memory>> {
            let pages = share.pages(bytes)?;
            Ok(Arc::new(Memory::shared(pages, Arc::<Self>::clone(&share))))
        };
        let here = ring_bytes.saturating_sub(elsewhere as u64);
        Ok([memory(here)?, memory(ring_bytes)?])
    }

    fn pages(&self, bytes: u64) -> io::Result<Cleared> {
        let length = whole_pages(bytes);
        let mut state = self.pool.lock();
        let fits = |idle: &Idle| idle.pages.length() as u64 == length;
        // The one that was used last is the warmest.
        let found = state.idle.iter().rposition(fits);
        let found = found.map(|found| state.idle.remove(found));
        drop(state);
        if let Some(Idle { pages, .. }) = found {
            // Not when they came back: those that nobody wants in time need not be cleared.
            return Ok(pages.clear());
        }
        let length = usize::try_from(length).ok().and_then(NonZeroUsize::new);
        Cleared::map(length.ok_or(io::ErrorKind::OutOfMemory)?)
    }
}

/// Pages that came from [`Share::pages`].
impl Reclaim for Share {
    fn reclaim(&self, pages: Used) {
        self.pool.keep(pages);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut state = self.pool.lock();
        let bytes = both(self.ring_bytes.get()) + self.beside;
        state.bounds.give_back(self.holder, bytes);
        // The bound may be lower than when this was taken.
        state.evict();
        state.serve();
    }
}

/// What two rings take.
fn both(ring_bytes: u64) -> u64 {
    2 * whole_pages(ring_bytes)
}

fn whole_pages(bytes: u64) -> u64 {
    bytes.next_multiple_of(page_bytes())
}

fn page_bytes() -> u64 {
    rustix::param::page_size() as u64
}

#[cfg(test)]
mod tests;
