//! A range of a file on its way between a disk and a ring.

use gridhaul_direct::{Call, IoQueue, Request};
use gridhaul_stack::FileRange;

use super::Plan;
use super::cut::{Cutter, Haste};
use super::flights::{Failure, Flights};
use crate::memory::Span;

/// A range that requests move, in the order of the file.
#[derive(Debug)]
pub(crate) struct DiskRange<'a> {
    pub(crate) range: &'a FileRange<'a>,
    cutter: Cutter,
    flights: Flights,
    /// Bytes of the range for which there was a request.
    asked: u64,
    /// Bytes of the range that were moved, and before which none is missing.
    done: u64,
}

impl<'a> DiskRange<'a> {
    pub(crate) fn new(range: &'a FileRange<'a>, plan: &Plan<'_>) -> Self {
        Self {
            range,
            cutter: plan.cutter,
            flights: Flights::new(plan.requests, plan.cutter.block),
            asked: 0,
            done: 0,
        }
    }

    /// Bytes of the range that were moved, and before which none is missing.
    pub(crate) fn done(&self) -> u64 {
        self.done
    }

    pub(crate) fn is_done(&self) -> bool {
        self.done == self.range.length
    }

    /// Whether bytes are left to request, and there is a slot for a request.
    pub(crate) fn may_request(&self) -> bool {
        self.asked < self.range.length && self.flights.has_room()
    }

    /// Whether no request is in flight.
    pub(crate) fn is_idle(&self) -> bool {
        self.flights.is_empty()
    }

    pub(super) fn flights(&self) -> &Flights {
        &self.flights
    }

    /// Submits the next request, for bytes of the ring within `span`, if one is due; returns its length. With `is_last`, part of a
    /// block does not wait for the rest of it. The caller has checked [`DiskRange::may_request`].
    pub(crate) fn request(
        &mut self,
        queue: &mut dyn IoQueue,
        call: Call,
        span: Span,
        is_last: bool,
    ) -> Option<u64> {
        let left = self.range.length - self.asked;
        let there = left.min(span.length as u64);
        let haste = if is_last || there == left {
            Haste::All
        } else if self.flights.is_empty() {
            Haste::Blocks
        } else {
            Haste::Full
        };
        let offset = self.range.offset + self.asked;
        let cutter = Cutter {
            block: self.flights.block(),
            ..self.cutter
        };
        let (way, length) = cutter.cut(offset, span.offset as u64, there, haste)?;
        let request = Request {
            call,
            way,
            offset,
            start: span.offset,
            // It is within the span.
            length: usize::try_from(length).map_or(span.length, |length| length.min(span.length)),
        };
        self.flights.submit(queue, request);
        self.asked += length;
        Some(length)
    }

    /// The next bytes that were moved, in the order of the file. `None` while the oldest request is in flight.
    ///
    /// # Errors
    ///
    /// Those of [`Flights::next`].
    pub(crate) fn next(&mut self, queue: &mut dyn IoQueue) -> Result<Option<usize>, Failure> {
        let moved = self.flights.next(queue)?;
        self.done += moved.unwrap_or(0) as u64;
        Ok(moved)
    }

    /// Waits until the oldest request has completed.
    pub(crate) fn wait(&self, queue: &mut dyn IoQueue) {
        self.flights.wait(queue);
    }
}
