//! The verbs that the driver needs, and no more.
//!
//! A *provider* is hardware, its simulation, or a program that speaks its protocol. What a provider gives
//! a channel is an [`Endpoint`]: a protection domain, a completion queue, and one or more queue pairs that are
//! connected to those of the peer. Requests are posted and complete later, in order on each queue pair; the
//! requests of one queue pair arrive at the peer in order, those of different ones in any.
//!
//! Names follow the InfiniBand architecture and `ibv_post_send(3)`; what only some providers can do is in [`Limits`] or
//! left out (atomics, shared receive queues).
//!
//! Other crates can be providers too, and build the driver with [`crate::RdmaBy`].

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

/// Who gives channels their endpoints instead of those that the options choose from, over RoCE v2 or a path of its own. What
/// carries its messages need not look like that of others, so both ends of a channel have the same.
pub trait Provider: Send + Sync + fmt::Debug {
    /// What people call it.
    fn name(&self) -> &'static str;

    /// Whether it uses an RDMA adapter.
    fn needs_adapter(&self) -> bool {
        true
    }

    /// An endpoint that is not connected. `place` is the port of the adapter that has the data connection's address, or that
    /// the options name; `None` if none is needed.
    ///
    /// # Errors
    ///
    /// When the device cannot be used, or has no room.
    fn endpoint(&self, place: Option<&Place>, wanted: Wanted) -> io::Result<Box<dyn Fabric>>;
}

/// What a channel wants of its endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// The address of this end of the data connection.
    pub local: IpAddr,
    /// Queue pairs.
    pub queue_pairs: u16,
    /// Pieces that the peer announces at a time, at most.
    pub pieces: u16,
    /// What the peer's messages take along at most, in bytes.
    pub payload_bytes: usize,
    /// To the peer and back.
    pub round_trip: Duration,
}

/// An endpoint whose queue pairs are connected by what the two ends tell each other.
pub trait Fabric: Endpoint {
    /// What the peer has to know to connect.
    fn record(&self) -> FabricRecord;

    /// Connects all queue pairs to those of the peer. `beside` is the data connection: an end that is done closes it, and
    /// one that gives up resets it.
    ///
    /// # Errors
    ///
    /// When the peer has another number of queue pairs, or the device does not take what it says.
    fn connect(&mut self, peer: &FabricRecord, beside: OwnedFd) -> io::Result<()>;
}

/// One channel's side of a fabric.
pub trait Endpoint: Send + fmt::Debug {
    /// What can be asked of it.
    fn limits(&self) -> Limits;

    /// What an administrator wants to know of it: `provider`, and the `device`, `gid` and the like that it uses,
    /// and what it counts itself.
    fn details(&self) -> Vec<Detail> {
        Vec::new()
    }

    /// Makes memory known to the device.
    ///
    /// # Errors
    ///
    /// When the device cannot pin it, or not memory of this kind.
    fn register(&mut self, memory: &Arc<Memory>, access: Access) -> io::Result<Region>;

    /// Forgets a region that no request names which has not completed.
    fn deregister(&mut self, region: usize);

    /// In these parts of the memory that the peer may write to, nothing is needed of what lies behind its last WRITE. A
    /// provider may use them before it knows whether what comes belongs there. Until it is told, there are none.
    fn spare(&mut self, _parts: [Span; 2]) {}

    /// Whether the peer has written to every byte of this part of the memory that it may write to, since
    /// [`Endpoint::expect_anew`] named that byte last. A provider that does not see what is written says that it has: nothing else
    /// can be told then, and what is there are zeros, or bytes that came over this endpoint.
    fn is_written(&self, _part: Span) -> bool {
        true
    }

    /// The peer is about to be told that it may fill this part of the memory anew; what it wrote there before does not count
    /// any more.
    fn expect_anew(&mut self, _part: Span) {}

    /// Hands a request to a queue pair. It goes at the latest when the doorbell is rung. The memory that it names belongs to
    /// the device until its completion comes.
    ///
    /// # Errors
    ///
    /// When the queue pair is lost, or has [`Limits::depth`] requests already: whoever posts counts them.
    fn post(&mut self, queue_pair: usize, request: Request) -> Result<(), PostError>;

    /// What was posted goes, if it has not gone before: a device is told of many requests with one call.
    fn ring_doorbell(&mut self) {}

    /// Moves what can be moved without waiting, and adds what happened to `completions`.
    fn poll(&mut self, completions: &mut Vec<Completion>);

    /// Whoever sleeps on the descriptor afterwards is woken by what happens from here on: what the peer says, the loss of a
    /// queue pair, and where `heeds_requests` is set, requests that complete. What has happened since the last poll is added to
    /// `completions`. A device that is asked to tell less, and less often, wakes its user less often.
    fn watch(&mut self, _heeds_requests: bool, _completions: &mut Vec<Completion>) {}

    /// How fast the port sends, in bytes of payload per second, if anybody knows.
    fn port_rate(&self) -> Option<u64> {
        None
    }

    /// How often the device has gone back to repeat what the peer missed, counted from any beginning; on other channels as
    /// well, where it counts no finer. `None` if it does not count.
    fn repeats(&self) -> Option<u64> {
        None
    }

    /// How often the peer's device has said that it misses something, counted as [`Endpoint::repeats`]. Unlike those, that
    /// is never because somebody was only slow.
    fn misses(&self) -> Option<u64> {
        None
    }

    /// Becomes readable when [`Endpoint::poll`] has something to do, of whatever happens after [`Endpoint::watch`].
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// Throws one queue pair away: what the peer sends on it counts no more, and it does not complete anything.
    /// `false` if there is none of this number, or it is lost already.
    fn close(&mut self, queue_pair: usize) -> bool;

    /// Ends all queue pairs in an orderly manner, when all requests have completed: the peer hears that nothing more comes,
    /// what it still sends is thrown away, and each queue pair is told as lost when the peer has ended it too. Registered
    /// memory is given back, at the latest with the endpoint, and nothing is replaced any more.
    fn end(&mut self);

    /// Throws all queue pairs away, so that the peer notices that something went wrong.
    fn abort(&mut self);
}

/// What an endpoint can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Queue pairs there are.
    pub queue_pairs: usize,
    /// Requests of one queue pair that may be waiting for completion.
    pub depth: usize,
    /// READs of one queue pair that may be waiting for completion.
    pub reads: usize,
    /// The largest WRITE or READ, in bytes.
    pub message_bytes: usize,
    /// What a message may take along, in bytes; the peer's endpoint has room for as much.
    pub payload_bytes: usize,
    /// A WRITE can carry a number for the peer, and tell it that it has arrived.
    pub immediate: bool,
    /// Over TCP, which repeats what is lost by itself, and lets nothing pass while the peer's program takes nothing:
    /// a request that does not complete means nothing.
    pub over_tcp: bool,
    /// Requests are carried out while somebody polls, and not by a device of its own.
    pub needs_polling: bool,
    /// Queue pairs that are lost or closed are connected anew: [`Completion::Restored`] follows, or
    /// [`Completion::Lost`] for those that will not come back.
    pub replaces: bool,
}

/// What a peer may do with a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Nothing: it is the source of our own WRITEs.
    Local,
    /// Nothing: it is the sink of our own READs. On iWARP the device has to let the peer's device write the answers.
    Sink,
    /// Write to it.
    RemoteWrite,
    /// Read from it.
    RemoteRead,
}

/// Registered memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// Names it in requests.
    pub id: usize,
    /// Where peers say that it begins.
    pub address: u64,
    /// What peers prove their right with.
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
    /// Comes back with the completion.
    pub id: u64,
    pub work: Work,
}

/// What a work request does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Copies our memory to the peer's, which hears of it if there is a number for it: after all that was posted before on
    /// the queue pair, and where [`Limits::immediate`] is set.
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
    /// Sends a message, which the peer gets after all WRITEs that were posted before on the queue pair.
    Send(Message),
    /// The same, with a part of our memory behind what it says.
    Carry {
        message: Message,
        region: usize,
        span: Span,
    },
}

impl Work {
    /// The bytes that it moves; one at least.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Write { span, .. } | Self::Read { span, .. } => span.length.max(1),
            Self::Send(message) => message.as_bytes().len().max(1),
            Self::Carry { message, span, .. } => message.as_bytes().len() + span.length,
        }
    }
}

/// The longest message, without what it takes along.
pub const MAX_MESSAGE_BYTES: usize = 32;

/// A short message: what the two ends tell each other while data flows.
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

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Completion {
    /// A request is done; its memory is ours again.
    Done { queue_pair: usize, id: u64 },
    /// The peer sent a message, with what it takes along.
    Received { queue_pair: usize, message: Vec<u8> },
    /// The peer wrote so many bytes, and gave this number with them.
    Written {
        queue_pair: usize,
        immediate: u32,
        length: u32,
    },
    /// A queue pair is no more, and none of its requests will complete. Where [`Limits::replaces`] is set, it may
    /// be restored; told of one that is lost or closed already, it will not be.
    Lost { queue_pair: usize, loss: Loss },
    /// A queue pair that was lost or closed lives again, without requests. Nothing of those that were posted
    /// before is delivered any more, at either end.
    Restored { queue_pair: usize },
}

/// Why a queue pair is no more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Loss {
    /// The peer closed it, between two messages.
    Closed,
    /// The peer threw it away, or its host did.
    Reset,
    /// Something else, in words.
    Failed(String),
}

/// Why a request was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PostError {
    /// See [`Completion::Lost`].
    #[error("the queue pair is lost")]
    Lost,
    /// The caller lost count.
    #[error("the queue pair has as many requests as it can hold")]
    Full,
}
