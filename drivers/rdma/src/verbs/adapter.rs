//! The adapters of this end, and the rails over them.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use super::bindings::PORT_NEEDS_GLOBAL_ROUTES;
use super::connection_manager::{Route, RouteSearch};
use super::counters::Counters;
use super::explain_memlock;
use super::fabric::Path;
use super::objects::{CompletionQueue, Depths, Domain, OpenDevice, Registration};
use super::place::Place;
use super::ports::Protocol;
use super::queue_limits::MAX_READS;
use super::queue_pair::{Shared, slot_bytes};
use super::{DEVICE, MESSAGES, REQUESTS, vectors};
use crate::memory::Memory;
use crate::provider::{Access, MAX_MESSAGE_BYTES, PortRecord, Wanted};

/// The largest WRITE or READ in bytes: devices allow 2 GiB and count in 32 bits.
const MAX_TRANSFER_BYTES: u32 = 1 << 30;

/// An open device of this end, and what all queue pairs over it share.
#[derive(Debug)]
pub(super) struct Adapter {
    /// Part of the identifiers of its watched descriptors.
    pub(super) id: u64,
    // Fields are dropped in this order.
    /// By number; all adapters have the same regions.
    pub(super) regions: Vec<Option<Registration>>,
    pub(super) shared: Shared,
    pub(super) device: Arc<OpenDevice>,
    pub(super) place: Place,
    pub(super) counters: Arc<Counters>,
    pub(super) is_armed: Armed,
    /// The largest WRITE or READ in bytes.
    pub(super) transfer_bytes: usize,
    /// When the tables of the port were last read from sysfs.
    pub(super) refreshed_at: Option<Duration>,
    /// What they lacked then.
    pub(super) absence: Option<String>,
    /// A search for the path from its port, for which replacements of queue pairs wait.
    pub(super) route_search: Option<RouteSearch>,
    /// It has had a fatal error, and gets no queue pairs any more.
    pub(super) is_broken: bool,
}

/// The completion queues with an armed event.
#[derive(Debug, Default)]
pub(super) struct Armed {
    pub(super) requests: bool,
    pub(super) messages: bool,
}

/// A path from an adapter of this end to one of the peer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rail {
    /// The number of the adapter.
    pub(super) adapter: usize,
    pub(super) path: Path,
    /// The peer's port, once the queue pairs are connected.
    pub(super) peer_port: Option<PortRecord>,
}

impl Rail {
    /// Of both ports, and of the path once it is tested.
    pub(super) fn mtu(&self) -> u8 {
        let theirs = self.peer_port.map_or(u8::MAX, |port| port.mtu);
        self.path.port.mtu.min(theirs)
    }

    /// Whether a path leads to the peer's port.
    pub(super) fn is_of(&self, route: &Route) -> bool {
        self.peer_port
            .is_some_and(|port| port.gid == route.gids.peer)
    }
}

impl Adapter {
    /// An adapter with the resources for so many queue pairs, and the path from its port. The error names the object that was
    /// not created.
    pub(super) fn new(
        place: &Place,
        device: &Arc<OpenDevice>,
        wanted: Wanted,
        queue_pairs: usize,
    ) -> Result<(Self, Path), (&'static str, io::Error)> {
        let at = |what| move |error| (what, error);
        let attributes = device.attributes().map_err(at("the attributes"))?;
        let port = device.port(place.port.number).map_err(at("a port"))?;
        let count = |number: i32| usize::try_from(number).unwrap_or(0);
        let entries = count(attributes.max_completions) / queue_pairs;
        let requests = count(attributes.max_requests);
        // If the device cannot hold as many, the peer's device retries after a while.
        let receives = wanted.messages.min(entries / 2).min(requests);
        let depths = Depths {
            sends: wanted.requests.min(requests).min(entries - receives),
            receives,
            message_bytes: MAX_MESSAGE_BYTES + wanted.payload_bytes,
        };
        let reads = |number: i32| u8::try_from(number).unwrap_or(MAX_READS).min(MAX_READS);
        let path = Path {
            port: PortRecord {
                gid: place.gid,
                lid: port.lid,
                mtu: place.mtu(port.active_mtu, wanted.path_mtu),
                partition: place.partition.key.0,
                reads: reads(attributes.max_reads_answered),
            },
            port_number: place.port.number,
            gid_index: place.gid_index,
            protocol: place.port.protocol,
            partition: place.partition,
            needs_global_routes: port.flags & PORT_NEEDS_GLOBAL_ROUTES != 0,
            traffic_class: place.device_options.traffic_class,
            service_level: place.device_options.service_level,
            route: place.route,
            reads: reads(attributes.max_reads),
            round_trip: wanted.round_trip,
            is_software: place.port.is_software,
            rate: wanted.rate,
            limit: None,
            rate_range: wanted.rate.and_then(|_| device.rate_range()),
        };
        let adapter = Self {
            id: 0,
            regions: Vec::new(),
            shared: shared(place, device, depths, queue_pairs)?,
            device: Arc::clone(device),
            counters: Counters::of(&place.port.path()),
            place: place.clone(),
            is_armed: Armed::default(),
            transfer_bytes: port.max_message_bytes.min(MAX_TRANSFER_BYTES) as usize,
            refreshed_at: None,
            absence: None,
            route_search: None,
            is_broken: false,
        };
        Ok((adapter, path))
    }

    /// The descriptors that are watched as long as it is used, each with its kind.
    pub(super) fn descriptors(&self) -> [(BorrowedFd<'_>, u64); 3] {
        [
            (self.shared.requests.descriptor(), REQUESTS),
            (self.shared.messages.descriptor(), MESSAGES),
            (self.device.descriptor(), DEVICE),
        ]
    }

    /// A region of ours.
    pub(super) fn region(&self, number: usize) -> &Registration {
        self.regions[number].as_ref().expect("a region of ours")
    }

    /// Takes the events of the completion queues; returns whether there were any.
    pub(super) fn take_events(&mut self) -> bool {
        let Armed { requests, messages } = &mut self.is_armed;
        let was_armed = (*requests, *messages);
        *messages = *messages && !self.shared.messages.take_event();
        *requests = *requests && !self.shared.requests.take_event();
        was_armed != (*requests, *messages)
    }

    /// Arms an event for the next message, and for the next completed request if that is wanted. Returns whether one was not
    /// armed before.
    ///
    /// # Errors
    ///
    /// When the device is gone.
    pub(super) fn arm(&mut self, wants_requests: bool) -> io::Result<bool> {
        let mut arms = false;
        if !self.is_armed.messages {
            self.shared.messages.arm()?;
            (arms, self.is_armed.messages) = (true, true);
        }
        if wants_requests && !self.is_armed.requests {
            self.shared.requests.arm()?;
            (arms, self.is_armed.requests) = (true, true);
        }
        Ok(arms)
    }
}

fn shared(
    place: &Place,
    device: &Arc<OpenDevice>,
    depths: Depths,
    queue_pairs: usize,
) -> Result<Shared, (&'static str, io::Error)> {
    let at = |what| move |error| (what, error);
    let is_iwarp = place.port.protocol == Protocol::Iwarp;
    let domain = Domain::new(device, is_iwarp).map_err(at("a protection domain"))?;
    let domain = Arc::new(domain);
    let vector = vectors::next_of(place.device(), device.completion_vectors());
    let queue = |entries: usize| {
        let queue = CompletionQueue::new(device, queue_pairs * entries, vector);
        queue.map(Arc::new).map_err(at("a completion queue"))
    };
    let (requests, messages) = (queue(depths.sends)?, queue(depths.receives)?);
    let bytes = slot_bytes(depths) * queue_pairs;
    let memory = bytes
        .try_into()
        .map_err(io::Error::other)
        .and_then(Memory::new)
        .map_err(at("memory for messages"))?;
    let slots = Registration::new(&domain, &Arc::new(memory), Access::Sink)
        .map_err(|error| ("memory for messages", explain_memlock(error, bytes)))?;
    Ok(Shared {
        domain,
        requests,
        messages,
        depths,
        slots: Arc::new(slots),
    })
}
