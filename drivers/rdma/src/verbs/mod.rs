//! The provider `verbs`: RDMA adapters and the kernel's software devices, through libibverbs.
//!
//! The libraries are loaded at first use, so the program needs them neither to be built nor to
//! start. A channel has a protection domain of its own, so that keys of one channel are invalid on
//! another. The memory of an open device is small compared with a ring.
//!
//! Completions are read without system calls. Only a caller that is about to sleep arms an event for
//! the next one, and then polls once more, because a completion in between causes no event. Events
//! for requests are armed only while the engine waits for a request.
//!
//! A channel may use several adapters at once: [`adapter`] has their objects, and queue pair `n` is on rail `n` modulo the
//! number of rails. A rail that fails loses its queue pairs, and the others go on.
//!
//! The device works without being polled. The data connection stays open as a control socket: it
//! shows how the peer ended, and carries the notices that replace a lost queue pair.

mod adapter;
mod bindings;
mod connect_turns;
mod connection_manager;
mod control_socket;
mod counters;
mod device_options;
mod error;
mod events;
mod examine;
mod fabric;
mod inspect;
mod ipoib;
mod limiter;
mod mtu;
mod objects;
mod opening;
mod partition;
mod path_test;
mod place;
mod ports;
mod queue_limits;
mod queue_pair;
mod rate_limits;
mod regions;
mod registrar;
mod replacement;
mod requests;
mod reroute;
mod retries;
mod slot;
mod sysfs;
mod timer;
mod vectors;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use gridhaul_stack::Detail;

use self::adapter::{Adapter, Rail};
use self::connect_turns::ConnectTurns;
pub(crate) use self::connection_manager::{Connection, ConnectionError, Listener};
use self::control_socket::{ControlSocket, Peer};
pub(crate) use self::device_options::{AdapterName, DeviceOptions};
pub(crate) use self::error::VerbsError;
pub(crate) use self::examine::examine;
pub(crate) use self::inspect::{fastest_port, has_devices, inspect};
pub(crate) use self::place::Place;
pub(crate) use self::ports::Protocol;
pub(crate) use self::queue_limits::{DEPTH, QueueLimits};
use self::queue_pair::QueuePair;
use self::registrar::Registrations;
use self::retries::Retries;
use self::slot::Slot;
use crate::memory::Memory;
use crate::provider::{
    Access, Completion, Endpoint, Gids, Limits, Loss, Message, PostError, Region, Registered,
    Registrar, Request, Work, rail_of,
};

// Identifiers of watched descriptors. Those of an adapter have its identifier in the higher bits.
const REQUESTS: u64 = 0;
const MESSAGES: u64 = 1;
const DEVICE: u64 = 2;
const CONNECTION: u64 = 3;
const RETRIES: u64 = 4;
const ROUTE: u64 = 5;
const LATER: u64 = 6;
const OF_ADAPTERS: u32 = 8;

/// How many polls in a row may skip the system call that checks for other events.
const MAX_POLLS: u32 = 16;

/// One channel's queue pairs.
#[derive(Debug)]
pub(crate) struct VerbsEndpoint {
    // Fields are dropped in this order: queue pairs before the memory that they use.
    slots: Vec<Slot>,
    /// The queue pairs take turns with them.
    rails: Vec<Rail>,
    adapters: Vec<Adapter>,
    limits: Limits,
    /// The data connection, once the queue pairs are connected.
    control: Option<ControlSocket>,
    watch: OwnedFd,
    /// Messages of the peer are ignored from now on.
    has_ended: bool,
    /// The events were armed after the last poll.
    is_watched: bool,
    /// Polls since other events were last checked.
    polls: u32,
    /// Reported by the next poll.
    failures: Vec<Failure>,
    /// Replacements that begin later.
    retries: Retries,
    /// Replacements that are connected later.
    later: Retries,
    turns: ConnectTurns,
    /// Why a device found no way to the peer, by rail, at the last connection.
    unreachable: Vec<Option<String>>,
    /// The rails that the next connection leaves out.
    skipped: Vec<usize>,
    /// The rails that worked before the peer ended.
    working_rails: usize,
}

/// A queue pair that refused a request, or could not be replaced.
#[derive(Debug)]
struct Failure {
    queue_pair: usize,
    /// The generation in which it failed.
    generation: u16,
    loss: Loss,
}

impl VerbsEndpoint {
    fn is_iwarp(&self) -> bool {
        self.rails[0].path.protocol == Protocol::Iwarp
    }

    /// The rail of a queue pair.
    fn rail(&self, number: usize) -> &Rail {
        &self.rails[rail_of(number, self.rails.len())]
    }

    /// The adapter of a queue pair.
    fn adapter(&self, number: usize) -> &Adapter {
        &self.adapters[self.rail(number).adapter]
    }

    /// The queue pairs over an adapter.
    fn numbers_on(&self, adapter: usize) -> Vec<usize> {
        let on_it = |number: &usize| self.rail(*number).adapter == adapter;
        (0..self.slots.len()).filter(on_it).collect()
    }

    /// Sends an empty message as the last one on each queue pair. It arrives after everything that was
    /// sent before.
    fn send_last_messages(&mut self) {
        let last = Message::new(&[]).expect("an empty message is short");
        for slot in &mut self.slots {
            if let Some(queue_pair) = &mut slot.current {
                queue_pair.send(0, &last);
            }
        }
    }
}

impl Endpoint for VerbsEndpoint {
    fn limits(&self) -> Limits {
        self.limits
    }

    fn details(&self) -> Vec<Detail> {
        let first = &self.adapters[self.rails[0].adapter];
        let ports = self.adapters.iter().map(|adapter| &adapter.place.port);
        let devices: Vec<_> = ports
            .map(|port| format!("{}/{}", port.device, port.number))
            .collect();
        let regions = self.adapters.iter().flat_map(|adapter| &adapter.regions);
        let pinned_bytes: usize = regions
            .flatten()
            .map(|region| region.memory().length())
            .sum();
        let mtu = self.rails.iter().map(Rail::mtu).min().unwrap_or(mtu::LEAST);
        let mut details = vec![
            Detail::text("provider", "verbs"),
            Detail::text("device", devices.join("+")),
            Detail::text("protocol", first.place.port.protocol.name()),
            Detail::setting("gid", u64::from(first.place.gid_index)),
            Detail::setting("mtu-bytes", mtu::bytes(mtu)),
            Detail::holding("pinned-bytes", pinned_bytes as u64),
        ];
        if self.rails.len() > 1 {
            details.push(Detail::setting("rails", self.working_rails as u64));
        }
        if self.is_limited() {
            details.push(Detail::text("limiter", "adapter"));
        }
        if first.place.port.protocol == Protocol::InfiniBand {
            let key = self.rails[0].path.partition.key;
            details.push(Detail::text("pkey", key.to_string()));
        }
        details
    }

    fn gids(&self, rail: usize) -> Option<Gids> {
        let rail = self.rails.get(rail)?;
        Some(Gids {
            local: rail.path.port.gid,
            peer: rail.peer_port?.gid,
        })
    }

    fn port_rate(&self, rail: usize) -> Option<u64> {
        self.adapters[self.rails.get(rail)?.adapter]
            .place
            .port_rate()
    }

    fn repeats(&self, rail: usize) -> Option<u64> {
        self.adapters[self.rails.get(rail)?.adapter]
            .counters
            .repeats()
    }

    fn misses(&self, rail: usize) -> Option<u64> {
        self.adapters[self.rails.get(rail)?.adapter]
            .counters
            .misses()
    }

    fn limits_rate(&self) -> bool {
        self.is_limited()
    }

    fn limit_rate(&mut self, rail: usize, rate: u64) -> bool {
        self.limit_rail(rail, rate)
    }

    fn lift_limits(&mut self) {
        self.lift_all_limits();
    }

    fn register(&mut self, memory: &Arc<Memory>, access: Access) -> io::Result<Region> {
        self.register_at_all(memory, access)
    }

    fn registrar(&self) -> Option<Box<dyn Registrar>> {
        Some(Box::new(self.registrar_of_all()))
    }

    fn adopt(&mut self, registered: Registered) -> io::Result<Region> {
        let registrations: Option<Registrations> = registered.into_inner();
        self.add_region(registrations.ok_or(io::ErrorKind::InvalidInput)?)
    }

    fn further_keys(&self, region: usize) -> Vec<u32> {
        self.keys_after_first(region)
    }

    fn deregister(&mut self, region: usize) {
        self.remove_region(region);
    }

    fn post(&mut self, number: usize, request: Request) -> Result<(), PostError> {
        if self.has_ended {
            // The memory is released, and lost data need not be sent again.
            return Err(PostError::Lost);
        }
        let is_open = match self.peer() {
            Peer::Connected => true,
            Peer::Closed => self.is_iwarp(),
            Peer::Reset => false,
        };
        let rail = self.rails[rail_of(number, self.rails.len())];
        let adapter = &self.adapters[rail.adapter];
        let Some(queue_pair) = self.slots[number].current.as_mut().filter(|_| is_open) else {
            return Err(PostError::Lost);
        };
        if queue_pair.is_full() {
            return Err(PostError::Full);
        }
        let id = request.id;
        match &request.work {
            Work::Write {
                region,
                span,
                to,
                immediate,
            } => queue_pair.write(id, adapter.region(*region), *span, *to, *immediate),
            Work::Read { region, span, from } => {
                queue_pair.read(id, adapter.region(*region), *span, *from)
            }
            Work::Send(message) => queue_pair.send(id, message),
            Work::Carry {
                message,
                region,
                span,
            } => queue_pair.carry(id, message, adapter.region(*region), *span),
        }
        Ok(())
    }

    fn ring_doorbell(&mut self) {
        for number in 0..self.slots.len() {
            let current = self.slots[number].current.as_mut();
            if let Some(Err(error)) = current.map(QueuePair::ring_doorbell) {
                let words = format!("{}: {error}", self.adapter(number).place.device());
                self.fail(number, words);
            }
        }
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) {
        self.turns.begin();
        self.count_rails();
        self.drain(completions);
        self.polls += 1;
        let was_watched = std::mem::take(&mut self.is_watched);
        if was_watched && !self.take_events() || self.polls >= MAX_POLLS {
            self.polls = 0;
            self.check_other_events(completions);
        }
        self.handle_peer_end(completions);
        self.report_failures(completions);
        self.attribute_losses_to_peer(completions);
    }

    fn watch(&mut self, wants_requests: bool, completions: &mut Vec<Completion>) {
        self.is_watched = true;
        self.arm(wants_requests || self.awaits_proof(), completions);
        self.hurry();
        self.report_failures(completions);
        self.attribute_losses_to_peer(completions);
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.watch.as_fd()
    }

    fn close(&mut self, queue_pair: usize) -> bool {
        let Some(slot) = self.slots.get_mut(queue_pair) else {
            return false;
        };
        let was_connected = slot.current.take().is_some();
        if was_connected && self.limits.replaces {
            self.replace(queue_pair);
        }
        was_connected
    }

    fn end(&mut self) {
        self.has_ended = true;
        self.limits.replaces = false;
        if self.is_iwarp() {
            // RFC 5040 7.2: a WRITE of the peer to memory that is not registered ends the stream at
            // once, with everything still in flight to the peer. The peer may write until it has
            // received the last message.
            self.send_last_messages();
            return self.ring_doorbell();
        }
        if let Some(control) = &mut self.control {
            control.close();
        }
        for adapter in &mut self.adapters {
            adapter.regions.clear();
        }
    }

    fn abort(&mut self) {
        if let Some(control) = &mut self.control {
            control.reset();
        }
        self.limits.replaces = false;
        for slot in &mut self.slots {
            slot.clear();
        }
    }
}

/// Adds the limit on locked memory to the error of a registration.
fn explain_memlock(error: io::Error, bytes: usize) -> io::Error {
    let Some(libc::ENOMEM) = error.raw_os_error() else {
        return error;
    };
    let limit = rustix::process::getrlimit(rustix::process::Resource::Memlock);
    let limit = limit
        .current
        .map_or_else(|| "unlimited".to_owned(), |bytes| format!("{bytes} bytes"));
    io::Error::other(format!(
        "{error}: {bytes} bytes cannot be locked in memory, and the limit is {limit} (ulimit -l, or \
         LimitMEMLOCK=infinity in the unit of systemd)"
    ))
}
