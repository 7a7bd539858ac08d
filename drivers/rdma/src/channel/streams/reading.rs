//! Reads a file ahead into the outgoing ring, with several requests in flight.
//!
//! The thread posts what was read while the disk reads on, and waits for both at the same time.
//!
//! All requests of a call are for one ring. Before the stream moves to another one they complete, and the call ends.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use gridhaul_direct::{Call, IoQueue};
use gridhaul_stack::{ChannelError, FileRange, Operation};

use super::Streams;
use crate::clock;
use crate::files::{ALIGNMENT, DiskRange, Failure, LEAST_BYTES, Plan};
use crate::memory::{Memory, RingMemory};

impl Streams {
    /// Pads the stream, so that the offset in the ring of the content of a file is congruent to its offset in the file.
    pub(crate) fn align(
        &mut self,
        range: &FileRange<'_>,
        operation: &Operation<'_>,
    ) -> Result<(), ChannelError> {
        if !self.opened.aligned || range.length < LEAST_BYTES {
            return Ok(());
        }
        // Rings that are aligned are multiples of the alignment.
        let place = self.opened.exchange.sender.room().offset as u64;
        let mut missing = (range.offset % ALIGNMENT + ALIGNMENT - place % ALIGNMENT) % ALIGNMENT;
        while missing > 0 {
            if self.opened.exchange.sender.room().length == 0 {
                // A full ring is sent without waiting for more.
                self.opened.exchange.sender.flush();
                self.until(operation, |opened| opened.exchange.sender.room().length > 0)?;
            }
            let sender = &mut self.opened.exchange.sender;
            let count = sender.room().length;
            let count = usize::try_from(missing).map_or(count, |missing| missing.min(count));
            sender.pad(count);
            missing -= count as u64;
        }
        Ok(())
    }

    /// Sends a range of a file; returns the count of bytes, less than all of it if the stream has moved to another ring. `None` if no
    /// thread for the requests could be started.
    pub(super) fn send_queued(
        &mut self,
        range: &FileRange<'_>,
        plan: Plan<'_>,
        operation: &Operation<'_>,
    ) -> Result<Option<u64>, ChannelError> {
        let memory = RingMemory::of(self.opened.outgoing.memory());
        let mut disk = DiskRange::new(range, &plan);
        let (kind, mut engine) = (plan.engine_kind(), self.files.take_engine(&plan));
        let sent = engine.with_memory(plan.files, memory, plan.requests, range.length, |queue| {
            self.read_ahead(&mut disk, queue, operation)
        });
        self.files.put_back(engine, kind);
        self.files.note_way(&disk);
        match sent {
            Ok(sent) => sent.map(|()| Some(disk.done())),
            Err(error) => {
                self.files.note_no_thread(&error);
                Ok(None)
            }
        }
    }

    pub(super) fn read_ahead(
        &mut self,
        disk: &mut DiskRange<'_>,
        queue: &mut dyn IoQueue,
        operation: &Operation<'_>,
    ) -> Result<(), ChannelError> {
        let ring = Arc::clone(self.opened.outgoing.memory());
        loop {
            queue.poll();
            let filled = self.fill_from_file(disk, queue)?;
            self.progress()?;
            disk.range.moved.fetch_add(filled, Ordering::Release);
            if disk.is_done() || !self.sends_from(&ring) {
                return Ok(());
            }
            // With a quick peer and disk nothing here waits, so the deadline is checked here.
            operation.check_at(clock::instant(self.now))?;
            if self.request_more(disk, queue) || filled > 0 {
                continue;
            }
            if disk.is_idle() {
                // A full ring is sent without waiting for more.
                self.opened.exchange.sender.flush();
                self.progress()?;
                if !self.sends_from(&ring) || self.request_more(disk, queue) {
                    continue;
                }
            }
            self.wait_with_disk(queue, None, operation)?;
        }
    }

    /// Passes bytes that were read to the sender; returns their count.
    fn fill_from_file(
        &mut self,
        disk: &mut DiskRange<'_>,
        queue: &mut dyn IoQueue,
    ) -> Result<u64, ChannelError> {
        let before = disk.done();
        loop {
            match disk.next(queue) {
                Ok(Some(count)) => self.fill(count),
                Ok(None) => return Ok(disk.done() - before),
                Err(Failure::Nothing { offset }) => return Err(disk.range.too_short(offset)),
                Err(Failure::File(errno)) => return Err(ChannelError::File(errno.into())),
            }
        }
    }

    /// Whether this is still the ring that the next bytes go to. No request is in flight where it is not.
    fn sends_from(&self, ring: &Arc<Memory>) -> bool {
        Arc::ptr_eq(self.opened.outgoing.memory(), ring)
    }

    /// Requests further bytes as far as the ring has room, unless the stream is about to move to another one. Returns whether
    /// there was any request.
    fn request_more(&mut self, disk: &mut DiskRange<'_>, queue: &mut dyn IoQueue) -> bool {
        let mut has_requested = false;
        while disk.may_request() && !self.opened.exchange.waits_for_disk() {
            let sender = &mut self.opened.exchange.sender;
            let room = sender.further_room();
            let Some(length) = disk.request(queue, Call::Read, room.span, room.is_whole) else {
                break;
            };
            sender.promise(length);
            has_requested = true;
        }
        has_requested
    }
}
