//! What a channel has of the pool: a share, and its parts, one for each ring.

use std::io;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::Pool;
use crate::memory::bounds::Holder;
use crate::memory::lengths::Lengths;
use crate::memory::pages::{page_bytes, whole_pages};
use crate::memory::recycled::{Cleared, Reclaim, Used};
use crate::memory::region::Memory;
use crate::memory::release::after_release;

/// A channel's part of the pool. It is released when the share and the memory from it are dropped.
#[derive(Debug)]
pub(crate) struct Share {
    pub(super) pool: Arc<Pool>,
    pub(super) holder: Holder,
    /// The devices that still pin it, changed under the pool's lock.
    pub(super) pins: AtomicU64,
    /// A device that was to deregister memory has not.
    pub(super) stays_pinned: AtomicBool,
    pub(super) rings: Lengths,
    /// Further memory of the channel, in bytes.
    pub(super) extra_bytes: u64,
    /// The memory of its [`Part`]s in bytes, changed under the pool's lock. They have taken the place of
    /// `rings`. `None` before the rings are mapped.
    pub(super) mapped_bytes: Option<AtomicU64>,
}

impl Share {
    /// The lengths that the two rings may have.
    pub(crate) fn rings(&self) -> Lengths {
        self.rings
    }

    fn holder(&self) -> Holder {
        Holder {
            pins: self.pins.load(Ordering::Relaxed),
            ..self.holder
        }
    }

    /// At most so many devices pin the memory, one at least if any did, when the registrations that were dropped until now have ended:
    /// those of long memory end on another thread.
    pub(crate) fn unpin_when_released(self: &Arc<Self>, devices: u64) {
        let share = Arc::downgrade(self);
        after_release(move || {
            if let Some(share) = share.upgrade() {
                share.unpin(devices);
            }
        });
    }

    /// At most so many devices pin the memory from now on, one at least if any did.
    pub(super) fn unpin(&self, devices: u64) {
        let mut state = self.pool.lock();
        if self.stays_pinned.load(Ordering::Relaxed) {
            return;
        }
        let holder = self.holder();
        let pins = devices.max(1).min(holder.pins);
        let mapped = self.mapped_bytes.as_ref();
        let rings = mapped.map_or_else(
            || self.rings.bytes(page_bytes()),
            |mapped| mapped.load(Ordering::Relaxed),
        );
        state.bounds.unpin(holder, pins, rings + self.extra_bytes);
        self.pins.store(pins, Ordering::Relaxed);
        state.serve();
    }

    /// Shortens the rings to these lengths.
    pub(crate) fn shrink(&mut self, rings: Lengths) {
        let before = self.rings.bytes(page_bytes());
        self.rings = self.rings.within(rings);
        let spare = before - self.rings.bytes(page_bytes());
        if spare > 0 {
            let mut state = self.pool.lock();
            state.bounds.shrink(self.holder(), spare);
            state.serve();
        }
    }

    /// Sets how many bytes count for the channel in addition to its rings; `false` if the bound does
    /// not allow that.
    pub(crate) fn set_extra(&mut self, bytes: u64) -> bool {
        let mut state = self.pool.lock();
        if bytes > self.extra_bytes {
            if !state.bounds.grow(self.holder(), bytes - self.extra_bytes) {
                return false;
            }
            state.evict();
        } else if bytes < self.extra_bytes {
            state.bounds.shrink(self.holder(), self.extra_bytes - bytes);
            state.serve();
        }
        self.extra_bytes = bytes;
        true
    }

    /// Sets how many bytes count for the channel in addition to its rings, which become shorter where the
    /// bound has no room for both. Such memory may use what is reserved for further channels; `false` if
    /// it would exceed the bound.
    pub(crate) fn make_room(&mut self, bytes: u64) -> bool {
        if self.set_extra(bytes) {
            return true;
        }
        let page = page_bytes();
        let more = bytes.saturating_sub(self.extra_bytes);
        let rings = self.rings.cut(more, page);
        let spare = self.rings.bytes(page) - rings.bytes(page);
        // In one step, so that no waiting channel takes what the rings give up.
        let mut state = self.pool.lock();
        let fits = state.bounds.exchange(self.holder(), spare, more);
        if fits {
            self.rings = rings;
            self.extra_bytes = bytes;
        }
        state.evict();
        state.serve();
        fits
    }

    /// Maps memory to send from and memory to receive into, filled with zeros. They are as long as
    /// the rings may be, except that the first is shorter by `elsewhere` bytes, which are pinned in
    /// files instead. Each is given back when it is dropped, and the rest with the share. Long ones take
    /// seconds, and are given up when they are not wanted any more.
    ///
    /// # Errors
    ///
    /// When the kernel has no memory, and ECANCELED when it is not wanted any more.
    pub(crate) fn map(
        mut self,
        elsewhere: usize,
        are_wanted: &(dyn Fn() -> bool + Sync),
    ) -> io::Result<(Arc<Self>, [Arc<Memory>; 2])> {
        let Lengths { outgoing, incoming } = self.rings;
        let all = self.rings.bytes(page_bytes());
        self.mapped_bytes = Some(AtomicU64::new(all));
        let share = Arc::new(self);
        let parts = [outgoing, incoming].map(|length| Part::new(&share, whole_pages(length.get())));
        let [sends, receives] = parts;
        let here = outgoing.get().saturating_sub(elsewhere as u64);
        let rings = [
            sends.map(here, are_wanted)?,
            receives.map(incoming.get(), are_wanted)?,
        ];
        Ok((share, rings))
    }

    /// The parts of the two rings, which no memory is mapped for.
    #[cfg(any(test, feature = "sim"))]
    pub(crate) fn without_pages(mut self) -> (Arc<Self>, [Part; 2]) {
        let Lengths { outgoing, incoming } = self.rings;
        self.mapped_bytes = Some(AtomicU64::new(self.rings.bytes(page_bytes())));
        let share = Arc::new(self);
        let parts = [outgoing, incoming].map(|length| Part::new(&share, whole_pages(length.get())));
        (share, parts)
    }

    /// Takes up to `most` bytes more, and at least `least`. It never waits, and takes nothing while others
    /// wait; only a ring that is to replace one of twice its length, `present`, may use what is reserved for
    /// further channels.
    pub(crate) fn further(self: &Arc<Self>, [least, most]: [u64; 2], present: u64) -> Option<Part> {
        let held = self.mapped_bytes.as_ref()?;
        let is_shorter = most <= present / 2;
        let [least, most] = [least, most].map(whole_pages);
        let mut state = self.pool.lock();
        let bytes = if is_shorter {
            let fits = state.bounds.exchange(self.holder(), 0, most);
            fits.then_some(most)
        } else if state.waiting.is_empty() {
            let bytes = held.load(Ordering::Relaxed) + self.extra_bytes;
            let lengths = [least, most];
            state
                .bounds
                .extend(self.holder(), bytes, lengths, page_bytes())
        } else {
            None
        }?;
        held.fetch_add(bytes, Ordering::Relaxed);
        state.evict();
        let evicted = state.idle.take_evicted();
        drop(state);
        let mut part = Part::new(self, bytes);
        part.evicted = evicted;
        Some(part)
    }

    /// Whether other channels wait for memory.
    pub(crate) fn is_contended(&self) -> bool {
        !self.pool.lock().waiting.is_empty()
    }

    /// A part of so many bytes is given back.
    fn release(&self, bytes: u64) {
        let Some(held) = &self.mapped_bytes else {
            return;
        };
        let mut state = self.pool.lock();
        held.fetch_sub(bytes, Ordering::Relaxed);
        state.bounds.shrink(self.holder(), bytes);
        // The bound may have been lowered since.
        state.evict();
        state.serve();
    }

    fn pages(&self, bytes: u64, are_wanted: &(dyn Fn() -> bool + Sync)) -> io::Result<Cleared> {
        let length = whole_pages(bytes);
        let mut state = self.pool.lock();
        let found = state.idle.take(length);
        drop(state);
        if let Some(pages) = found {
            // They are cleared here and not when they came back, because some are never used again.
            return Ok(pages.clear());
        }
        let length = usize::try_from(length).ok().and_then(NonZeroUsize::new);
        Cleared::map(length.ok_or(io::ErrorKind::OutOfMemory)?, are_wanted)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut state = self.pool.lock();
        let rings = match self.mapped_bytes {
            // Each part was given back by itself.
            Some(_) => 0,
            None => self.rings.bytes(page_bytes()),
        };
        let bytes = rings + self.extra_bytes;
        state.bounds.give_back(self.holder(), bytes);
        // The bound may have been lowered since.
        state.evict();
        state.serve();
    }
}

/// A part of a channel's memory, which counts until it is dropped.
#[derive(Debug)]
pub(crate) struct Part {
    /// Idle mappings that make room for it. They are unmapped by the thread that maps the part, which is not that of the data.
    pub(super) evicted: Vec<Used>,
    bytes: u64,
    share: Arc<Share>,
}

impl Part {
    /// A part that its share has counted.
    fn new(share: &Arc<Share>, bytes: u64) -> Self {
        Self {
            evicted: Vec::new(),
            bytes,
            share: Arc::clone(share),
        }
    }

    /// Its length in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Maps `length` bytes, at most its own, filled with zeros.
    ///
    /// # Errors
    ///
    /// When the kernel has no memory, and ECANCELED when it is not wanted any more.
    pub(crate) fn map(
        mut self,
        length: u64,
        is_wanted: &(dyn Fn() -> bool + Sync),
    ) -> io::Result<Arc<Memory>> {
        self.evicted.clear();
        let pages = self.share.pages(length, is_wanted)?;
        Ok(Arc::new(Memory::shared(pages, Arc::new(self))))
    }
}

/// Pages that came from [`Part::map`].
impl Reclaim for Part {
    fn reclaim(&self, pages: Used) -> Result<(), Used> {
        self.share.pool.keep(pages)
    }

    fn stay_pinned(&self) {
        self.share.stays_pinned.store(true, Ordering::Relaxed);
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // It counts for them.
        self.evicted.clear();
        self.share.release(self.bytes);
    }
}
