//! An endpoint: queue pairs, and the memory that they access.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::epoll;

use crate::buffer::{Buffer, Span};
use crate::event::{Event, Loss};
use crate::handshake::{Connection, READ_DEPTH};
use crate::limits::Limits;
use crate::placed::Placed;
use crate::queue_pair::QueuePair;
use crate::regions::Regions;
use crate::request::{Access, MAX_MESSAGE_BYTES, PostError, Region, Request};

/// Outstanding requests of one queue pair. Each takes a few bytes here; data in flight is in TCP's
/// buffers.
const DEPTH: usize = 1024;

/// The largest WRITE or READ; lengths are 32-bit numbers.
const MAX_TRANSFER_BYTES: usize = 1 << 30;

/// Queue pairs, each a TCP connection, and the memory that they access.
#[derive(Debug)]
pub struct Endpoint {
    queue_pairs: Vec<QueuePair>,
    regions: Regions,
    /// The bytes that the peer has written.
    placed: Placed,
    limits: Limits,
    /// The epoll descriptor of the connections, with the number of a queue pair as identifier.
    watch: OwnedFd,
    /// For each queue pair, whether epoll waits for room to send as well.
    watches_room: Vec<bool>,
    /// A connection has checksums.
    has_checksum: bool,
}

impl Endpoint {
    /// An endpoint without queue pairs. Messages of the peer have payloads of up to `payload_bytes`,
    /// in as many segments as its adapter makes of them. The peer writes to at most `places` that do
    /// not touch each other before it gets credit for them ([`Endpoint::expect_anew`]).
    ///
    /// # Errors
    ///
    /// When the process has no descriptor left.
    pub fn new(payload_bytes: usize, places: usize) -> io::Result<Self> {
        Ok(Self {
            queue_pairs: Vec::new(),
            regions: Regions::default(),
            placed: Placed::new(places),
            limits: Limits {
                queue_pairs: 0,
                requests: DEPTH,
                reads: usize::from(READ_DEPTH),
                transfer_bytes: MAX_TRANSFER_BYTES,
                payload_bytes,
            },
            watch: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            watches_room: Vec::new(),
            has_checksum: false,
        })
    }

    /// Makes a connection the next queue pair.
    ///
    /// # Errors
    ///
    /// When epoll cannot watch it.
    pub fn attach(&mut self, connection: Connection) -> io::Result<()> {
        let data = epoll::EventData::new_u64(self.queue_pairs.len() as u64);
        epoll::add(&self.watch, &connection.socket, data, epoll::EventFlags::IN)?;
        self.limits.queue_pairs += 1;
        self.limits.reads = self.limits.reads.min(usize::from(connection.reads));
        self.watches_room.push(false);
        self.has_checksum |= connection.terms.has_checksum;
        let message_bytes = MAX_MESSAGE_BYTES + self.limits.payload_bytes;
        let queue_pair = QueuePair::new(connection.socket, connection.terms, message_bytes);
        self.queue_pairs.push(queue_pair);
        Ok(())
    }

    /// The limits, which depend on the attached connections.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Registers memory.
    ///
    /// # Errors
    ///
    /// When checksums are negotiated, and only system calls may read the memory.
    pub fn register(&mut self, memory: Arc<dyn Buffer>, access: Access) -> io::Result<Region> {
        if memory.is_for_system_calls() && self.has_checksum {
            let words = "checksums need memory that the processor may read";
            return Err(io::Error::new(io::ErrorKind::Unsupported, words));
        }
        Ok(self.regions.add(memory, access))
    }

    /// Deregisters a region that no outstanding request uses.
    ///
    /// # Panics
    ///
    /// When no region ever had this number.
    pub fn deregister(&mut self, region: usize) {
        if let Some(memory) = self.regions.remove(region) {
            // Other memory may get these addresses.
            let all = Span::new(0, memory.length());
            self.placed.forget(all.addresses_in(memory.as_ref()));
        }
    }

    /// Declares parts of a region that the peer may write to as free of data beyond the peer's
    /// last WRITE. Predicted segments are received into them before their headers are checked.
    /// Initially there are none, and those of the last call count.
    pub fn spare(&mut self, region: usize, parts: [Span; 2]) {
        self.regions.set_spare(region, parts);
    }

    /// Whether the peer has written to every byte of this part of a region since
    /// [`Endpoint::expect_anew`] last named it.
    pub fn is_written(&self, region: usize, part: Span) -> bool {
        let place = self.regions.place(region, part);
        place.is_some_and(|place| self.placed.covers(place))
    }

    /// The peer gets credit to fill this part of a region again; earlier WRITEs to it no longer count.
    pub fn expect_anew(&mut self, region: usize, part: Span) {
        if let Some(place) = self.regions.place(region, part) {
            self.placed.forget(place);
        }
    }

    /// Posts a request to a queue pair. Its memory belongs to the endpoint until it completes:
    /// [`Event::Done`] with this identifier.
    ///
    /// # Errors
    ///
    /// When the queue pair is lost, or has as many requests as [`Limits`] allow.
    ///
    /// # Panics
    ///
    /// When there is no queue pair or region of this number, or a READ has 4 GiB or more: it may
    /// have [`Limits::transfer_bytes`] at most.
    pub fn post(&mut self, queue_pair: usize, id: u64, request: Request) -> Result<(), PostError> {
        self.queue_pairs[queue_pair].post(id, request, &self.regions, &self.limits)
    }

    /// Moves what can be moved without waiting, and appends events.
    pub fn poll(&mut self, events: &mut Vec<Event>) {
        for (number, queue_pair) in self.queue_pairs.iter_mut().enumerate() {
            let (regions, placed) = (&self.regions, &mut self.placed);
            queue_pair.poll(number, regions, placed, &self.limits, events);
        }
        if let Err(error) = self.watch_room() {
            // The descriptors are valid, so only kernel memory can be short. Without the watch the
            // endpoint would sleep for ever.
            for queue_pair in 0..self.queue_pairs.len() {
                let loss = Loss::Failed(error.to_string());
                events.push(Event::Lost { queue_pair, loss });
            }
        }
    }

    /// Readable when [`Endpoint::poll`] has something to do.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.watch.as_fd()
    }

    /// Resets one queue pair. Returns `false` if its number is invalid or it is lost already.
    pub fn close(&mut self, queue_pair: usize) -> bool {
        let queue_pair = self.queue_pairs.get_mut(queue_pair);
        queue_pair.is_some_and(QueuePair::abort)
    }

    /// Ends all queue pairs in an orderly manner after all requests have completed: data that still
    /// arrives is discarded, and each queue pair is reported as lost when the peer has ended it as
    /// well. All regions are deregistered.
    pub fn end(&mut self) {
        for queue_pair in &mut self.queue_pairs {
            queue_pair.end();
        }
        self.regions = Regions::default();
    }

    /// Resets all queue pairs.
    pub fn abort(&mut self) {
        for queue_pair in &mut self.queue_pairs {
            queue_pair.abort();
        }
    }

    /// Waits for room only in sockets that have something to send.
    fn watch_room(&mut self) -> io::Result<()> {
        let pairs = self.queue_pairs.iter().zip(&mut self.watches_room);
        for (number, (queue_pair, watches)) in pairs.enumerate() {
            let wants = queue_pair.wants_to_send();
            let Some(socket) = queue_pair.socket().filter(|_| wants != *watches) else {
                continue;
            };
            let mut flags = epoll::EventFlags::IN;
            flags.set(epoll::EventFlags::OUT, wants);
            let data = epoll::EventData::new_u64(number as u64);
            epoll::modify(&self.watch, socket, data, flags)?;
            *watches = wants;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
