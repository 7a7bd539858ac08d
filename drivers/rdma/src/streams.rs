//! Both directions of an open channel: the engine over an endpoint, in the calls of whoever uses the channel.
//!
//! Nothing happens between two calls, unless somebody attends to it. A call that sends returns when all of it has been
//! posted, and with a provider that works only while it is asked, when all of it has gone.

mod pinned;
#[cfg(test)]
mod tests;

use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering;
use std::time::Duration;

use gridhaul_stack::{ChannelError, ChannelInfo, Detail, FileRange, Movement, Operation};
use rustix::io::Errno;

use crate::clock;
use crate::departure::depart;
use crate::memory::Span;
use crate::open::Opened;
use crate::provider::Loss;

/// How much of a file is read before it is posted, so that reading and sending go on together.
const READ_BYTES: usize = 1 << 20;

/// The same for a device, which is told of several messages with one call, and wakes the peer less often.
const READ_BYTES_FOR_DEVICE: usize = 4 << 20;

/// Where messages are paced, a message is read, and no less than this: who reads for longer is late for the next one.
const LEAST_READ_BYTES: usize = 64 << 10;

/// Where files are pinned, shorter ranges are read nevertheless: to copy them is cheaper.
const LEAST_PINNED_PAGES: usize = 16;

/// Both directions of a channel that is open.
#[derive(Debug)]
pub(crate) struct Streams {
    opened: Opened,
    /// When it moved last.
    now: Duration,
    /// That was just now: to look at the clock once more may be a call of the system.
    has_moved: bool,
    /// What the device had counted before.
    repeats_before: Option<u64>,
    /// A call failed: what was sent must not look whole.
    failed: bool,
    /// What went wrong between two calls; the next one tells.
    fault: Option<ChannelError>,
}

impl Streams {
    pub(crate) fn new(opened: Opened) -> Self {
        Self {
            repeats_before: opened.endpoint.repeats(),
            opened,
            now: clock::now(),
            has_moved: false,
            failed: false,
            fault: None,
        }
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
        let least = (LEAST_PINNED_PAGES * rustix::param::page_size()) as u64;
        let mut done = 0;
        if self.opened.outgoing.sections().is_some() && range.length >= least {
            done = self.send_pinned(range, operation)?;
        }
        while done < range.length {
            // The other end may be so quick that nothing here ever waits.
            operation.check_at(clock::instant(self.now))?;
            let left = usize::try_from(range.length - done).unwrap_or(usize::MAX);
            let most = self.read_bytes();
            let room = self.room(operation)?.first(left.min(most));
            let offset = range.offset + done;
            let memory = self.opened.outgoing.memory();
            let count = match memory.read_from(range.file, offset, room) {
                Ok(0) => return Err(range.too_short(offset)),
                Ok(count) => count,
                Err(error) if error.raw_os_error() == Some(Errno::INTR.raw_os_error()) => continue,
                Err(error) => return Err(ChannelError::File(error)),
            };
            self.fill(count);
            done += count as u64;
            // Whoever waits for room, or for the end, moves on by itself.
            if done < range.length && self.has_room() {
                self.progress()?;
            }
            range.moved.fetch_add(count as u64, Ordering::Release);
        }
        Ok(())
    }

    /// How much of a file is read at a time: no more than half of the ring for a device, so that the other half is on its way.
    fn read_bytes(&self) -> usize {
        let sender = &self.opened.exchange.sender;
        let message_bytes = usize::try_from(sender.message_bytes()).unwrap_or(READ_BYTES);
        let half = self.opened.incoming.length() / 2;
        match sender.rate() {
            Some(_) => message_bytes.clamp(LEAST_READ_BYTES, READ_BYTES),
            None if self.opened.endpoint.limits().needs_polling => READ_BYTES,
            None => half.clamp(READ_BYTES, READ_BYTES_FOR_DEVICE),
        }
    }

    /// Ends the stream that we send.
    pub(crate) fn finish(&mut self, operation: &Operation<'_>) -> Result<(), ChannelError> {
        self.opened.exchange.sender.finish();
        self.flush(operation)
    }

    /// Throws everything away, so that the other end notices that its stream is not whole.
    pub(crate) fn fail(&mut self) {
        self.failed = true;
        self.opened.endpoint.abort();
    }

    /// Leaves the channel: what was sent arrives, and its end after it, unless a call failed.
    pub(crate) fn depart(self) {
        if !self.failed {
            depart(self.opened);
        }
    }

    /// Whether somebody has to attend to the channel until the next call.
    pub(crate) fn needs_attendance(&self) -> bool {
        let exchange = &self.opened.exchange;
        self.opened.endpoint.limits().needs_polling
            && exchange.sender.has_unfetched()
            && !exchange.is_over()
            && !self.failed
            && self.fault.is_none()
    }

    /// Does between two calls what can be done without waiting. Returns when to come again at the latest, and `None`
    /// when there is no need.
    pub(crate) fn attend(&mut self) -> Option<Duration> {
        self.fault = self.move_on().and_then(|()| self.watch()).err();
        let next = self.opened.exchange.next_at(self.now);
        self.needs_attendance()
            .then(|| next.unwrap_or(Duration::MAX))
    }

    /// What went wrong between two calls.
    ///
    /// # Errors
    ///
    /// That.
    pub(crate) fn check(&mut self) -> Result<(), ChannelError> {
        self.has_moved = false;
        self.fault.take().map_or(Ok(()), Err)
    }

    /// Becomes readable when there is something to do.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.opened.endpoint.descriptor()
    }

    /// What was chosen, for the log.
    pub(crate) fn info(&self) -> ChannelInfo {
        let limits = self.opened.endpoint.limits();
        let ring_bytes = self.opened.incoming.length();
        let mut details = self.opened.endpoint.details();
        let rate = self.opened.exchange.sender.rate();
        let round_trip = self.opened.tuning.round_trip.as_micros();
        let round_trip = u64::try_from(round_trip).unwrap_or(u64::MAX);
        details.extend(rate.map(|rate| Detail::setting("rate", rate)));
        details.extend([
            Detail::setting("queue-pairs", limits.queue_pairs as u64),
            Detail::setting("ring-bytes", ring_bytes as u64),
            Detail::setting("message-bytes", self.opened.tuning.message_bytes),
            Detail::setting("depth", self.opened.tuning.depth as u64),
            Detail::setting("round-trip-microseconds", round_trip),
            Detail::count("credits", self.opened.exchange.credits()),
            Detail::count("stalls", self.opened.exchange.stalls()),
            Detail::count("restored", self.opened.exchange.restored()),
            Detail::text("pages", self.opened.incoming.page_kind().to_string()),
        ]);
        let repeats = self.opened.endpoint.repeats().zip(self.repeats_before);
        let retries = repeats.map(|(now, before)| now.saturating_sub(before));
        details.extend(retries.map(|retries| Detail::shared("retries", retries)));
        let wanted = rate.and_then(|rate| {
            let tuning = &self.opened.tuning;
            tuning.wanted_ring_bytes(rate, ring_bytes as u64)
        });
        details.extend(wanted.map(|bytes| Detail::setting("wanted-ring-bytes", bytes)));
        if let Some(sections) = self.opened.outgoing.sections() {
            details.extend(sections.details());
        }
        ChannelInfo {
            buffer_bytes: ring_bytes,
            movement: Some(Movement {
                way: "rdma",
                reason: self.opened.choice.clone().into(),
            }),
            details,
        }
    }

    /// Waits for room in the memory that is sent from.
    fn room(&mut self, operation: &Operation<'_>) -> Result<Span, ChannelError> {
        if !self.has_room() {
            // What fills it must go, whatever comes after it.
            self.opened.exchange.sender.flush();
            self.until(operation, |opened| room(opened).length > 0)?;
        }
        Ok(room(&mut self.opened))
    }

    fn has_room(&mut self) -> bool {
        room(&mut self.opened).length > 0
    }

    /// The first `count` bytes of the room are there.
    fn fill(&mut self, count: usize) {
        let Opened {
            exchange, outgoing, ..
        } = &mut self.opened;
        outgoing.fill(&mut exchange.sender, count);
    }

    /// Posts what is there.
    pub(crate) fn flush(&mut self, operation: &Operation<'_>) -> Result<(), ChannelError> {
        self.opened.exchange.sender.flush();
        let needs_polling = self.opened.endpoint.limits().needs_polling;
        self.until(operation, |opened| {
            let sender = &opened.exchange.sender;
            sender.is_posted() && (!needs_polling || sender.is_idle())
        })
    }

    /// Waits for bytes; none at the end of the stream.
    fn ready(&mut self, operation: &Operation<'_>) -> Result<Span, ChannelError> {
        loop {
            let ready = self.opened.exchange.receiver.ready();
            if ready.length > 0 || self.opened.exchange.receiver.is_finished() {
                self.has_moved = false;
                return Ok(ready);
            }
            if self.opened.exchange.is_over() {
                return Err(self.gone(ChannelError::Aborted));
            }
            if !std::mem::take(&mut self.has_moved) {
                self.move_on()?;
            }
            let has_come = self.opened.exchange.receiver.ready().length > 0
                || self.opened.exchange.receiver.is_finished()
                || self.opened.exchange.is_over();
            if !has_come {
                self.wait(operation)?;
            }
        }
    }

    /// Receives into `buffer`; nothing at the end of the stream.
    pub(crate) fn receive(
        &mut self,
        buffer: &mut [u8],
        operation: &Operation<'_>,
    ) -> Result<usize, ChannelError> {
        let ready = self.ready(operation)?.first(buffer.len());
        let incoming = &self.opened.incoming;
        incoming.copy_out(ready.offset, &mut buffer[..ready.length]);
        self.consume(ready.length)?;
        Ok(ready.length)
    }

    fn consume(&mut self, count: usize) -> Result<(), ChannelError> {
        let receiver = &mut self.opened.exchange.receiver;
        receiver.consume(count);
        if receiver.owes_credit() {
            self.move_on()?;
            self.has_moved = true;
        }
        Ok(())
    }

    /// Writes straight from the ring to a file.
    pub(crate) fn receive_into(
        &mut self,
        range: &FileRange<'_>,
        operation: &Operation<'_>,
    ) -> Result<u64, ChannelError> {
        let mut done = 0;
        while done < range.length {
            let left = usize::try_from(range.length - done).unwrap_or(usize::MAX);
            let ready = self.ready(operation)?.first(left);
            if ready.length == 0 {
                break;
            }
            let written = self
                .opened
                .incoming
                .write_to(range.file, range.offset + done, ready);
            let count = match written {
                Ok(0) => return Err(ChannelError::File(std::io::ErrorKind::WriteZero.into())),
                Ok(count) => count,
                Err(error) if error.raw_os_error() == Some(Errno::INTR.raw_os_error()) => continue,
                Err(error) => return Err(ChannelError::File(error)),
            };
            range.moved.fetch_add(count as u64, Ordering::Release);
            done += count as u64;
            self.consume(count)?;
        }
        Ok(done)
    }

    /// For those who want to see what is written.
    pub(crate) fn receive_through_memory(
        &mut self,
        range: FileRange<'_>,
        operation: &Operation<'_>,
    ) -> Result<u64, ChannelError> {
        let writer = range.writer();
        let mut done = 0;
        while done < range.length {
            let left = usize::try_from(range.length - done).unwrap_or(usize::MAX);
            let ready = self.ready(operation)?.first(left.min(range.scratch.len()));
            if ready.length == 0 {
                break;
            }
            let piece = &mut range.scratch[..ready.length];
            self.opened.incoming.copy_out(ready.offset, piece);
            writer.write(piece, done)?;
            done += ready.length as u64;
            self.consume(ready.length)?;
        }
        Ok(done)
    }

    /// Moves on until something is so, and sleeps where nothing can be moved.
    fn until(
        &mut self,
        operation: &Operation<'_>,
        is_so: impl Fn(&mut Opened) -> bool,
    ) -> Result<(), ChannelError> {
        self.progress()?;
        while !is_so(&mut self.opened) {
            self.wait(operation)?;
            self.progress()?;
        }
        Ok(())
    }

    /// Moves on; it is an error when nothing can be sent any more.
    fn progress(&mut self) -> Result<(), ChannelError> {
        self.move_on()?;
        if self.opened.exchange.is_over() {
            return Err(self.gone(ChannelError::PeerClosed));
        }
        Ok(())
    }

    /// Does all that can be done without waiting.
    fn move_on(&mut self) -> Result<(), ChannelError> {
        self.now = clock::now();
        let endpoint = self.opened.endpoint.as_mut();
        let moved = self.opened.exchange.advance(endpoint, self.now);
        moved.map_err(|fault| protocol(fault.to_string()))
    }

    /// Has the descriptor tell what happens from here on.
    fn watch(&mut self) -> Result<(), ChannelError> {
        let endpoint = self.opened.endpoint.as_mut();
        let watched = self.opened.exchange.watch(endpoint, self.now);
        watched.map_err(|fault| protocol(fault.to_string()))
    }

    /// Sleeps until something happens, or the pacer lets the next message go.
    fn wait(&mut self, operation: &Operation<'_>) -> Result<(), ChannelError> {
        self.watch()?;
        let paced_until = self.opened.exchange.next_at(self.now).map(clock::instant);
        let Some(paced_until) = paced_until else {
            return operation.wait_readable(self.descriptor());
        };
        let until = Operation {
            deadline: Some(
                operation
                    .deadline
                    .map_or(paced_until, |end| end.min(paced_until)),
            ),
            cancel: operation.cancel,
        };
        match until.wait_readable(self.descriptor()) {
            Err(ChannelError::DeadlineExceeded) => operation.check(),
            outcome => outcome,
        }
    }

    /// Why there is no queue pair left, where the peer went away in an orderly manner `closed`.
    fn gone(&self, closed: ChannelError) -> ChannelError {
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
