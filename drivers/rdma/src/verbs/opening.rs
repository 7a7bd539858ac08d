//! Creates an endpoint and connects its queue pairs.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use gridhaul_stack::{ChannelError, Operation, random_bytes};
use rustix::event::epoll;

use super::adapter::{Adapter, Rail};
use super::connect_turns::ConnectTurns;
use super::connection_manager::{Connection, Introduction};
use super::control_socket::ControlSocket;
use super::error::VerbsError;
use super::objects::OpenDevice;
use super::place::Place;
use super::ports::Protocol;
use super::queue_limits::LEAST_DEPTH;
use super::queue_pair::QueuePair;
use super::retries::Retries;
use super::slot::{Connecting, Proof, Slot};
use super::{CONNECTION, LATER, OF_ADAPTERS, RETRIES, VerbsEndpoint};
use crate::provider::{Fabric, FabricRecord, Limits, Wanted, Work, adapter_of, rail_of};

/// The object that was not created, in an error.
const QUEUE_PAIR: &str = "a queue pair";

impl VerbsEndpoint {
    /// An endpoint whose queue pairs are not connected, over so many rails from the ports at these places, which take turns.
    ///
    /// # Errors
    ///
    /// When a device cannot be used.
    pub(crate) fn new(places: &[Place], rails: usize, wanted: Wanted) -> Result<Self, VerbsError> {
        let places = &places[..places.len().min(rails)];
        let devices: Vec<_> = places.iter().map(Place::open).collect::<Result<_, _>>()?;
        let mut wanted = wanted;
        loop {
            let error = match Self::prepare(places, &devices, rails, wanted) {
                Ok(endpoint) => return Ok(endpoint),
                Err(error) => error,
            };
            wanted = match (shorter_queues(wanted), error) {
                (Some(shorter), (_, QUEUE_PAIR, error)) if is_too_deep(&error) => shorter,
                (_, (adapter, what, error)) => return Err(places[adapter].failed(what, error)),
            };
        }
    }

    /// The error names the adapter and the object.
    fn prepare(
        places: &[Place],
        devices: &[Arc<OpenDevice>],
        rails: usize,
        wanted: Wanted,
    ) -> Result<Self, (usize, &'static str, io::Error)> {
        let queue_pairs = usize::from(wanted.queue_pairs);
        let count = places.len();
        let (mut adapters, mut paths) = (Vec::new(), Vec::new());
        for (number, (place, device)) in places.iter().zip(devices).enumerate() {
            let on_it =
                |&queue_pair: &usize| adapter_of(rail_of(queue_pair, rails), count) == number;
            let of_it = (0..queue_pairs).filter(on_it).count();
            let (mut adapter, path) = Adapter::new(place, device, wanted, of_it)
                .map_err(|(what, error)| (number, what, error))?;
            adapter.id = number as u64;
            adapters.push(adapter);
            paths.push(path);
        }
        let rails: Vec<_> = (0..rails)
            .map(|rail| {
                let adapter = adapter_of(rail, count);
                Rail {
                    adapter,
                    path: paths[adapter],
                    peer_port: None,
                }
            })
            .collect();
        let is_iwarp = paths.iter().any(|path| path.protocol == Protocol::Iwarp);
        let least = |of: fn(&Adapter) -> usize| adapters.iter().map(of).min().unwrap_or(0);
        let mut endpoint = Self {
            slots: Vec::new(),
            watch: watch(&adapters).map_err(|error| (0, "its descriptors", error))?,
            limits: Limits {
                queue_pairs,
                rails: rails.len(),
                depth: least(|adapter| adapter.shared.depths.sends),
                reads: usize::from(paths.iter().map(|path| path.reads).min().unwrap_or(0)),
                message_bytes: least(|adapter| adapter.transfer_bytes),
                payload_bytes: wanted.payload_bytes,
                // RFC 5040 has none.
                immediate: !is_iwarp,
                over_tcp: is_iwarp,
                needs_polling: false,
                replaces: !is_iwarp,
            },
            turns: ConnectTurns::new(rails.len()),
            rails,
            adapters,
            control: None,
            has_ended: false,
            is_watched: false,
            polls: 0,
            failures: Vec::new(),
            retries: Retries::new(RETRIES),
            later: Retries::new(LATER),
            unreachable: Vec::new(),
            skipped: Vec::new(),
            working_rails: 0,
        };
        for number in 0..queue_pairs {
            let connecting = endpoint.queue_pair(number, 0);
            let adapter = adapter_of(rail_of(number, endpoint.rails.len()), count);
            let connecting = connecting.map_err(|error| (adapter, QUEUE_PAIR, error))?;
            endpoint.slots.push(Slot::new(connecting));
        }
        Ok(endpoint)
    }

    /// A queue pair that is not connected.
    pub(super) fn queue_pair(&self, number: usize, generation: u16) -> io::Result<Connecting> {
        let rail = *self.rail(number);
        let on_adapter = |&other: &usize| self.rail(other).adapter == rail.adapter;
        // Its place in the adapter's memory for messages.
        let place = (0..number).filter(on_adapter).count();
        let number = u8::try_from(number).map_err(io::Error::other)?;
        let shared = &self.adapters[rail.adapter].shared;
        let queue_pair = QueuePair::new(shared, number, place, generation)?;
        rail.path.initialise(&queue_pair)?;
        Ok(Connecting {
            queue_pair,
            // InfiniBand architecture: 24 bits.
            first_packet: u32::from_be_bytes(random_bytes()) >> 8,
            is_connected: false,
            peer_is_connected: false,
            proof: Proof::None,
        })
    }

    /// Closes the adapters that no rail uses any more, which ends their registrations of memory.
    fn release_adapters(&mut self) {
        for number in (0..self.adapters.len()).rev() {
            if self.rails.iter().any(|rail| rail.adapter == number) {
                continue;
            }
            let adapter = self.adapters.remove(number);
            for (descriptor, _) in adapter.descriptors() {
                // While the channel opens, others have the device open, so that its descriptor would still be watched.
                let _ = epoll::delete(&self.watch, descriptor);
            }
            let later = self.rails.iter_mut().filter(|rail| rail.adapter > number);
            later.for_each(|rail| rail.adapter -= 1);
        }
    }

    /// The parameters for the connection manager (iWARP).
    pub(crate) fn introduction<'a>(&self, number: u16, private: &'a [u8]) -> Introduction<'a> {
        let connecting = self.slots[usize::from(number)].connecting.as_ref();
        Introduction {
            number: connecting.map_or(0, |connecting| connecting.queue_pair.number()),
            reads: self.rails[0].path.reads.min(self.rails[0].path.port.reads),
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
            ports: self.rails.iter().map(|rail| rail.path.port).collect(),
            queue_pairs: connecting.map(Connecting::record).collect(),
        }
    }

    fn skip(&mut self, rail: usize) {
        self.skipped.push(rail);
    }

    fn connect(&mut self, peer: &FabricRecord, data_connection: OwnedFd) -> io::Result<()> {
        if peer.queue_pairs.len() != self.slots.len() || peer.ports.len() != self.rails.len() {
            return Err(io::Error::other(
                "the other end has another number of queue pairs or adapters",
            ));
        }
        for (rail, port) in self.rails.iter_mut().zip(&peer.ports) {
            rail.path.check(port).map_err(io::Error::other)?;
            rail.peer_port = Some(*port);
        }
        self.unreachable = vec![None; self.rails.len()];
        let skipped = std::mem::take(&mut self.skipped);
        for (number, other) in peer.queue_pairs.iter().enumerate() {
            let rail = *self.rail(number);
            let on_rail = rail_of(number, peer.ports.len());
            let port = &peer.ports[on_rail];
            let slot = &mut self.slots[number];
            let Some(connecting) = slot.connecting.take() else {
                continue;
            };
            // The kernel has waited a second for the neighbour's address, and would again.
            if skipped.contains(&on_rail) || self.unreachable[on_rail].is_some() {
                continue;
            }
            match rail.path.connect(&connecting, port, *other) {
                Ok(()) => {}
                Err(error) if is_without_way(&error) => {
                    self.unreachable[on_rail] = Some(error.to_string());
                    continue;
                }
                Err(error) => return Err(error),
            }
            slot.current = Some(connecting.queue_pair);
        }
        let reads = self.rails.iter().zip(&peer.ports);
        let reads = reads.map(|(rail, port)| rail.path.reads_with(port));
        self.limits.reads = usize::from(reads.min().unwrap_or(0));
        if self.control.is_none() {
            self.keep(data_connection)?;
        }
        self.count_rails();
        Ok(())
    }

    fn test_path(
        &mut self,
        work: &dyn Fn(usize) -> Option<Work>,
        operation: &Operation<'_>,
    ) -> Result<Vec<bool>, ChannelError> {
        self.packets_arrive(work, operation)
    }

    fn unreachable(&self, rail: usize) -> Option<&str> {
        self.unreachable.get(rail)?.as_deref()
    }

    fn reconnect(&mut self) -> io::Result<()> {
        self.start_anew()
    }

    fn shorten_packets(&mut self, rail: usize) -> bool {
        self.shorten(rail)
    }

    fn leave_out(&mut self, rail: usize) {
        // The numbers of later queue pairs change, so the present ones end.
        for slot in &mut self.slots {
            slot.clear();
        }
        let rails = self.rails.len();
        let mut numbers = 0..;
        let is_other = |_: &Slot| {
            numbers
                .next()
                .is_some_and(|number| rail_of(number, rails) != rail)
        };
        self.slots.retain(is_other);
        self.rails.remove(rail);
        self.turns.remove(rail);
        (self.limits.queue_pairs, self.limits.rails) = (self.slots.len(), self.rails.len());
        self.release_adapters();
    }
}

/// The same with half of the longer queue; `None` if every device takes both. The peer's device waits where messages find no
/// buffer, so that a short queue for them costs time only.
fn shorter_queues(wanted: Wanted) -> Option<Wanted> {
    let half = |depth: usize| (depth / 2).max(LEAST_DEPTH);
    if wanted.requests.max(wanted.messages) <= LEAST_DEPTH {
        return None;
    }
    Some(if wanted.messages > wanted.requests {
        Wanted {
            messages: half(wanted.messages),
            ..wanted
        }
    } else {
        Wanted {
            requests: half(wanted.requests),
            ..wanted
        }
    })
}

/// Errors of devices that cannot create a queue pair with so many requests.
fn is_too_deep(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOMEM | libc::EINVAL))
}

/// Errors of the kernel when it resolves the address of the peer (RoCE): the port is active, and nothing answers behind it.
fn is_without_way(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ETIMEDOUT | libc::EHOSTUNREACH | libc::ENETUNREACH)
    )
}

/// Watches the queues and the devices.
fn watch(adapters: &[Adapter]) -> io::Result<OwnedFd> {
    let watch = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for adapter in adapters {
        for (descriptor, kind) in adapter.descriptors() {
            let name = epoll::EventData::new_u64(adapter.id << OF_ADAPTERS | kind);
            epoll::add(&watch, descriptor, name, epoll::EventFlags::IN)?;
        }
    }
    Ok(watch)
}
