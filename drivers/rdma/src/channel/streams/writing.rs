//! Writes arrived bytes to a file, with several requests in flight.
//!
//! Bytes stay in the ring until they were written, and only then the sender gets credit for their place. The peer fills the rest
//! of the ring meanwhile.

use std::io;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use gridhaul_direct::{Call, IoQueue, Request};
use gridhaul_stack::{ChannelError, FileRange, Operation};

use super::Streams;
use crate::clock;
use crate::files::{Cutter, Failure, Flights, Haste, Plan};
use crate::memory::RingMemory;

/// A part of a block waits for the rest of it no longer than this, so that the bytes of a slow peer are visible and safe.
const FLUSH_INTERVAL: Duration = Duration::from_secs(1);

/// A range that is being received.
struct Writing<'a> {
    range: &'a FileRange<'a>,
    cutter: Cutter,
    flights: Flights,
    /// Bytes of the range for which there was a request.
    asked: u64,
    /// Bytes of the range that are in the file, and before which none is missing.
    done: u64,
    /// The position in the stream of the next byte to request.
    position: u64,
    /// Since when a part of a block waits while the disk is idle.
    waits_since: Option<Instant>,
}

impl Streams {
    /// Receives a range of a file; returns the count of bytes, less than the range only at the end of the stream. `None` if no
    /// thread for the requests could be started.
    pub(super) fn receive_queued(
        &mut self,
        range: &FileRange<'_>,
        plan: Plan<'_>,
        operation: &Operation<'_>,
    ) -> Result<Option<u64>, ChannelError> {
        let memory = RingMemory::of(self.incoming());
        let mut writing = Writing {
            range,
            cutter: plan.cutter,
            flights: Flights::new(plan.requests, plan.cutter.block),
            asked: 0,
            done: 0,
            position: self.opened.exchange.receiver.consumed(),
            waits_since: None,
        };
        let mut engine = self.files.take_engine();
        let received = engine.with_memory(plan.files, memory, plan.requests, |queue| {
            let received = self.write_behind(&mut writing, queue, operation);
            if !matches!(received, Ok(()) | Err(ChannelError::File(_))) {
                writing.settle(queue);
            }
            received
        });
        self.files.put_back(engine);
        self.files.note_way(&writing.flights);
        self.has_moved = false;
        match received {
            Ok(received) => received.map(|()| Some(writing.done)),
            Err(error) => {
                self.files.note_no_thread(&error);
                Ok(None)
            }
        }
    }

    fn write_behind(
        &mut self,
        writing: &mut Writing<'_>,
        queue: &mut dyn IoQueue,
        operation: &Operation<'_>,
    ) -> Result<(), ChannelError> {
        loop {
            self.advance()?;
            queue.poll();
            let has_written = self.take_written(writing, queue)?;
            if writing.done == writing.range.length {
                return Ok(());
            }
            // With a quick peer and disk nothing here waits, so the deadline is checked here.
            operation.check_at(clock::instant(self.now))?;
            if self.write_arrived(writing, queue) || has_written {
                continue;
            }
            let has_all = self.opened.exchange.receiver.has_all();
            if !has_all && !self.opened.exchange.is_over() {
                self.wait_for_bytes(writing, queue, operation)?;
            } else if !writing.flights.is_empty() {
                // Nothing more arrives.
                writing.flights.wait(queue);
            } else if has_all {
                return Ok(());
            } else {
                return Err(self.end_reason(ChannelError::Aborted));
            }
        }
    }

    /// Takes written bytes out of the ring. Returns whether there were any.
    fn take_written(
        &mut self,
        writing: &mut Writing<'_>,
        queue: &mut dyn IoQueue,
    ) -> Result<bool, ChannelError> {
        let before = writing.done;
        while let Some(count) = writing.next_written(queue)? {
            self.consume(count)?;
        }
        Ok(writing.done > before)
    }

    /// Requests to write what has arrived. Returns whether there was any request.
    fn write_arrived(&mut self, writing: &mut Writing<'_>, queue: &mut dyn IoQueue) -> bool {
        let before = writing.asked;
        while writing.asked < writing.range.length && writing.flights.has_room() {
            let receiver = &self.opened.exchange.receiver;
            let stretch = receiver.ready_from(writing.position);
            let left = writing.range.length - writing.asked;
            let there = left.min(stretch.span.length as u64);
            let is_idle = writing.flights.is_empty();
            // A sender that waits for credit sends no rest of a block.
            let is_last = stretch.is_whole
                || there == left
                || self.opened.exchange.is_over()
                || is_idle && receiver.is_crowded();
            let haste = if is_last || writing.has_waited() {
                Haste::All
            } else if is_idle {
                Haste::Blocks
            } else {
                Haste::Full
            };
            let offset = writing.range.offset + writing.asked;
            let start = stretch.span.offset;
            let cutter = Cutter {
                block: writing.flights.block(),
                ..writing.cutter
            };
            let Some((way, length)) = cutter.cut(offset, start as u64, there, haste) else {
                let waits = is_idle && there > 0;
                let since = writing.waits_since.unwrap_or_else(Instant::now);
                writing.waits_since = waits.then_some(since);
                break;
            };
            let request = Request {
                call: Call::Write,
                way,
                offset,
                start,
                // It is within what has arrived.
                length: stretch
                    .span
                    .length
                    .min(usize::try_from(length).unwrap_or(usize::MAX)),
            };
            writing.flights.submit(queue, request);
            writing.asked += length;
            writing.position = stretch.position + length;
            writing.waits_since = None;
        }
        writing.asked > before
    }

    /// Waits for the network and the disk, but not for long if a part of a block waits.
    fn wait_for_bytes(
        &mut self,
        writing: &Writing<'_>,
        queue: &mut dyn IoQueue,
        operation: &Operation<'_>,
    ) -> Result<(), ChannelError> {
        let flush_at = writing.waits_since.map(|since| since + FLUSH_INTERVAL);
        let until = Operation {
            deadline: operation.deadline.into_iter().chain(flush_at).min(),
            cancel: operation.cancel,
        };
        match self.wait_beside(&until, queue.descriptor()) {
            Err(ChannelError::DeadlineExceeded) => operation.check(),
            waited => waited,
        }
    }
}

impl Writing<'_> {
    fn has_waited(&self) -> bool {
        self.waits_since
            .is_some_and(|since| since.elapsed() >= FLUSH_INTERVAL)
    }

    /// The next bytes that are in the file, in its order, which count as moved from now on.
    fn next_written(&mut self, queue: &mut dyn IoQueue) -> Result<Option<usize>, ChannelError> {
        let written = self.flights.next(queue).map_err(|failure| {
            ChannelError::File(match failure {
                Failure::Nothing { .. } => io::ErrorKind::WriteZero.into(),
                Failure::File(errno) => errno.into(),
            })
        })?;
        if let Some(count) = written {
            self.done += count as u64;
            self.range.moved.fetch_add(count as u64, Ordering::Release);
        }
        Ok(written)
    }

    /// After an error of the network: what was submitted is written, and counts.
    fn settle(&mut self, queue: &mut dyn IoQueue) {
        while !self.flights.is_empty() {
            self.flights.wait(queue);
            if self.next_written(queue).is_err() {
                return;
            }
        }
    }
}
