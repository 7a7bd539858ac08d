//! Both directions of an open channel: the engine over an endpoint, behind blocking calls.
//!
//! Between two calls a channel is idle, unless the background thread drives it. A sending call returns
//! when everything was posted; with a provider that works only while it is polled, when everything
//! was sent.

mod pinned;
mod reading;
mod receiving;
#[cfg(test)]
mod tests;
mod waiting;
mod writing;

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use gridhaul_direct::Call;
use gridhaul_stack::{ChannelError, ChannelInfo, Detail, FileRange, Movement, Operation, Watch};
use rustix::io::Errno;

use crate::channel::closing::close;
use crate::clock;
use crate::files::{Alignment, DiskFiles, Plan};
use crate::memory::{Buffer, Memory, Span};
use crate::numa::{Locality, Mover};
use crate::open::Opened;
use crate::provider::{Loss, all_repeats};

/// How much of a file is read before it is posted, so that reading and sending overlap.
const READ_BYTES: usize = 1 << 20;

/// The same for a device: it takes several messages with one call, and wakes the peer less often.
const READ_BYTES_FOR_DEVICE: usize = 4 << 20;

/// A paced sender reads a message at a time, but at least this much: a longer read makes the next
/// message late.
const LEAST_READ_BYTES: usize = 64 << 10;

/// Shorter ranges are read and copied even where files are pinned, which is cheaper.
const LEAST_PINNED_PAGES: usize = 16;

/// Both directions of an open channel.
#[derive(Debug)]
pub(crate) struct Streams {
    opened: Opened,
    /// The time of the last progress.
    now: Duration,
    /// `now` is current; reading the clock again may be a system call.
    has_moved: bool,
    /// The device's counter when the channel was opened.
    repeats_before: Option<u64>,
    mover: Mover,
    /// Moves files with several requests in flight.
    files: DiskFiles,
    /// A call failed: the stream must not look complete to the peer.
    failed: bool,
    /// A failure between two calls; the next call reports it.
    fault: Option<ChannelError>,
}

impl Streams {
    pub(crate) fn new(opened: Opened) -> Self {
        Self {
            repeats_before: all_repeats(opened.endpoint.as_ref()),
            mover: Mover::default(),
            files: DiskFiles::new(opened.direct),
            opened,
            now: clock::now(),
            has_moved: false,
            failed: false,
            fault: None,
        }
    }

    /// The calling thread moves the bytes from now on, on the node of the adapter. Returns whether it was moved there.
    pub(crate) fn enter(&mut self) -> bool {
        let locality = self.opened.locality.as_deref();
        locality.is_some_and(|locality| self.mover.enter(locality))
    }

    pub(crate) fn send_memory(
        &mut self,
        mut bytes: &[u8],
        operation: &Operation<'_>,
    ) -> Result<(), ChannelError> {
        while !bytes.is_empty() {
            let room = self.room(operation)?.first(bytes.len());
            let (now, later) = bytes.split_at(room.length);
            self.opened.outgoing.memory().copy_in(room.offset, now);
            self.fill(room.length);
            bytes = later;
        }
        Ok(())
    }

    /// Sends a range of a file.
    pub(crate) fn send_file(
        &mut self,
        range: &FileRange<'_>,
        operation: &Operation<'_>,
    ) -> Result<(), ChannelError> {
        let mut done = 0;
        while done < range.length {
            let piece = self.files.piece(range, done);
            let count = self.send_piece(&piece, operation)?;
            self.files.end(count);
            done += count;
        }
        Ok(())
    }

    /// Sends a range in one way; returns the count of bytes, less than all of it where the stream moves to another ring, and after a call
    /// that has waited for the disk.
    fn send_piece(
        &mut self,
        range: &FileRange<'_>,
        operation: &Operation<'_>,
    ) -> Result<u64, ChannelError> {
        let least = (LEAST_PINNED_PAGES * rustix::param::page_size()) as u64;
        let ring_bytes = self.opened.exchange.sender.ring_length().get();
        let mut done = 0;
        if self.opened.outgoing.sections().is_some() {
            // Its memory for other bytes is no ring.
            if range.length >= least {
                done = self.send_pinned(range, operation)?;
            }
        } else if let Some(plan) = self.plan(range, Call::Read, ring_bytes)
            && let Some(done) = self.send_queued(range, plan, operation)?
        {
            return Ok(done);
        }
        while done < range.length {
            // With a quick peer the calls below never wait, so the deadline is checked here.
            operation.check_at(clock::instant(self.now))?;
            let left = usize::try_from(range.length - done).unwrap_or(usize::MAX);
            let most = self.read_bytes();
            let room = self.room(operation)?.first(left.min(most));
            let offset = range.offset + done;
            let memory = self.opened.outgoing.memory();
            let timer = self.files.time_call();
            let read = memory.read_from(range.file, offset, room);
            let has_waited = self.files.note_call(Call::Read, timer);
            let count = match read {
                Ok(0) => return Err(range.too_short(offset)),
                Ok(count) => count,
                Err(error) if error.raw_os_error() == Some(Errno::INTR.raw_os_error()) => continue,
                Err(error) => return Err(ChannelError::File(error)),
            };
            self.fill(count);
            done += count as u64;
            // A caller that waits for room, or for the end, makes progress in that wait.
            if done < range.length && self.has_room() {
                self.progress()?;
            }
            range.moved.fetch_add(count as u64, Ordering::Release);
            if has_waited {
                break;
            }
        }
        Ok(done)
    }

    /// How a range is moved between its file and a ring with several requests in flight, if it is.
    fn plan<'a>(&mut self, range: &FileRange<'a>, call: Call, ring_bytes: u64) -> Option<Plan<'a>> {
        let alignment = if self.opened.aligned {
            Alignment::Blocks
        } else {
            Alignment::None
        };
        // In user space this thread moves the bytes between the ring and the network as well.
        let connection = match self.opened.endpoint.limits().needs_polling {
            true => "rdma in user space",
            false => "rdma",
        };
        self.files
            .choose(range, call, connection, ring_bytes, alignment)
    }

    /// How much of a file is read at a time: for a device at most half of the ring, so that the
    /// other half is in flight.
    fn read_bytes(&self) -> usize {
        let sender = &self.opened.exchange.sender;
        let message_bytes = usize::try_from(sender.message_bytes()).unwrap_or(READ_BYTES);
        let half = sender.window_bytes() / 2;
        let half = usize::try_from(half).unwrap_or(usize::MAX);
        match sender.rate() {
            Some(_) => message_bytes.clamp(LEAST_READ_BYTES, READ_BYTES),
            None if self.opened.endpoint.limits().needs_polling => READ_BYTES,
            None => half.clamp(READ_BYTES, READ_BYTES_FOR_DEVICE),
        }
    }

    /// Ends the outgoing stream.
    pub(crate) fn finish(&mut self, operation: &Operation<'_>) -> Result<(), ChannelError> {
        self.opened.exchange.sender.finish();
        self.flush(operation)
    }

    /// Aborts the channel, so that the other end notices that its stream is incomplete.
    pub(crate) fn fail(&mut self) {
        self.failed = true;
        self.opened.endpoint.abort();
    }

    /// Closes the channel: sent data arrives, and then the end of the stream, unless a call failed.
    pub(crate) fn close(self) {
        // Its engine may hold the rings.
        drop(self.files);
        if !self.failed {
            close(self.opened);
        }
    }

    /// Whether the channel must be driven until the next call.
    pub(crate) fn needs_driving(&self) -> bool {
        let exchange = &self.opened.exchange;
        self.opened.endpoint.limits().needs_polling
            && exchange.sender.has_unfetched()
            && !exchange.is_over()
            && !self.failed
            && self.fault.is_none()
    }

    /// Makes progress without waiting between two calls. Returns when to call again at the latest, or
    /// `None` if the channel need not be driven.
    pub(crate) fn drive(&mut self) -> Option<Duration> {
        self.fault = self.advance().and_then(|()| self.watch()).err();
        let next = self.opened.exchange.next_at(self.now);
        self.needs_driving().then(|| next.unwrap_or(Duration::MAX))
    }

    /// Reports a failure between two calls.
    ///
    /// # Errors
    ///
    /// That failure.
    pub(crate) fn check(&mut self) -> Result<(), ChannelError> {
        self.has_moved = false;
        self.fault.take().map_or(Ok(()), Err)
    }

    /// Readable when there is something to do.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.opened.endpoint.descriptor()
    }

    /// The chosen settings and counters, for the log.
    pub(crate) fn info(&self) -> ChannelInfo {
        let limits = self.opened.endpoint.limits();
        let exchange = &self.opened.exchange;
        let sends = exchange.sender.ring_length().get();
        let receives = exchange.receiver.ring_bytes();
        let ring_bytes = sends.max(receives);
        let ring = match sends > receives {
            true => self.opened.outgoing.memory(),
            false => self.incoming(),
        };
        let mut details = self.opened.endpoint.details();
        let rate = self.opened.exchange.sender.rate();
        let round_trip = self.opened.tuning.round_trip.as_micros();
        let round_trip = u64::try_from(round_trip).unwrap_or(u64::MAX);
        details.extend(rate.map(|rate| Detail::setting("rate", rate)));
        details.extend([
            Detail::setting("queue-pairs", limits.queue_pairs as u64),
            Detail::setting("ring-bytes", ring_bytes),
            Detail::setting("message-bytes", self.opened.tuning.message_bytes),
            Detail::setting("depth", self.opened.tuning.depth as u64),
            Detail::setting("round-trip-microseconds", round_trip),
        ]);
        let nodes = self.opened.locality.as_deref().map(Locality::names);
        details.extend(nodes.map(|nodes| Detail::text("numa-node", nodes)));
        details.extend(self.files.detail());
        details.extend(self.opened.exchange.meter().counts());
        let pages = ring.page_kind().to_string();
        details.push(Detail::text("pages", pages));
        let repeats = all_repeats(self.opened.endpoint.as_ref()).zip(self.repeats_before);
        let retries = repeats.map(|(now, before)| now.saturating_sub(before));
        details.extend(retries.map(|retries| Detail::shared("retries", retries)));
        let wanted = rate.and_then(|rate| {
            let tuning = &self.opened.tuning;
            tuning.wanted_ring_bytes(rate, ring_bytes)
        });
        details.extend(wanted.map(|bytes| Detail::setting("wanted-ring-bytes", bytes)));
        if let Some(sections) = self.opened.outgoing.sections() {
            details.extend(sections.details());
        }
        let choice = &self.opened.choice;
        let reason = match self.files.measurements() {
            Some(measurements) => format!("{choice}; files: {measurements}"),
            None => choice.clone(),
        };
        ChannelInfo {
            buffer_bytes: usize::try_from(ring_bytes).unwrap_or(usize::MAX),
            movement: Some(Movement {
                way: "rdma",
                reason: reason.into(),
            }),
            details,
        }
    }

    /// Shows counters and rings to other threads.
    pub(crate) fn meter(&self) -> Arc<dyn Watch> {
        Arc::clone(self.opened.exchange.meter()) as Arc<dyn Watch>
    }

    /// Waits for room in the memory that is sent from.
    fn room(&mut self, operation: &Operation<'_>) -> Result<Span, ChannelError> {
        if !self.has_room() {
            // A full ring is sent without waiting for more.
            self.opened.exchange.sender.flush();
            self.until(operation, |opened| room(opened).length > 0)?;
        }
        Ok(room(&mut self.opened))
    }

    fn has_room(&mut self) -> bool {
        room(&mut self.opened).length > 0
    }

    /// The first `count` bytes of the room are filled.
    fn fill(&mut self, count: usize) {
        let Opened {
            exchange, outgoing, ..
        } = &mut self.opened;
        outgoing.fill(&mut exchange.sender, count);
    }

    /// Posts the filled part.
    pub(crate) fn flush(&mut self, operation: &Operation<'_>) -> Result<(), ChannelError> {
        self.opened.exchange.sender.flush();
        let needs_polling = self.opened.endpoint.limits().needs_polling;
        self.until(operation, |opened| {
            let sender = &opened.exchange.sender;
            sender.is_posted() && (!needs_polling || sender.is_idle())
        })
    }

    /// Makes progress until a condition holds, and sleeps between events.
    fn until(
        &mut self,
        operation: &Operation<'_>,
        is_met: impl Fn(&mut Opened) -> bool,
    ) -> Result<(), ChannelError> {
        self.progress()?;
        while !is_met(&mut self.opened) {
            self.wait(operation)?;
            self.progress()?;
        }
        Ok(())
    }

    /// Makes progress. It is an error if no queue pair is left.
    fn progress(&mut self) -> Result<(), ChannelError> {
        self.advance()?;
        if self.opened.exchange.is_over() {
            return Err(self.end_reason(ChannelError::PeerClosed));
        }
        Ok(())
    }

    /// Does everything that is possible without waiting.
    fn advance(&mut self) -> Result<(), ChannelError> {
        self.now = clock::now();
        let moved = self.opened.advance(self.now);
        self.files.release_rings();
        moved.map_err(|fault| protocol(fault.to_string()))
    }

    /// Arms the descriptor for further events.
    fn watch(&mut self) -> Result<(), ChannelError> {
        let endpoint = self.opened.endpoint.as_mut();
        let watched = self.opened.exchange.watch(endpoint, self.now);
        watched.map_err(|fault| protocol(fault.to_string()))
    }

    /// The ring that the next arrived bytes are in.
    fn incoming(&self) -> &Arc<Memory> {
        let ring = self.opened.exchange.incoming();
        ring.expect("an open channel has a ring to receive into")
    }

    /// Why no queue pair is left; `closed` if the peer ended them in an orderly manner.
    fn end_reason(&self, closed: ChannelError) -> ChannelError {
        match self.opened.exchange.loss() {
            Some(Loss::Closed) => closed,
            Some(Loss::Reset) | None => ChannelError::Aborted,
            Some(Loss::Failed(reason)) => protocol(reason.clone()),
        }
    }
}

fn room(opened: &mut Opened) -> Span {
    opened.outgoing.room(&opened.exchange.sender)
}

fn protocol(reason: String) -> ChannelError {
    ChannelError::Protocol {
        driver: "rdma",
        reason,
    }
}
