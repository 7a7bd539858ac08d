//! The rings of all channels of the process, and the queue of channels that wait for memory.
//!
//! Mappings that come back are kept for the next channels ([`IdleMappings`]). They count against the
//! bound. They are cleared before a channel gets them, for writing and for reading alike: a peer that
//! may only write to a ring can still announce bytes that it never wrote, and the channel would
//! deliver the data of another session. Registrations do not outlive their channel: otherwise the
//! key of one peer would give access to the ring of another.

mod share;

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use gridhaul_stack::Operation;

pub(crate) use self::share::{Part, Share};
use super::bounds::{Bounds, Holder, Narrowest};
use super::idle::IdleMappings;
use super::lengths::Lengths;
use super::limits;
use super::pages::page_bytes;
use super::recycled::Used;

/// The memory of all rings.
#[derive(Debug)]
pub(crate) struct Pool {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    bounds: Bounds,
    idle: IdleMappings,
    /// A thread unmaps idle mappings when their time is over.
    has_thread: bool,
    waiting: VecDeque<Arc<Waiter>>,
}

/// A thread in the queue.
#[derive(Debug)]
struct Waiter {
    holder: Holder,
    wanted: Lengths,
    /// The granted rings; set under the lock.
    granted: OnceLock<Lengths>,
    /// Idle mappings that make room for them. The waiting thread unmaps them, and not the one that gave back memory, which has other
    /// channels to serve. Set before `granted`.
    evicted: Mutex<Vec<Used>>,
    thread: Thread,
}

impl Waiter {
    /// The granted rings, if there are any. Their memory is free when this returns.
    fn take(&self) -> Option<Lengths> {
        let granted = self.granted.get().copied()?;
        let mut evicted = self.evicted.lock().unwrap_or_else(PoisonError::into_inner);
        evicted.clear();
        Some(granted)
    }
}

/// How often a waiting thread checks whether its operation was cancelled.
const CANCEL_CHECK: Duration = Duration::from_millis(25);

/// Why a channel gets no rings.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PoolError {
    #[error("cancelled while waiting for memory")]
    Cancelled,
    #[error("no memory became free in time: {0}")]
    Waited(Narrowest),
    #[error("no ring fits the bound: {0}")]
    Bound(Narrowest),
}

/// The memory of the rings of the process, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryLoad {
    /// The rings of channels.
    pub used_bytes: u64,
    /// Those of them that are pinned for a device.
    pub pinned_bytes: u64,
    /// Kept for the next channels.
    pub idle_bytes: u64,
    /// The bound of all of this.
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
            idle: IdleMappings::default(),
            has_thread: false,
            waiting: VecDeque::new(),
        };
        Arc::new(Self {
            state: Mutex::new(state),
        })
    }

    /// The pool of the process.
    pub(crate) fn of_process() -> &'static Arc<Self> {
        static POOL: LazyLock<Arc<Pool>> =
            LazyLock::new(|| Pool::new(limits::default_bytes(), limits::pinned_bytes()));
        &POOL
    }

    /// Changes the bound on all rings.
    pub(crate) fn set_limit(&self, bytes: u64) {
        let mut state = self.lock();
        state.bounds.set_memory(bytes);
        state.evict();
        state.serve();
    }

    /// The memory in use, and its bound.
    pub(crate) fn load(&self) -> MemoryLoad {
        let state = self.lock();
        MemoryLoad {
            used_bytes: state.bounds.memory().taken(),
            pinned_bytes: state.bounds.pinned().taken(),
            idle_bytes: state.idle.bytes(),
            limit_bytes: state.bounds.memory().limit(),
            channels: state.bounds.memory().holders(),
            waiting: state.waiting.len(),
        }
    }

    /// The length of rings that many holders of a kind can all have, so that channels that need no
    /// longer ones are treated equally in any order.
    pub(crate) fn common_ring_bytes(&self, pins: bool) -> u64 {
        let state = self.lock();
        let bytes = state.bounds.common_ring_bytes(pins);
        bytes - bytes % page_bytes()
    }

    /// The bound on all rings of holders of a kind.
    pub(crate) fn limit(&self, pins: bool) -> u64 {
        let state = self.lock();
        let memory = state.bounds.memory().limit();
        match pins {
            true => memory.min(state.bounds.pinned().limit()),
            false => memory,
        }
    }

    /// Reserves memory for two rings, or for shorter ones if less is free. Waits in
    /// the order of requests while no memory is free, for at most three quarters of the operation's
    /// remaining time, so that this end can still send the reason to the other.
    ///
    /// # Errors
    ///
    /// When the operation was cancelled, no memory became free in time, or no ring fits the bound.
    pub(crate) fn take(
        self: &Arc<Self>,
        holder: Holder,
        wanted: Lengths,
        operation: &Operation<'_>,
    ) -> Result<Share, PoolError> {
        let mut state = self.lock();
        if !state.can_ever(holder, wanted) {
            return Err(PoolError::Bound(state.bounds.narrowest(holder)));
        }
        let is_first = state.waiting.iter().all(|other| other.holder != holder);
        if is_first && let Some(granted) = state.grant(holder, wanted) {
            return Ok(self.share(holder, granted));
        }
        let waiter = Arc::new(Waiter {
            holder,
            wanted,
            granted: OnceLock::new(),
            evicted: Mutex::default(),
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
        let timeout = operation.remaining().map(|left| left - left / 4);
        let end = timeout.map(|timeout| Instant::now() + timeout);
        loop {
            if let Some(granted) = waiter.take() {
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

    /// Leaves the queue, and gives back rings that were granted meanwhile.
    fn leave(self: &Arc<Self>, waiter: &Arc<Waiter>) {
        let mut state = self.lock();
        state.waiting.retain(|other| !Arc::ptr_eq(other, waiter));
        drop(state);
        let granted = waiter.take();
        drop(granted.map(|granted| self.share(waiter.holder, granted)));
    }

    fn share(self: &Arc<Self>, holder: Holder, rings: Lengths) -> Share {
        Share {
            pool: Arc::clone(self),
            holder,
            pins: AtomicU64::new(holder.pins),
            stays_pinned: AtomicBool::new(false),
            rings,
            extra_bytes: 0,
            mapped_bytes: None,
        }
    }

    /// Keeps a mapping for the next channel. Returns it if a quarter of the bound would be idle otherwise.
    pub(super) fn keep(self: &Arc<Self>, pages: Used) -> Result<(), Used> {
        let mut state = self.lock();
        let most = state.bounds.memory().limit() / 4;
        if state.idle.bytes() + pages.length() as u64 > most {
            return Err(pages);
        }
        state.idle.add(pages);
        if !state.has_thread {
            let pool = Arc::clone(self);
            let background = thread::Builder::new().name("rdma-memory".to_owned());
            match background.spawn(move || pool.expire_idle()) {
                Ok(_) => state.has_thread = true,
                // Without the thread they would never be unmapped.
                Err(_) => state.idle.evict(0),
            }
        }
        Ok(())
    }

    /// Unmaps idle mappings when their time is over, until none is left.
    fn expire_idle(&self) {
        loop {
            let mut state = self.lock();
            let Some(next) = state.idle.expire(Instant::now()) else {
                state.has_thread = false;
                return;
            };
            drop(state);
            thread::sleep(next);
        }
    }

    fn lock(&self) -> Locked<'_> {
        Locked {
            // The state is valid after every statement.
            state: self.state.lock().unwrap_or_else(PoisonError::into_inner),
            evicted: Vec::new(),
        }
    }
}

/// The locked state. Evicted mappings are unmapped after it is unlocked, so that other channels do not wait.
#[derive(Debug)]
struct Locked<'a> {
    /// Fields are dropped in this order.
    state: MutexGuard<'a, State>,
    evicted: Vec<Used>,
}

impl Deref for Locked<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.evicted = self.state.idle.take_evicted();
    }
}

impl State {
    /// Whether a holder alone could have rings.
    fn can_ever(&self, holder: Holder, wanted: Lengths) -> bool {
        self.bounds
            .emptied()
            .offer(holder, wanted, page_bytes())
            .is_some()
    }

    /// Reserves the longest rings that the bounds allow.
    fn grant(&mut self, holder: Holder, wanted: Lengths) -> Option<Lengths> {
        let granted = self.bounds.offer(holder, wanted, page_bytes())?;
        self.bounds.take(holder, granted.bytes(page_bytes()));
        self.evict();
        Some(granted)
    }

    /// Grants rings in the order of requests. A waiter that cannot have any blocks only later ones of
    /// the same kind.
    fn serve(&mut self) {
        let mut blocked: Vec<Holder> = Vec::new();
        for waiter in std::mem::take(&mut self.waiting) {
            let granted = if blocked.contains(&waiter.holder) {
                None
            } else {
                self.grant(waiter.holder, waiter.wanted)
            };
            match granted {
                Some(granted) => {
                    let mut evicted = waiter
                        .evicted
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner);
                    evicted.extend(self.idle.take_evicted());
                    drop(evicted);
                    // Only this sets it, and a waiter leaves the queue with it.
                    let _ = waiter.granted.set(granted);
                    waiter.thread.unpark();
                }
                None => {
                    blocked.push(waiter.holder);
                    self.waiting.push_back(waiter);
                }
            }
        }
    }

    /// Gives up idle mappings until the bound holds.
    fn evict(&mut self) {
        let memory = self.bounds.memory();
        let room = memory.limit().saturating_sub(memory.taken());
        self.idle.evict(room);
    }
}

#[cfg(test)]
mod tests;
