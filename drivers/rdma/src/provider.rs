//! The verbs that the driver needs.
//!
//! A *provider* is hardware, a simulation of it, or a program that speaks its protocol. It gives a
//! channel an [`Endpoint`]: a protection domain, a completion queue, and one or more queue pairs
//! that are connected to those of the peer. Requests are posted and complete later, in order on
//! each queue pair. The requests of one queue pair arrive at the peer in order, those of different
//! queue pairs in any order.
//!
//! Names follow the InfiniBand architecture and `ibv_post_send(3)`. What only some providers
//! support is in [`Limits`] or left out (atomics, shared receive queues).
//!
//! Other crates can implement providers and build the driver with [`crate::RdmaBy`].

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use gridhaul_stack::Detail;

pub use crate::handshake::{FabricRecord, PortRecord, QueuePairRecord};
pub use crate::memory::{Memory, Span};
pub use crate::verbs::Place;

/// Provides endpoints in place of the providers that the options choose from. Its wire protocol may
/// be its own, so both ends of a channel need the same provider.
pub trait Provider: Send + Sync + fmt::Debug {
    /// Its name in logs and metrics.
    fn name(&self) -> &'static str;

    /// Whether it uses an RDMA adapter.
    fn needs_adapter(&self) -> bool {
        true
    }

    /// A new endpoint, not connected. `place` is the port of the adapter that has the data
    /// connection's address or that the options name; `None` if no adapter is needed.
    ///
    /// # Errors
    ///
    /// When the device cannot be used, or its resources are used up.
    fn endpoint(&self, place: Option<&Place>, wanted: Wanted) -> io::Result<Box<dyn Fabric>>;
}

/// A channel's requirements for its endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// The address of this end of the data connection.
    pub local: IpAddr,
    /// The number of queue pairs.
    pub queue_pairs: u16,
    /// The most pieces that the peer announces at a time.
    pub pieces: u16,
    /// The longest inline payload of the peer's messages in bytes.
    pub payload_bytes: usize,
    /// The round trip time to the peer.
    pub round_trip: Duration,
}

/// An endpoint whose queue pairs are connected by records that the two ends exchange.
pub trait Fabric: Endpoint {
    /// The record that the peer needs to connect.
    fn record(&self) -> FabricRecord;

    /// Connects all queue pairs to those of the peer. `beside` is the data connection: closing it
    /// tells the peer that this end is done, resetting it that this end gave up.
    ///
    /// # Errors
    ///
    /// When the peer has another number of queue pairs, or the device refuses the peer's values.
    fn connect(&mut self, peer: &FabricRecord, beside: OwnedFd) -> io::Result<()>;
}

/// One channel's endpoint.
pub trait Endpoint: Send + fmt::Debug {
    /// Its limits.
    fn limits(&self) -> Limits;

    /// Values for administrators: `provider`, the `device`, `gid` and the like in use, and counters
    /// of its own.
    fn details(&self) -> Vec<Detail> {
        Vec::new()
    }

    /// Registers memory with the device.
    ///
    /// # Errors
    ///
    /// When the device cannot pin it, or not memory of this kind.
    fn register(&mut self, memory: &Arc<Memory>, access: Access) -> io::Result<Region>;

    /// Deregisters a region that no outstanding request uses.
    fn deregister(&mut self, region: usize);

    /// Declares parts of the memory that the peer may write to as free of data beyond the peer's
    /// last WRITE. A provider may receive into them before it knows whether the data belongs there.
    /// Initially there are none.
    fn spare(&mut self, _parts: [Span; 2]) {}

    /// Whether the peer has written to every byte of this part since [`Endpoint::expect_anew`] last
    /// named it. A provider that cannot see WRITEs returns `true`; its memory then holds zeros, or
    /// bytes that came over this endpoint.
    fn is_written(&self, _part: Span) -> bool {
        true
    }

    /// The peer is about to be allowed to fill this part again; earlier WRITEs to it no longer
    /// count.
    fn expect_anew(&mut self, _part: Span) {}

    /// Posts a request to a queue pair. It is sent at the latest when the doorbell is rung. Its
    /// memory belongs to the device until it completes.
    ///
    /// # Errors
    ///
    /// When the queue pair is lost, or has [`Limits::depth`] requests already; the caller must
    /// count them.
    fn post(&mut self, queue_pair: usize, request: Request) -> Result<(), PostError>;

    /// Sends what was posted. One call may hand many requests to a device.
    fn ring_doorbell(&mut self) {}

    /// Moves what can be moved without waiting, and appends events to `completions`.
    fn poll(&mut self, completions: &mut Vec<Completion>);

    /// Arms the descriptor for events from now on: messages of the peer, the loss of a queue pair,
    /// and with `heeds_requests` also completed requests. Appends events since the last poll to
    /// `completions`. A device wakes its user less often if it is asked for fewer events.
    fn watch(&mut self, _heeds_requests: bool, _completions: &mut Vec<Completion>) {}

    /// The rate of the port in bytes of payload per second, if it is known.
    fn port_rate(&self) -> Option<u64> {
        None
    }

    /// The device's count of retransmissions (go-back-N), starting at any value. It includes other
    /// channels where the device does not count per queue pair. `None` if it does not count.
    fn repeats(&self) -> Option<u64> {
        None
    }

    /// The count of losses that the peer's device reported by NAK, like [`Endpoint::repeats`]. It
    /// does not grow when a host was merely slow.
    fn misses(&self) -> Option<u64> {
        None
    }

    /// Readable when [`Endpoint::poll`] has something to do after [`Endpoint::watch`].
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// Closes one queue pair: what the peer sends on it is discarded, and its requests do not
    /// complete. Returns `false` if its number is invalid or it is lost already.
    fn close(&mut self, queue_pair: usize) -> bool;

    /// Ends all queue pairs in an orderly manner after all requests have completed: the peer learns
    /// that no more data comes, what it still sends is discarded, and each queue pair is reported
    /// as lost when the peer has ended it as well. Registered memory is released, at the latest
    /// with the endpoint, and no queue pair is restored any more.
    fn end(&mut self);

    /// Aborts all queue pairs, so that the peer notices an error.
    fn abort(&mut self);
}

/// The limits and properties of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The number of queue pairs.
    pub queue_pairs: usize,
    /// Outstanding requests that one queue pair takes.
    pub depth: usize,
    /// Outstanding READs that one queue pair takes.
    pub reads: usize,
    /// The largest WRITE or READ, in bytes.
    pub message_bytes: usize,
    /// The longest inline payload of a message in bytes; the peer's endpoint has room for it.
    pub payload_bytes: usize,
    /// A WRITE can carry immediate data, which tells the peer that it has arrived.
    pub immediate: bool,
    /// It runs over TCP, which retransmits by itself and blocks while the peer's program reads
    /// nothing, so a request that does not complete proves no failure.
    pub over_tcp: bool,
    /// Requests are carried out by polls, and not by a device.
    pub needs_polling: bool,
    /// Lost or closed queue pairs are connected anew: [`Completion::Restored`] follows, or
    /// [`Completion::Lost`] for those that cannot be restored.
    pub replaces: bool,
}

/// What a peer may do with a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Nothing: it is the source of WRITEs.
    Local,
    /// Nothing: it is the sink of READs. On iWARP the peer's device needs the right to write the
    /// responses.
    Sink,
    /// Write to it.
    RemoteWrite,
    /// Read from it.
    RemoteRead,
}

/// Registered memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// Its number in requests.
    pub id: usize,
    /// Its address for the peer.
    pub address: u64,
    /// The key with which the peer proves its right.
    pub key: u32,
}

/// Memory of the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Remote {
    pub address: u64,
    pub key: u32,
}

/// A work request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Identifies its completion.
    pub id: u64,
    pub work: Work,
}

/// The operation of a work request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Copies our memory to the peer's. Immediate data tells the peer about it, after everything
    /// that was posted before on the queue pair; it needs [`Limits::immediate`].
    Write {
        region: usize,
        span: Span,
        to: Remote,
        immediate: Option<u32>,
    },
    /// Copies the peer's memory to ours.
    Read {
        region: usize,
        span: Span,
        from: Remote,
    },
    /// Sends a message. It arrives after all WRITEs that were posted before on the queue pair.
    Send(Message),
    /// The same, followed by a part of our memory.
    Carry {
        message: Message,
        region: usize,
        span: Span,
    },
}

impl Work {
    /// The bytes that it moves; at least one.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Write { span, .. } | Self::Read { span, .. } => span.length.max(1),
            Self::Send(message) => message.as_bytes().len().max(1),
            Self::Carry { message, span, .. } => message.as_bytes().len() + span.length,
        }
    }
}

/// The longest message without its payload.
pub const MAX_MESSAGE_BYTES: usize = 32;

/// A short message between the two ends while data flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message {
    bytes: [u8; MAX_MESSAGE_BYTES],
    length: usize,
}

impl Message {
    /// `None` if there are too many bytes.
    pub fn new(content: &[u8]) -> Option<Self> {
        let mut bytes = [0; MAX_MESSAGE_BYTES];
        bytes.get_mut(..content.len())?.copy_from_slice(content);
        Some(Self {
            bytes,
            length: content.len(),
        })
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// An event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Completion {
    /// A request has completed; its memory can be used again.
    Done { queue_pair: usize, id: u64 },
    /// The peer sent a message, with its inline payload.
    Received { queue_pair: usize, message: Vec<u8> },
    /// The peer wrote this many bytes with this immediate data.
    Written {
        queue_pair: usize,
        immediate: u32,
        length: u32,
    },
    /// A queue pair is lost, and none of its requests will complete. With [`Limits::replaces`] it
    /// may be restored; if it was lost or closed before, this event says that it will not be.
    Lost { queue_pair: usize, loss: Loss },
    /// A lost or closed queue pair works again, without requests. Nothing that was posted before
    /// will be delivered at either end.
    Restored { queue_pair: usize },
}

/// Why a queue pair was lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Loss {
    /// The peer closed it between two messages.
    Closed,
    /// The peer or its host reset it.
    Reset,
    /// Another reason, as text.
    Failed(String),
}

/// Why a request was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PostError {
    /// See [`Completion::Lost`].
    #[error("the queue pair is lost")]
    Lost,
    /// The caller's count is wrong.
    #[error("the queue pair has as many requests as it can hold")]
    Full,
}
