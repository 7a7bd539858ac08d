//! A user whose bytes a disk moves (the option `direct`): it asks for parts of the rings, whose bytes are there later.
//!
//! While requests are in flight, the places of their bytes must stay what they are, in the ring that they were asked for.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::{RunEnd, content};
use crate::memory::{Buffer, Memory, Span};
use crate::sim::random::Random;

/// The requests of one end, in the order of the streams.
#[derive(Debug)]
pub(crate) struct Disk {
    random: Random,
    /// From the disk to the ring.
    reads: VecDeque<DiskRequest>,
    /// How much of this end's stream was asked for.
    asked: u64,
    /// From the ring to the disk, all of them from this region.
    writes: VecDeque<DiskRequest>,
    region: usize,
    /// The position in the peer's stream of the next byte to ask for.
    position: u64,
}

#[derive(Debug)]
struct DiskRequest {
    memory: Arc<Memory>,
    span: Span,
    done_at: Duration,
}

/// The most requests in each direction.
const MOST: usize = 4;

impl Disk {
    pub(crate) fn new(random: Random) -> Self {
        Self {
            random,
            reads: VecDeque::new(),
            asked: 0,
            writes: VecDeque::new(),
            region: 0,
            position: 0,
        }
    }

    /// When the next request is done.
    pub(super) fn next_at(&self) -> Option<Duration> {
        let next = [&self.reads, &self.writes].map(VecDeque::front);
        next.into_iter().flatten().map(|one| one.done_at).min()
    }

    /// Takes what was read and written, and asks for more. Returns how many bytes were taken or asked for.
    pub(super) fn work(&mut self, end: &mut RunEnd, now: Duration) -> u64 {
        let written = self.take_written(end, now) + self.write(end, now);
        let read = self.take_read(end, now) + self.read(end, now);
        if end.sent == end.length {
            end.exchange.sender.finish();
        } else if self.reads.is_empty() {
            // A full ring is sent without waiting for more.
            end.exchange.sender.flush();
        }
        written + read
    }

    fn take_read(&mut self, end: &mut RunEnd, now: Duration) -> u64 {
        let before = end.sent;
        while let Some(read) = next_done(&mut self.reads, now) {
            let Span { offset, length } = read.span;
            read.memory.copy_in(offset, &content(end.sent, length));
            end.exchange.sender.fill(length);
            end.sent += length as u64;
        }
        end.sent - before
    }

    fn read(&mut self, end: &mut RunEnd, now: Duration) -> u64 {
        let before = self.asked;
        while self.reads.len() < MOST && !end.exchange.waits_for_disk() {
            let room = end.exchange.sender.further_room().span;
            let left = end.length.min(end.there) - self.asked;
            let room = room.first(usize::try_from(left).unwrap_or(usize::MAX));
            let span = room.first(self.part(room.length));
            let [outgoing, _] = end.memories.as_ref().expect("a disk has content");
            if span.length == 0 {
                break;
            }
            let memory = Arc::clone(outgoing);
            self.asked += span.length as u64;
            end.exchange.sender.promise(span.length as u64);
            let request = self.request(memory, span, now);
            self.reads.push_back(request);
        }
        self.asked - before
    }

    fn take_written(&mut self, end: &mut RunEnd, now: Duration) -> u64 {
        let before = end.received;
        while let Some(write) = next_done(&mut self.writes, now) {
            let Span { offset, length } = write.span;
            let mut bytes = vec![0; length];
            write.memory.copy_out(offset, &mut bytes);
            let from = end.received;
            assert!(bytes == content(from, length), "from byte {from} on");
            // The sender may overwrite consumed bytes at any time.
            write.memory.copy_in(offset, &vec![0xee; length]);
            end.exchange.receiver.consume(length);
            end.received += length as u64;
        }
        end.received - before
    }

    fn write(&mut self, end: &mut RunEnd, now: Duration) -> u64 {
        let mut asked = 0;
        while self.writes.len() < MOST {
            let receiver = &end.exchange.receiver;
            if self.writes.is_empty() {
                (self.position, self.region) = (receiver.consumed(), receiver.region());
            }
            let stretch = receiver.ready_from(self.position);
            let span = stretch.span.first(self.part(stretch.span.length));
            if span.length == 0 || stretch.region != self.region {
                break;
            }
            let incoming = end.exchange.incoming().expect("a disk has content");
            let request = self.request(Arc::clone(incoming), span, now);
            self.writes.push_back(request);
            self.position = stretch.position + span.length as u64;
            asked += span.length as u64;
        }
        asked
    }

    /// A part of so many bytes, or all of them.
    fn part(&mut self, length: usize) -> usize {
        let share = [length / 7, length / 2, length][self.random.index(3)];
        share.clamp(usize::from(length > 0), length)
    }

    fn request(&mut self, memory: Arc<Memory>, span: Span, now: Duration) -> DiskRequest {
        DiskRequest {
            memory,
            span,
            done_at: now + Duration::from_micros(self.random.below(5000)),
        }
    }
}

/// The first request, if it is done.
fn next_done(requests: &mut VecDeque<DiskRequest>, now: Duration) -> Option<DiskRequest> {
    let is_done = requests.front().is_some_and(|first| first.done_at <= now);
    is_done.then(|| requests.pop_front()).flatten()
}
