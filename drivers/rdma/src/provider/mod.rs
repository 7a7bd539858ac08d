//! The interface between the driver and its providers.
//!
//! A *provider* is hardware, a simulation of it, or a program that speaks its protocol. It gives a
//! channel an [`Endpoint`]: a protection domain, a completion queue, and one or more queue pairs
//! that are connected to those of the peer. Requests are posted and complete later, in order on
//! each queue pair. The requests of one queue pair arrive at the peer in order, those of different
//! queue pairs in any order.
//!
//! Names follow the InfiniBand architecture and `ibv_post_send(3)`. [`Limits`] lists the features that
//! only some providers have. Atomics and shared receive queues are not used.
//!
//! Other crates can implement providers and build the driver with [`crate::RdmaBy`].

mod address;
mod completion;
mod rails;
mod registrar;
mod request;

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

pub use gridhaul_iwarp::{
    Access, Loss, MAX_MESSAGE_BYTES, Message, PostError, Region, Remote, Span,
};
use gridhaul_stack::{ChannelError, Detail, Operation};

pub use self::address::{AdapterPort, FabricRecord, Gids, PortRecord, QueuePairRecord};
pub use self::completion::Completion;
pub use self::rails::MAX_RAILS;
pub(crate) use self::rails::{
    Keys, RemoteRing, adapter_of, all_repeats, keys_of, part_of_rate, queue_pairs_on, rail_of,
};
pub use self::registrar::{Registered, Registrar};
pub use self::request::{Request, Work};
pub use crate::memory::Memory;

/// Provides endpoints in place of the providers that the options choose from. Its wire protocol may
/// be its own, so both ends of a channel need the same provider.
pub trait Provider: Send + Sync + fmt::Debug {
    /// Its name in logs and metrics.
    fn name(&self) -> &'static str;

    /// Whether it uses an RDMA adapter.
    fn needs_adapter(&self) -> bool {
        true
    }

    /// A new endpoint, not connected. `port` belongs to the adapter that has the data connection's
    /// address or that the options name; `None` if no adapter is needed.
    ///
    /// # Errors
    ///
    /// When the device cannot be used, or its resources are used up.
    fn endpoint(&self, port: Option<&AdapterPort>, wanted: Wanted) -> io::Result<Box<dyn Fabric>>;
}

/// A channel's requirements for its endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// The address of this end of the data connection.
    pub local: IpAddr,
    /// The number of queue pairs.
    pub queue_pairs: u16,
    /// Requests of this end that may be outstanding on one queue pair, if the device takes so many.
    pub requests: usize,
    /// Messages of the peer that may be outstanding on one queue pair.
    pub messages: usize,
    /// The longest inline payload of the peer's messages in bytes.
    pub payload_bytes: usize,
    /// The round trip time to the peer.
    pub round_trip: Duration,
    /// The longest IP packet that gets to the peer's host, if TCP knows it.
    pub path_mtu: Option<u32>,
    /// The rate in bytes of payload per second of the path of each rail, if it is known. The queue pairs of all channels of the
    /// path share it.
    pub rate: Option<u64>,
}

/// An endpoint whose queue pairs are connected by records that the two ends exchange.
pub trait Fabric: Endpoint {
    /// The record that the peer needs to connect.
    fn record(&self) -> FabricRecord;

    /// Leaves the queue pairs of a rail out of the next connection, because its path is known to be unusable.
    fn skip(&mut self, _rail: usize) {}

    /// Connects all queue pairs to those of the peer. The endpoint closes the data connection
    /// when this end has finished, and resets it when this end gives up. Where the device finds no way to the peer, the test of the
    /// path fails.
    ///
    /// # Errors
    ///
    /// When the peer has another number of queue pairs, or the device refuses the peer's values.
    fn connect(&mut self, peer: &FabricRecord, data_connection: OwnedFd) -> io::Result<()>;

    /// Whether a WRITE or READ is acknowledged on every queue pair of each rail; `work` is that of a queue pair, or `None` for one
    /// that is not tested. A provider that does not test that returns `true`.
    ///
    /// # Errors
    ///
    /// When the operation ends before, or the device refuses the work.
    fn test_path(
        &mut self,
        _work: &dyn Fn(usize) -> Option<Work>,
        _operation: &Operation<'_>,
    ) -> Result<Vec<bool>, ChannelError> {
        Ok(vec![true])
    }

    /// Why the device found no way to the peer on a rail.
    fn unreachable(&self, _rail: usize) -> Option<&str> {
        None
    }

    /// Replaces all queue pairs by unconnected ones, in a new record, because a test of the path has failed.
    ///
    /// # Errors
    ///
    /// When the device has no more resources.
    fn reconnect(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Sends shorter packets on a rail once it is connected again. `false` if there are none shorter.
    fn shorten_packets(&mut self, _rail: usize) -> bool {
        false
    }

    /// Leaves out one of several rails, with its queue pairs, once the others are connected again. Later rails and queue pairs
    /// get lower numbers.
    fn leave_out(&mut self, _rail: usize) {}
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

    /// The keys of a region at further adapters, in their order; no more than [`MAX_RAILS`] with the first one. Each region of
    /// an endpoint has as many.
    fn further_keys(&self, _region: usize) -> Vec<u32> {
        Vec::new()
    }

    /// Registers memory from another thread, where that takes long because memory is pinned.
    fn registrar(&self) -> Option<Box<dyn Registrar>> {
        None
    }

    /// Takes over what its registrar has registered.
    ///
    /// # Errors
    ///
    /// When it is not from a registrar of such an endpoint.
    fn adopt(&mut self, _registered: Registered) -> io::Result<Region> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Deregisters a region that no outstanding request uses. Its key becomes invalid, that of long memory somewhat later; the memory
    /// stays mapped and counts until then.
    fn deregister(&mut self, region: usize);

    /// Declares parts of a region that the peer may write to as free of data beyond the peer's
    /// last WRITE. A provider may receive into them before it has checked the destination of the data.
    /// Initially there are none, and those of the last call count.
    fn spare(&mut self, _region: usize, _parts: [Span; 2]) {}

    /// Whether the peer has written to every byte of this part of a region since
    /// [`Endpoint::expect_anew`] last named it. A provider that cannot see WRITEs returns `true`; its
    /// memory then holds zeros, or bytes that came over this endpoint.
    fn is_written(&self, _region: usize, _part: Span) -> bool {
        true
    }

    /// The peer is about to be allowed to fill this part of a region again; earlier WRITEs to it no
    /// longer count.
    fn expect_anew(&mut self, _region: usize, _part: Span) {}

    /// Posts a request to a queue pair. It is sent at the latest when the doorbell is rung. Its
    /// memory belongs to the device until it completes.
    ///
    /// # Errors
    ///
    /// When the queue pair is lost, or has [`Limits::depth`] requests already; the caller must
    /// count them.
    fn post(&mut self, queue_pair: usize, request: Request) -> Result<(), PostError>;

    /// Sends the posted requests. One call may hand many of them to a device.
    fn ring_doorbell(&mut self) {}

    /// Moves what can be moved without waiting, and appends events to `completions`.
    fn poll(&mut self, completions: &mut Vec<Completion>);

    /// Arms the descriptor for events from now on: messages of the peer, the loss of a queue pair,
    /// and with `wants_requests` also completed requests. With fewer armed events a device causes
    /// fewer wake-ups. Appends events since the last poll to `completions`.
    fn watch(&mut self, _wants_requests: bool, _completions: &mut Vec<Completion>) {}

    /// The ports between which a rail's packets go; `None` where the addresses of the data connection are theirs.
    fn gids(&self, _rail: usize) -> Option<Gids> {
        None
    }

    /// The rate of a rail's port in bytes of payload per second, if it is known.
    fn port_rate(&self, _rail: usize) -> Option<u64> {
        None
    }

    /// The count of retransmissions (go-back-N) of a rail's device, starting at any value. It includes other
    /// channels where the device does not count per queue pair. `None` if it does not count.
    fn repeats(&self, _rail: usize) -> Option<u64> {
        None
    }

    /// The count of losses that the peer's device reported by NAK, like [`Endpoint::repeats`]. Delays of
    /// a host do not increase it.
    fn misses(&self, _rail: usize) -> Option<u64> {
        None
    }

    /// Whether the devices of all rails limit their queue pairs as [`Endpoint::limit_rate`] told them last.
    fn limits_rate(&self) -> bool {
        false
    }

    /// Limits each queue pair of a rail, and those that replace them, to a rate in bytes of payload per second. Returns whether the
    /// device does so; if not, the limits of all rails are lifted.
    fn limit_rate(&mut self, _rail: usize, _rate: u64) -> bool {
        false
    }

    /// Lifts the limits of all rails.
    fn lift_limits(&mut self) {}

    /// Readable when there is an event for [`Endpoint::poll`] after [`Endpoint::watch`].
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// Closes one queue pair: data that the peer sends on it is discarded, and its requests do not
    /// complete. Returns `false` if its number is invalid or it is lost already.
    fn close(&mut self, queue_pair: usize) -> bool;

    /// Ends all queue pairs in an orderly manner after all requests have completed: the peer sees the
    /// end of the data, data that it still sends is discarded, and each queue pair is reported as lost
    /// when the peer has ended it as well. Registered memory is released, at the latest with the
    /// endpoint, and queue pairs are no longer restored.
    fn end(&mut self);

    /// Aborts all queue pairs, so that the peer notices an error.
    fn abort(&mut self);
}

/// The limits and properties of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The number of queue pairs.
    pub queue_pairs: usize,
    /// The number of rails, which the queue pairs take turns with; 1 with a single adapter at each end.
    pub rails: usize,
    /// Outstanding requests that one queue pair takes.
    pub depth: usize,
    /// Outstanding READs that one queue pair takes.
    pub reads: usize,
    /// The largest WRITE or READ, in bytes.
    pub message_bytes: usize,
    /// The longest inline payload of a message in bytes; the peer's endpoint has room for it.
    pub payload_bytes: usize,
    /// A WRITE can carry immediate data, which signals its arrival to the peer.
    pub immediate: bool,
    /// It runs over TCP, which retransmits, and blocks while the peer's program does not read. So a
    /// request that does not complete is not a failure.
    pub over_tcp: bool,
    /// Requests are carried out by polls, and not by a device.
    pub needs_polling: bool,
    /// Lost or closed queue pairs are connected anew: [`Completion::Restored`] follows, or
    /// [`Completion::Lost`] for those that cannot be restored.
    pub replaces: bool,
}
