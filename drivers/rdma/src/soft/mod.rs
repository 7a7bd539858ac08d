//! The provider `soft`: iWARP in user space, over TCP sockets (RFC 5044, 5041, 5040, 6581).
//!
//! It works on every machine and speaks the protocol of iWARP adapters and of Linux's siw, so a
//! host without an adapter can talk to one that has one. A WRITE completes when TCP has accepted
//! its bytes, as with siw; only messages of the peer tell what has arrived.
//!
//! It has no thread of its own: bytes move in [`Endpoint::poll`] only. It does not pace, retransmit
//! or control congestion; TCP does.

mod handshake;
pub(crate) mod mpa;
mod placed;
mod prediction;
mod queue_pair;
mod receive;
mod regions;
pub(crate) mod segment;
mod socket;
mod transmit;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use gridhaul_stack::Detail;
use rustix::event::epoll;
use rustix::net::sockopt;

pub(crate) use handshake::{Established, HandshakeError, Offer, establish};
use placed::Placed;
use queue_pair::QueuePair;
use regions::Regions;

use crate::memory::{Memory, Span};
use crate::provider::{
    Access, Completion, Endpoint, Limits, Loss, MAX_MESSAGE_BYTES, PostError, Region, Request,
};

/// Outstanding requests of one queue pair. Each takes a few bytes here; data in flight is in TCP's
/// buffers.
const DEPTH: usize = 1024;

/// Outstanding READs of one queue pair in each direction.
pub(crate) const READ_DEPTH: u16 = 64;

/// The largest WRITE or READ; lengths are 32-bit numbers.
const MAX_TRANSFER_BYTES: usize = 1 << 30;

/// One channel's queue pairs, each a TCP connection.
#[derive(Debug)]
pub(crate) struct SoftEndpoint {
    queue_pairs: Vec<QueuePair>,
    regions: Regions,
    /// What the peer has written to the region that it may write to.
    placed: Placed,
    limits: Limits,
    /// The epoll descriptor of the connections, with the number of a queue pair as identifier.
    watch: OwnedFd,
    /// For each queue pair, whether epoll waits for room to send as well.
    watches_room: Vec<bool>,
    /// A connection has checksums.
    has_checksum: bool,
    /// The data connection, if it is no queue pair.
    beside: Option<OwnedFd>,
}

impl SoftEndpoint {
    /// An endpoint without queue pairs. Inline payloads are bounded in bytes, equally at both ends,
    /// however many segments an adapter makes of them. The peer has up to `messages` in flight.
    ///
    /// # Errors
    ///
    /// When the process has no descriptor left.
    pub(crate) fn new(payload_bytes: usize, messages: usize) -> io::Result<Self> {
        Ok(Self {
            queue_pairs: Vec::new(),
            regions: Regions::default(),
            // A message announces each part that was written.
            placed: Placed::new(messages),
            limits: Limits {
                queue_pairs: 0,
                depth: DEPTH,
                reads: usize::from(READ_DEPTH),
                message_bytes: MAX_TRANSFER_BYTES,
                payload_bytes,
                immediate: false,
                over_tcp: true,
                needs_polling: true,
                replaces: false,
            },
            watch: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            watches_room: Vec::new(),
            has_checksum: false,
            beside: None,
        })
    }

    /// Makes a connection the next queue pair after its MPA handshake.
    ///
    /// # Errors
    ///
    /// When epoll cannot watch it.
    pub(crate) fn attach(&mut self, connection: Established) -> io::Result<()> {
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

    /// Makes a connection the next queue pair without MPA frames, for fuzzing.
    ///
    /// # Errors
    ///
    /// As [`SoftEndpoint::attach`].
    #[cfg(any(test, fuzzing))]
    pub(crate) fn attach_stranger(
        &mut self,
        socket: OwnedFd,
        has_checksum: bool,
    ) -> io::Result<()> {
        self.attach(Established {
            socket,
            terms: queue_pair::Terms {
                has_checksum,
                segment_bytes: mpa::MAX_PAYLOAD_BYTES,
            },
            reads: READ_DEPTH,
        })
    }

    /// Keeps the data connection open; an adapter at the other end learns from it whether this end
    /// finished or failed.
    pub(crate) fn keep(&mut self, beside: OwnedFd) {
        self.beside = Some(beside);
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

impl Endpoint for SoftEndpoint {
    fn limits(&self) -> Limits {
        self.limits
    }

    fn details(&self) -> Vec<Detail> {
        vec![Detail::text("provider", "soft")]
    }

    fn register(&mut self, memory: &Arc<Memory>, access: Access) -> io::Result<Region> {
        if memory.is_file() && self.has_checksum {
            let words = "the processor sums what is sent, and may not touch a file's pages";
            return Err(io::Error::new(io::ErrorKind::Unsupported, words));
        }
        Ok(self.regions.add(memory, access))
    }

    fn deregister(&mut self, region: usize) {
        self.regions.remove(region);
    }

    fn spare(&mut self, parts: [Span; 2]) {
        self.regions.set_spare(parts);
    }

    fn is_written(&self, part: Span) -> bool {
        self.placed.covers(part)
    }

    fn expect_anew(&mut self, part: Span) {
        self.placed.forget(part);
    }

    fn post(&mut self, queue_pair: usize, request: Request) -> Result<(), PostError> {
        self.queue_pairs[queue_pair].post(request, &self.regions, &self.limits)
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) {
        for (number, queue_pair) in self.queue_pairs.iter_mut().enumerate() {
            let (regions, placed) = (&self.regions, &mut self.placed);
            queue_pair.poll(number, regions, placed, &self.limits, completions);
        }
        if let Err(error) = self.watch_room() {
            // The descriptors are valid, so only kernel memory can be short. Without the watch the
            // endpoint would sleep for ever.
            for queue_pair in 0..self.queue_pairs.len() {
                let loss = Loss::Failed(error.to_string());
                completions.push(Completion::Lost { queue_pair, loss });
            }
        }
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.watch.as_fd()
    }

    fn close(&mut self, queue_pair: usize) -> bool {
        let queue_pair = self.queue_pairs.get_mut(queue_pair);
        queue_pair.is_some_and(QueuePair::abort)
    }

    fn end(&mut self) {
        for queue_pair in &mut self.queue_pairs {
            queue_pair.end();
        }
        self.regions = Regions::default();
    }

    fn abort(&mut self) {
        if let Some(beside) = self.beside.take() {
            // With a linger time of zero, close sends a reset (socket(7)).
            let _ = sockopt::set_socket_linger(&beside, Some(Duration::ZERO));
        }
        for queue_pair in &mut self.queue_pairs {
            queue_pair.abort();
        }
    }
}

#[cfg(test)]
mod tests;
