//! Creates an endpoint and connects its queue pairs.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use gridhaul_stack::{ChannelError, Operation, random_bytes};
use rustix::event::epoll;

use super::bindings::PORT_NEEDS_GLOBAL_ROUTES;
use super::connection_manager::{Connection, Introduction};
use super::control_socket::ControlSocket;
use super::counters::Counters;
use super::error::VerbsError;
use super::fabric::{MAX_READS, Path};
use super::objects::{CompletionQueue, Depths, Domain, OpenDevice, Registration};
use super::place::Place;
use super::ports::Protocol;
use super::queue_pair::{QueuePair, Shared, slot_bytes};
use super::retries::Retries;
use super::slot::{Connecting, Slot};
use super::{
    Armed, CONNECTION, DEVICE, MESSAGES, REQUESTS, RETRIES, VerbsEndpoint, explain_memlock,
};
use crate::memory::Memory;
use crate::provider::{
    Access, Fabric, FabricRecord, Limits, MAX_MESSAGE_BYTES, PortRecord, Wanted, Work,
};

/// Outstanding requests of one queue pair for a short ring, if the device supports so many.
pub(crate) const DEPTH: usize = 1024;

/// Requests of one queue pair that every device takes. Not all take as many as `max_qp_wr` together with their
/// segments (ibv_create_qp(3)).
const LEAST_DEPTH: usize = 128;

/// The object that was not created, in an error.
const QUEUE_PAIR: &str = "a queue pair";

/// The largest WRITE or READ in bytes: devices allow 2 GiB and count in 32 bits.
const MAX_TRANSFER_BYTES: u32 = 1 << 30;

impl VerbsEndpoint {
    /// An endpoint whose queue pairs are not connected.
    ///
    /// # Errors
    ///
    /// When the device cannot be used.
    pub(crate) fn new(place: &Place, wanted: Wanted) -> Result<Self, VerbsError> {
        let device = place.open()?;
        let mut wanted = wanted;
        loop {
            match Self::prepare(place, Arc::clone(&device), wanted) {
                Err((QUEUE_PAIR, error))
                    if is_too_deep(&error) && wanted.requests > LEAST_DEPTH =>
                {
                    wanted.requests = (wanted.requests / 2).max(LEAST_DEPTH);
                }
                outcome => return outcome.map_err(|(what, error)| place.failed(what, error)),
            }
        }
    }

    fn prepare(
        place: &Place,
        device: Arc<OpenDevice>,
        wanted: Wanted,
    ) -> Result<Self, (&'static str, io::Error)> {
        let queue_pairs = usize::from(wanted.queue_pairs);
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
        let is_iwarp = place.port.protocol == Protocol::Iwarp;
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
        };
        let domain = Domain::new(&device, is_iwarp).map_err(at("a protection domain"))?;
        let domain = Arc::new(domain);
        let vector = device.next_vector();
        let queue = |entries: usize| {
            let queue = CompletionQueue::new(&device, queue_pairs * entries, vector);
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
        let shared = Shared {
            domain,
            requests,
            messages,
            depths,
            slots: Arc::new(slots),
        };
        let mut endpoint = Self {
            slots: Vec::new(),
            regions: Vec::new(),
            watch: watch(&shared, &device).map_err(at("its descriptors"))?,
            shared,
            device,
            counters: Counters::of(&place.port.path()),
            place: place.clone(),
            path,
            peer_port: None,
            limits: Limits {
                queue_pairs,
                depth: depths.sends,
                reads: usize::from(path.reads),
                message_bytes: port.max_message_bytes.min(MAX_TRANSFER_BYTES) as usize,
                payload_bytes: wanted.payload_bytes,
                // RFC 5040 has none.
                immediate: !is_iwarp,
                over_tcp: is_iwarp,
                needs_polling: false,
                replaces: !is_iwarp,
            },
            control: None,
            has_ended: false,
            is_watched: false,
            polls: 0,
            is_armed: Armed::default(),
            failures: Vec::new(),
            retries: Retries::new(RETRIES),
            refreshed_at: None,
            absence: None,
        };
        for number in 0..queue_pairs {
            endpoint.add_queue_pair(number).map_err(at(QUEUE_PAIR))?;
        }
        Ok(endpoint)
    }

    fn add_queue_pair(&mut self, number: usize) -> io::Result<()> {
        let connecting = self.queue_pair(number, 0)?;
        self.slots.push(Slot::new(connecting));
        Ok(())
    }

    /// A queue pair that is not connected.
    pub(super) fn queue_pair(&self, number: usize, generation: u16) -> io::Result<Connecting> {
        let number = u8::try_from(number).map_err(io::Error::other)?;
        let queue_pair = QueuePair::new(&self.shared, number, generation)?;
        self.path.initialise(&queue_pair)?;
        Ok(Connecting {
            queue_pair,
            // InfiniBand architecture: 24 bits.
            first_packet: u32::from_be_bytes(random_bytes()) >> 8,
            is_connected: false,
            peer_is_connected: false,
        })
    }

    /// The parameters for the connection manager (iWARP).
    pub(crate) fn introduction<'a>(&self, number: u16, private: &'a [u8]) -> Introduction<'a> {
        let connecting = self.slots[usize::from(number)].connecting.as_ref();
        Introduction {
            number: connecting.map_or(0, |connecting| connecting.queue_pair.number()),
            reads: self.path.reads.min(self.path.port.reads),
            private,
        }
    }

    /// The connection manager has connected a queue pair (iWARP).
    pub(crate) fn attach(&mut self, number: u16, connection: Connection) {
        let slot = &mut self.slots[usize::from(number)];
        slot.current = slot.connecting.take().map(|connecting| {
            let mut queue_pair = connecting.queue_pair;
            queue_pair.hold(connection);
            queue_pair
        });
    }

    /// Keeps the data connection, which shows when the peer gives up (iWARP).
    ///
    /// # Errors
    ///
    /// When the kernel cannot watch it.
    pub(crate) fn keep(&mut self, data_connection: OwnedFd) -> io::Result<()> {
        self.control = Some(ControlSocket::new(
            data_connection,
            &self.watch,
            CONNECTION,
        )?);
        Ok(())
    }
}

impl Fabric for VerbsEndpoint {
    fn record(&self) -> FabricRecord {
        let connecting = self
            .slots
            .iter()
            .filter_map(|slot| slot.connecting.as_ref());
        FabricRecord {
            port: self.path.port,
            queue_pairs: connecting.map(Connecting::record).collect(),
        }
    }

    fn connect(&mut self, peer: &FabricRecord, data_connection: OwnedFd) -> io::Result<()> {
        if peer.queue_pairs.len() != self.slots.len() {
            return Err(io::Error::other(
                "the other end has another number of queue pairs",
            ));
        }
        self.path.check(&peer.port).map_err(io::Error::other)?;
        for (slot, other) in self.slots.iter_mut().zip(&peer.queue_pairs) {
            let Some(connecting) = slot.connecting.take() else {
                continue;
            };
            self.path.connect(&connecting, &peer.port, *other)?;
            slot.current = Some(connecting.queue_pair);
        }
        self.limits.reads = usize::from(self.path.reads_with(&peer.port));
        self.peer_port = Some(peer.port);
        if self.control.is_none() {
            self.keep(data_connection)?;
        }
        Ok(())
    }

    fn test_path(&mut self, work: Work, operation: &Operation<'_>) -> Result<bool, ChannelError> {
        self.packets_arrive(work, operation)
    }

    fn reconnect(&mut self) -> io::Result<()> {
        self.start_anew()
    }

    fn shorten_packets(&mut self) -> io::Result<bool> {
        self.shorten()
    }
}

/// Errors of devices that cannot create a queue pair with so many requests.
fn is_too_deep(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOMEM | libc::EINVAL))
}

/// Watches the queues and the device.
fn watch(shared: &Shared, device: &OpenDevice) -> io::Result<OwnedFd> {
    let watch = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for (descriptor, name) in [
        (shared.requests.descriptor(), REQUESTS),
        (shared.messages.descriptor(), MESSAGES),
        (device.descriptor(), DEVICE),
    ] {
        let name = epoll::EventData::new_u64(name);
        epoll::add(&watch, descriptor, name, epoll::EventFlags::IN)?;
    }
    Ok(watch)
}
