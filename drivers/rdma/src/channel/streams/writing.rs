//! Writes arrived bytes to a file, with several requests in flight.
//!
//! Bytes stay in the ring until they were written, and only then the sender gets credit for their place. The peer fills the rest
//! of the ring meanwhile.
//!
//! All requests of a call are for one ring. Where the next bytes are in another one, the call ends.

use std::io;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use gridhaul_direct::{Call, IoQueue};
use gridhaul_stack::{ChannelError, FileRange, Operation};

use super::Streams;
use crate::clock;
use crate::engine::Receiver;
use crate::files::{DiskRange, Failure, Plan};
use crate::memory::RingMemory;

/// A part of a block waits for the rest of it no longer than this, so that the bytes of a slow peer are visible and safe.
const FLUSH_INTERVAL: Duration = Duration::from_secs(1);

/// A range that is being received.
pub(super) struct Writing<'a> {
    disk: DiskRange<'a>,
    /// The position in the stream of the next byte to request.
    position: u64,
    /// The ring of the requests.
    region: usize,
    /// Since when a part of a block waits while the disk is idle.
    waits_since: Option<Instant>,
}

impl Streams {
    /// Receives a range of a file; returns the count of bytes, less than the range only at the end of the stream and where the stream
    /// moves to another ring. `None` if no thread for the requests could be started.
    pub(super) fn receive_queued(
        &mut self,
        range: &FileRange<'_>,
        plan: Plan<'_>,
        operation: &Operation<'_>,
    ) -> Result<Option<u64>, ChannelError> {
        let memory = RingMemory::of(self.incoming());
        let receiver = &self.opened.exchange.receiver;
        let mut writing = Writing::new(DiskRange::new(range, &plan), receiver);
        let (kind, mut engine) = (plan.engine_kind(), self.files.take_engine(&plan));
        let received =
            engine.with_memory(plan.files, memory, plan.requests, range.length, |queue| {
                let received = self.write_behind(&mut writing, queue, operation);
                if !matches!(received, Ok(()) | Err(ChannelError::File(_))) {
                    writing.settle(queue);
                }
                received
            });
        self.files.put_back(engine, kind);
        self.files.note_way(&writing.disk);
        self.has_moved = false;
        match received {
            Ok(received) => received.map(|()| Some(writing.disk.done())),
            Err(error) => {
                self.files.note_no_thread(&error);
                Ok(None)
            }
        }
    }

    pub(super) fn write_behind(
        &mut self,
        writing: &mut Writing<'_>,
        queue: &mut dyn IoQueue,
        operation: &Operation<'_>,
    ) -> Result<(), ChannelError> {
        loop {
            self.advance()?;
            queue.poll();
            let has_written = self.take_written(writing, queue)?;
            if writing.disk.is_done() || self.is_at_next_ring(writing) {
                return Ok(());
            }
            // With a quick peer and disk nothing here waits, so the deadline is checked here.
            operation.check_at(clock::instant(self.now))?;
            if self.write_arrived(writing, queue) || has_written {
                continue;
            }
            let has_all = self.opened.exchange.receiver.has_all();
            if !has_all && !self.opened.exchange.is_over() {
                // For the network and the disk, but not for long if a part of a block waits.
                self.wait_with_disk(queue, writing.flush_at(), operation)?;
            } else if !writing.disk.is_idle() {
                // Nothing more arrives.
                writing.disk.wait(queue);
            } else if has_all {
                return Ok(());
            } else {
                return Err(self.end_reason(ChannelError::Aborted));
            }
        }
    }

    /// Whether everything in the ring of the requests was written, and the next byte is in another ring.
    fn is_at_next_ring(&self, writing: &Writing<'_>) -> bool {
        writing.disk.is_idle() && self.opened.exchange.receiver.region() != writing.region
    }

    /// Takes written bytes out of the ring. Returns whether there were any.
    fn take_written(
        &mut self,
        writing: &mut Writing<'_>,
        queue: &mut dyn IoQueue,
    ) -> Result<bool, ChannelError> {
        let before = writing.disk.done();
        while let Some(count) = writing.next_written(queue)? {
            self.consume(count)?;
        }
        Ok(writing.disk.done() > before)
    }

    /// Requests to write what has arrived. Returns whether there was any request.
    fn write_arrived(&mut self, writing: &mut Writing<'_>, queue: &mut dyn IoQueue) -> bool {
        let mut has_requested = false;
        while writing.disk.may_request() {
            let receiver = &self.opened.exchange.receiver;
            let stretch = receiver.ready_from(writing.position);
            if stretch.region != writing.region {
                break;
            }
            let is_idle = writing.disk.is_idle();
            // A sender that waits for credit sends no rest of a block.
            let is_last = stretch.is_whole
                || self.opened.exchange.is_over()
                || is_idle && receiver.is_crowded()
                || writing.has_waited();
            let requested = writing
                .disk
                .request(queue, Call::Write, stretch.span, is_last);
            let Some(length) = requested else {
                let waits = is_idle && stretch.span.length > 0;
                let since = writing.waits_since.unwrap_or_else(Instant::now);
                writing.waits_since = waits.then_some(since);
                break;
            };
            writing.position = stretch.position + length;
            writing.waits_since = None;
            has_requested = true;
        }
        has_requested
    }
}

impl<'a> Writing<'a> {
    /// For the bytes that are taken out of the ring next.
    pub(super) fn new(disk: DiskRange<'a>, receiver: &Receiver) -> Self {
        Self {
            disk,
            position: receiver.consumed(),
            region: receiver.region(),
            waits_since: None,
        }
    }
}

impl Writing<'_> {
    /// When a part of a block has waited long enough.
    fn flush_at(&self) -> Option<Instant> {
        self.waits_since.map(|since| since + FLUSH_INTERVAL)
    }

    fn has_waited(&self) -> bool {
        self.flush_at().is_some_and(|at| Instant::now() >= at)
    }

    /// The next bytes that are in the file, in its order, which count as moved from now on.
    fn next_written(&mut self, queue: &mut dyn IoQueue) -> Result<Option<usize>, ChannelError> {
        let written = self.disk.next(queue).map_err(|failure| {
            ChannelError::File(match failure {
                Failure::Nothing { .. } => io::ErrorKind::WriteZero.into(),
                Failure::File(errno) => errno.into(),
            })
        })?;
        if let Some(count) = written {
            let moved = self.disk.range.moved;
            moved.fetch_add(count as u64, Ordering::Release);
        }
        Ok(written)
    }

    /// After an error of the network: what was submitted is written, and counts.
    fn settle(&mut self, queue: &mut dyn IoQueue) {
        while !self.disk.is_idle() {
            self.disk.wait(queue);
            if self.next_written(queue).is_err() {
                return;
            }
        }
    }
}
