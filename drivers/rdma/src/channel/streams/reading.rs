//! Reads a file ahead into the outgoing ring, with several requests in flight.
//!
//! The thread posts what was read while the disk reads on, and waits for both at the same time.

use std::sync::atomic::Ordering;

use gridhaul_direct::{Call, IoQueue, Request};
use gridhaul_stack::{ChannelError, FileRange, Operation};

use super::Streams;
use crate::clock;
use crate::files::{ALIGNMENT, Cutter, Failure, Flights, Haste, LEAST_BYTES, Plan};
use crate::memory::RingMemory;

/// A range that is being sent.
struct Reading<'a> {
    range: &'a FileRange<'a>,
    cutter: Cutter,
    flights: Flights,
    /// Bytes of the range for which there was a request.
    asked: u64,
    /// Bytes of the range that are in the ring, and before which none is missing.
    done: u64,
}

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

    /// Sends a range of a file; returns the count of bytes, which is 0 if no thread for the requests could be started.
    pub(super) fn send_queued(
        &mut self,
        range: &FileRange<'_>,
        plan: Plan<'_>,
        operation: &Operation<'_>,
    ) -> Result<u64, ChannelError> {
        let memory = RingMemory::of(self.opened.outgoing.memory());
        let mut reading = Reading {
            range,
            cutter: plan.cutter,
            flights: Flights::new(plan.requests, plan.cutter.block),
            asked: 0,
            done: 0,
        };
        let mut engine = self.files.take_engine();
        let sent = engine.with_memory(plan.files, memory, plan.requests, |queue| {
            self.read_ahead(&mut reading, queue, operation)
        });
        self.files.put_back(engine);
        self.files.note_way(&reading.flights);
        match sent {
            Ok(sent) => sent.map(|()| reading.done),
            Err(error) => {
                self.files.note_no_thread(&error);
                Ok(0)
            }
        }
    }

    fn read_ahead(
        &mut self,
        reading: &mut Reading<'_>,
        queue: &mut dyn IoQueue,
        operation: &Operation<'_>,
    ) -> Result<(), ChannelError> {
        loop {
            queue.poll();
            let filled = self.fill_from_file(reading, queue)?;
            self.progress()?;
            reading.range.moved.fetch_add(filled, Ordering::Release);
            if reading.done == reading.range.length {
                return Ok(());
            }
            // With a quick peer and disk nothing here waits, so the deadline is checked here.
            operation.check_at(clock::instant(self.now))?;
            if self.request_more(reading, queue) || filled > 0 {
                continue;
            }
            if reading.flights.is_empty() {
                // A full ring is sent without waiting for more.
                self.opened.exchange.sender.flush();
                self.progress()?;
                if self.request_more(reading, queue) {
                    continue;
                }
            }
            self.wait_beside(operation, queue.descriptor())?;
        }
    }

    /// Passes bytes that were read to the sender; returns their count.
    fn fill_from_file(
        &mut self,
        reading: &mut Reading<'_>,
        queue: &mut dyn IoQueue,
    ) -> Result<u64, ChannelError> {
        let before = reading.done;
        loop {
            match reading.flights.next(queue) {
                Ok(Some(count)) => {
                    self.fill(count);
                    reading.done += count as u64;
                }
                Ok(None) => return Ok(reading.done - before),
                Err(Failure::Nothing { offset }) => return Err(reading.range.too_short(offset)),
                Err(Failure::File(errno)) => return Err(ChannelError::File(errno.into())),
            }
        }
    }

    /// Requests further bytes as far as the ring has room. Returns whether there was any request.
    fn request_more(&mut self, reading: &mut Reading<'_>, queue: &mut dyn IoQueue) -> bool {
        let before = reading.asked;
        while reading.asked < reading.range.length && reading.flights.has_room() {
            let room = self.opened.exchange.sender.further_room();
            let left = reading.range.length - reading.asked;
            let there = left.min(room.span.length as u64);
            let haste = if room.is_whole || there == left {
                Haste::All
            } else if reading.flights.is_empty() {
                Haste::Blocks
            } else {
                Haste::Full
            };
            let offset = reading.range.offset + reading.asked;
            let start = room.span.offset;
            let cutter = Cutter {
                block: reading.flights.block(),
                ..reading.cutter
            };
            let Some((way, length)) = cutter.cut(offset, start as u64, there, haste) else {
                break;
            };
            let request = Request {
                call: Call::Read,
                way,
                offset,
                start,
                // It is within the room.
                length: room
                    .span
                    .length
                    .min(usize::try_from(length).unwrap_or(usize::MAX)),
            };
            reading.flights.submit(queue, request);
            self.opened.exchange.sender.promise(length);
            reading.asked += length;
        }
        reading.asked > before
    }
}
