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
//! The device works without being polled. The data connection stays open as a control socket: it
//! shows how the peer ended, and carries the notices that replace a lost queue pair.

mod bindings;
mod connection_manager;
mod control_socket;
mod counters;
mod device_options;
mod error;
mod events;
mod fabric;
mod inspect;
mod ipoib;
mod mtu;
mod objects;
mod opening;
mod partition;
mod path_test;
mod place;
mod ports;
mod queue_pair;
mod replacement;
mod requests;
mod retries;
mod slot;
mod sysfs;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use gridhaul_stack::Detail;

pub(crate) use self::connection_manager::{Connection, ConnectionError, Listener};
use self::control_socket::{ControlSocket, Peer};
use self::counters::Counters;
pub(crate) use self::device_options::DeviceOptions;
pub(crate) use self::error::VerbsError;
use self::fabric::Path;
pub(crate) use self::inspect::{fastest_port, has_devices, inspect};
use self::objects::{OpenDevice, Registration};
pub(crate) use self::opening::DEPTH;
pub(crate) use self::place::Place;
pub(crate) use self::ports::Protocol;
use self::queue_pair::{QueuePair, Shared};
use self::retries::Retries;
use self::slot::Slot;
use crate::memory::Memory;
use crate::provider::PortRecord;
use crate::provider::{
    Access, Completion, Endpoint, Limits, Loss, Message, PostError, Region, Request, Work,
};

// Identifiers of watched descriptors.
const REQUESTS: u64 = 0;
const MESSAGES: u64 = 1;
const DEVICE: u64 = 2;
const CONNECTION: u64 = 3;
const RETRIES: u64 = 4;

/// How many polls in a row may skip the system call that checks for other events.
const MAX_POLLS: u32 = 16;

/// One channel's queue pairs.
#[derive(Debug)]
pub(crate) struct VerbsEndpoint {
    // Fields are dropped in this order: queue pairs before the memory that they use.
    slots: Vec<Slot>,
    /// By number.
    regions: Vec<Option<Registration>>,
    shared: Shared,
    device: Arc<OpenDevice>,
    place: Place,
    counters: Arc<Counters>,
    path: Path,
    limits: Limits,
    /// The peer's port and the data connection, once the queue pairs are connected.
    peer_port: Option<PortRecord>,
    control: Option<ControlSocket>,
    watch: OwnedFd,
    /// Messages of the peer are ignored from now on.
    has_ended: bool,
    /// The events were armed after the last poll.
    is_watched: bool,
    /// Polls since other events were last checked.
    polls: u32,
    is_armed: Armed,
    /// Reported by the next poll.
    failures: Vec<Failure>,
    /// Replacements that begin later.
    retries: Retries,
    /// When the tables of the port were last read from sysfs.
    refreshed_at: Option<Duration>,
    /// What they lacked then.
    absence: Option<String>,
}

/// The completion queues with an armed event.
#[derive(Debug, Default)]
struct Armed {
    requests: bool,
    messages: bool,
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
    /// Of both ports, and of the path once it is tested.
    fn mtu(&self) -> u8 {
        let theirs = self.peer_port.map_or(u8::MAX, |port| port.mtu);
        self.path.port.mtu.min(theirs)
    }

    fn is_iwarp(&self) -> bool {
        self.path.protocol == Protocol::Iwarp
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
        let port = &self.place.port;
        let regions = self.regions.iter().flatten();
        let pinned_bytes: usize = regions.map(|region| region.memory().length()).sum();
        let mut details = vec![
            Detail::text("provider", "verbs"),
            Detail::text("device", format!("{}/{}", port.device, port.number)),
            Detail::text("protocol", port.protocol.name()),
            Detail::setting("gid", u64::from(self.place.gid_index)),
            Detail::setting("mtu-bytes", mtu::bytes(self.mtu())),
            Detail::holding("pinned-bytes", pinned_bytes as u64),
        ];
        if port.protocol == Protocol::InfiniBand {
            details.push(Detail::text("pkey", self.path.partition.key.to_string()));
        }
        details
    }

    fn port_rate(&self) -> Option<u64> {
        self.place.port.payload_rate()
    }

    fn repeats(&self) -> Option<u64> {
        self.counters.repeats()
    }

    fn misses(&self) -> Option<u64> {
        self.counters.misses()
    }

    fn register(&mut self, memory: &Arc<Memory>, access: Access) -> io::Result<Region> {
        let access = match access {
            // RFC 5040 5.2: the peer writes what we READ, by the key that the request names.
            Access::Sink if self.is_iwarp() => Access::RemoteWrite,
            other => other,
        };
        let registration = Registration::new(&self.shared.domain, memory, access)
            .map_err(|error| explain_memlock(error, memory.length()))?;
        let free = self.regions.iter().position(Option::is_none);
        let region = Region {
            id: free.unwrap_or(self.regions.len()),
            address: memory.address(),
            key: registration.remote_key(),
        };
        match free {
            Some(free) => self.regions[free] = Some(registration),
            None => self.regions.push(Some(registration)),
        }
        Ok(region)
    }

    fn deregister(&mut self, region: usize) {
        self.regions[region] = None;
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
            } => {
                let source = registered(&self.regions, *region);
                queue_pair.write(id, source, *span, *to, *immediate)
            }
            Work::Read { region, span, from } => {
                queue_pair.read(id, registered(&self.regions, *region), *span, *from)
            }
            Work::Send(message) => queue_pair.send(id, message),
            Work::Carry {
                message,
                region,
                span,
            } => queue_pair.carry(id, message, registered(&self.regions, *region), *span),
        }
        Ok(())
    }

    fn ring_doorbell(&mut self) {
        for number in 0..self.slots.len() {
            let current = self.slots[number].current.as_mut();
            if let Some(Err(error)) = current.map(QueuePair::ring_doorbell) {
                let words = format!("{}: {error}", self.place.port.device);
                self.fail(number, words);
            }
        }
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) {
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
        self.arm(wants_requests, completions);
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
        self.regions.clear();
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

fn registered(regions: &[Option<Registration>], region: usize) -> &Registration {
    regions[region].as_ref().expect("a region of ours")
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
