//! The provider `verbs`: RDMA adapters, and the kernel's software ones, through libibverbs.
//!
//! The libraries are opened at first use, so the program neither needs them to be built nor to start. A channel has a
//! protection domain of its own, so that what a peer was told of one is worth nothing on another; a device that is
//! open costs little beside its ring. Completions are events: what is asked for anew is told once, so
//! [`Endpoint::poll`] takes what is there, asks to be told, and takes what came in between.
//!
//! The device works while nobody polls. The data connection stays open beside the queue pairs: it tells how the peer
//! went, and carries what it takes to replace a queue pair that was lost.

mod beside;
mod bindings;
mod connection_manager;
mod fabric;
mod inspect;
mod objects;
mod place;
mod ports;
mod queue_pair;
mod slot;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use gridhaul_stack::Detail;
use rustix::event::{Timespec, epoll};

use self::beside::{Beside, Notice, Peer, Step};
use self::bindings::{EVENT_DEVICE_FATAL, STATUS_FLUSHED, STATUS_SUCCESS, WorkCompletion};
pub(crate) use self::connection_manager::{Connection, ConnectionError, Introduction, Listener};
use self::fabric::{MAX_READS, Path};
pub(crate) use self::inspect::inspect;
use self::inspect::mtu_bytes;
use self::objects::{CompletionQueue, Depths, Domain, OpenDevice, Registration};
pub use self::place::Place;
pub(crate) use self::place::{VerbsError, Wishes};
use self::ports::Protocol;
use self::queue_pair::{Name, QueuePair, Shared, Subject, slot_bytes};
use self::slot::{Coming, Content, Slot};
use crate::handshake::{FabricRecord, PortRecord, QueuePairRecord};
use crate::memory::Memory;
use crate::provider::{
    Access, Completion, Endpoint, Fabric, Limits, Loss, Message, PostError, Region, Request,
    Wanted, Work,
};
use crate::random::random_bytes;

/// Requests of one queue pair at a time, if the device has room for so many.
const DEPTH: usize = 1024;

/// The largest WRITE or READ, in bytes: devices allow 2 GiB, and count in 32 bits.
const MAX_TRANSFER_BYTES: u32 = 1 << 30;

/// Messages that may come beside those that announce pieces: credit for each of the batches of a ring, the end, and queue
/// pairs that were abandoned.
const OTHER_MESSAGES: usize = 64;

/// Completions that are taken at a time.
const BATCH: usize = 32;

// What is watched.
const QUEUE: u64 = 0;
const DEVICE: u64 = 1;
const CONNECTION: u64 = 2;

/// One channel's queue pairs.
#[derive(Debug)]
pub(crate) struct VerbsEndpoint {
    // They are dropped in this order: queue pairs before the memory that they use.
    slots: Vec<Slot>,
    /// Each has its place as its name.
    regions: Vec<Option<Registration>>,
    shared: Shared,
    device: Arc<OpenDevice>,
    place: Place,
    path: Path,
    limits: Limits,
    /// The peer's port, and the data connection, from when the queue pairs were connected.
    peer_port: Option<PortRecord>,
    beside: Option<Beside>,
    watch: OwnedFd,
    /// What the peer says does not count any more.
    has_ended: bool,
    /// The next completion makes an event.
    is_armed: bool,
    /// The next poll tells them.
    failures: Vec<Failure>,
}

/// A queue pair that refused a request, or could not be replaced.
#[derive(Debug)]
struct Failure {
    queue_pair: usize,
    /// In which of its lives.
    life: u16,
    loss: Loss,
}

impl VerbsEndpoint {
    /// An endpoint whose queue pairs are not connected.
    ///
    /// # Errors
    ///
    /// When the device cannot be used.
    pub(crate) fn new(place: &Place, wanted: Wanted) -> Result<Self, VerbsError> {
        let device = place.open()?;
        Self::prepare(place, device, wanted).map_err(|(what, error)| place.failed(what, error))
    }

    fn prepare(
        place: &Place,
        device: Arc<OpenDevice>,
        wanted: Wanted,
    ) -> Result<Self, (&'static str, io::Error)> {
        let queue_pairs = usize::from(wanted.queue_pairs);
        let pieces = usize::from(wanted.pieces);
        let at = |what| move |error| (what, error);
        let attributes = device.attributes().map_err(at("the attributes"))?;
        let port = device.port(place.port.number).map_err(at("a port"))?;
        let count = |number: i32| usize::try_from(number).unwrap_or(0);
        let entries = count(attributes.max_completions) / queue_pairs;
        let requests = count(attributes.max_requests);
        // Where the device cannot hold that many, the peer's asks again after a while.
        let receives = (2 * pieces + OTHER_MESSAGES).min(entries / 2).min(requests);
        let depths = Depths {
            sends: DEPTH.min(requests).min(entries - receives),
            receives,
        };
        let is_iwarp = place.port.protocol == Protocol::Iwarp;
        let reads = |number: i32| u8::try_from(number).unwrap_or(MAX_READS).min(MAX_READS);
        let path = Path {
            port: PortRecord {
                gid: place.gid,
                lid: port.lid,
                mtu: u8::try_from(port.active_mtu).unwrap_or(1),
                reads: reads(attributes.max_reads_answered),
            },
            port_number: place.port.number,
            gid_index: place.gid_index,
            protocol: place.port.protocol,
            traffic_class: place.wishes.traffic_class,
            service_level: place.wishes.service_level,
            reads: reads(attributes.max_reads),
            round_trip: wanted.round_trip,
        };
        let domain = Arc::new(Domain::new(&device).map_err(at("a protection domain"))?);
        let entries = queue_pairs * (depths.sends + depths.receives);
        let queue = CompletionQueue::new(&device, entries).map_err(at("a completion queue"))?;
        let bytes = slot_bytes(depths) * queue_pairs;
        let memory = bytes
            .try_into()
            .map_err(io::Error::other)
            .and_then(Memory::new)
            .map_err(at("memory for messages"))?;
        let slots = Registration::new(&domain, &Arc::new(memory), Access::Sink)
            .map_err(|error| ("memory for messages", locked(error, bytes)))?;
        let shared = Shared {
            domain,
            queue: Arc::new(queue),
            depths,
            slots: Arc::new(slots),
        };
        let mut endpoint = Self {
            slots: Vec::new(),
            regions: Vec::new(),
            watch: watch(&shared.queue, &device).map_err(at("its descriptors"))?,
            shared,
            device,
            place: place.clone(),
            path,
            peer_port: None,
            limits: Limits {
                queue_pairs,
                depth: depths.sends,
                reads: usize::from(path.reads),
                message_bytes: port.max_message_bytes.min(MAX_TRANSFER_BYTES) as usize,
                over_tcp: is_iwarp,
                needs_polling: false,
                replaces: !is_iwarp,
            },
            beside: None,
            has_ended: false,
            is_armed: false,
            failures: Vec::new(),
        };
        for number in 0..queue_pairs {
            endpoint
                .add_queue_pair(number)
                .map_err(at("a queue pair"))?;
        }
        Ok(endpoint)
    }

    fn add_queue_pair(&mut self, number: usize) -> io::Result<()> {
        let coming = self.queue_pair(number, 0)?;
        self.slots.push(Slot::new(coming));
        Ok(())
    }

    /// A queue pair that is not connected.
    fn queue_pair(&self, number: usize, life: u16) -> io::Result<Coming> {
        let number = u8::try_from(number).map_err(io::Error::other)?;
        let queue_pair = QueuePair::new(&self.shared, number, life)?;
        self.path.initialise(&queue_pair)?;
        Ok(Coming {
            queue_pair,
            // InfiniBand architecture: 24 bits.
            first_packet: u32::from_be_bytes(random_bytes()) >> 8,
            is_connected: false,
            peer_is_connected: false,
        })
    }

    /// What a queue pair says when the connection manager connects it (iWARP).
    pub(crate) fn introduction<'a>(&self, number: u16, private: &'a [u8]) -> Introduction<'a> {
        let coming = self.slots[usize::from(number)].coming.as_ref();
        Introduction {
            number: coming.map_or(0, |coming| coming.queue_pair.number()),
            reads: self.path.reads.min(self.path.port.reads),
            private,
        }
    }

    /// A queue pair was connected by the connection manager (iWARP).
    pub(crate) fn attach(&mut self, number: u16, connection: Connection) {
        let slot = &mut self.slots[usize::from(number)];
        slot.living = slot.coming.take().map(|coming| {
            let mut queue_pair = coming.queue_pair;
            queue_pair.hold(connection);
            queue_pair
        });
    }

    /// Takes the data connection, which tells when the peer gives up (iWARP).
    ///
    /// # Errors
    ///
    /// When the kernel cannot watch it.
    pub(crate) fn keep(&mut self, beside: OwnedFd) -> io::Result<()> {
        self.beside = Some(Beside::new(beside, &self.watch, CONNECTION)?);
        Ok(())
    }

    fn is_iwarp(&self) -> bool {
        self.path.protocol == Protocol::Iwarp
    }

    /// Takes completions until there are none.
    fn drain(&mut self, completions: &mut Vec<Completion>) {
        let mut batch = [WorkCompletion::EMPTY; BATCH];
        loop {
            match self.shared.queue.poll(&mut batch) {
                Ok(count) => {
                    for completion in &batch[..count] {
                        self.complete(completion, completions);
                    }
                    if count < BATCH {
                        return;
                    }
                }
                Err(error) => return self.lose_all(&Loss::Failed(error.to_string()), completions),
            }
        }
    }

    fn complete(&mut self, completion: &WorkCompletion, completions: &mut Vec<Completion>) {
        let name = Name::decode(completion.id);
        let number = usize::from(name.queue_pair);
        let Some(slot) = self.slots.get_mut(number) else {
            return;
        };
        let Some(queue_pair) = slot.of_life(name.life) else {
            return;
        };
        if completion.status != STATUS_SUCCESS {
            if self.is_iwarp() && completion.status == STATUS_FLUSHED {
                // The connection has ended; how, nobody says.
                return self.lose(number, Loss::Closed, completions);
            }
            let words = self.device.status_words(completion.status);
            return self.lose(number, Loss::Failed(words), completions);
        }
        match name.subject {
            Subject::Request => {
                let id = queue_pair.complete();
                completions.extend(id.map(|id| Completion::Done {
                    queue_pair: number,
                    id,
                }));
                slot.bears_fruit();
            }
            Subject::Message(place) => match queue_pair.take_message(place, completion.length) {
                Ok(Some(message)) if self.has_ended && !message.as_bytes().is_empty() => {}
                Ok(Some(message)) => completions.push(Completion::Received {
                    queue_pair: number,
                    message,
                }),
                Ok(None) => {
                    let words = format!("the peer sent a message of {} bytes", completion.length);
                    self.lose(number, Loss::Failed(words), completions);
                }
                Err(error) => self.lose(number, Loss::Failed(error.to_string()), completions),
            },
        }
    }

    /// Looks what else has happened.
    fn look(&mut self, completions: &mut Vec<Completion>) {
        let mut events = [epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(0),
        }; 4];
        let no_time = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let Ok(count) = epoll::wait(&self.watch, &mut events[..], Some(&no_time)) else {
            // A signal came: the descriptor is still readable.
            return;
        };
        for event in &events[..count] {
            match event.data.u64() {
                QUEUE => {
                    while self.shared.queue.take_event() {
                        self.is_armed = false;
                    }
                }
                DEVICE => self.hear_device(completions),
                _ => {
                    let mut notices = Vec::new();
                    if let Some(beside) = &mut self.beside {
                        beside.look(&mut notices);
                    }
                    for notice in notices {
                        self.hear(notice, completions);
                    }
                    if self.peer() == Peer::There {
                        self.watch_connection(completions);
                    }
                }
            }
        }
    }

    fn hear_device(&mut self, completions: &mut Vec<Completion>) {
        while let Some((kind, words)) = self.device.next_event() {
            if kind == EVENT_DEVICE_FATAL {
                let loss = Loss::Failed(format!("{}: {words}", self.place.port.device));
                self.limits.replaces = false;
                self.lose_all(&loss, completions);
            }
        }
    }

    /// Gives up what the peer has no use for any more. What it was sent before may still be acknowledged, and is waited
    /// for; and what was acknowledged is told before, so that whoever sent it has succeeded.
    fn follow_peer(&mut self, completions: &mut Vec<Completion>) {
        match self.peer() {
            Peer::There => return,
            // Over TCP what was sent before may come after it: the queue pairs tell.
            Peer::Closed if self.is_iwarp() => return,
            Peer::Closed => self.limits.replaces = false,
            Peer::Reset => {
                self.limits.replaces = false;
                return self.lose_all(&Loss::Reset, completions);
            }
        }
        // What came before the end is there.
        self.drain(completions);
        if !completions.is_empty() {
            return self.watch_connection(completions);
        }
        for number in 0..self.slots.len() {
            let living = self.slots[number].living.as_ref();
            if living.is_none_or(|queue_pair| queue_pair.pending() == 0) {
                self.lose(number, Loss::Closed, completions);
            }
        }
    }

    fn watch_connection(&mut self, completions: &mut Vec<Completion>) {
        let beside = self.beside.as_ref();
        if let Some(Err(error)) = beside.map(|beside| beside.watch(&self.watch)) {
            // Without a watch nobody would hear of the peer's end.
            self.lose_all(&Loss::Failed(error.to_string()), completions);
        }
    }

    /// A peer that is gone acknowledges nothing, and takes its memory along: how it went is the reason of all losses.
    fn blame_peer(&self, completions: &mut [Completion]) {
        let reason = match self.peer() {
            Peer::There => return,
            Peer::Closed => Loss::Closed,
            Peer::Reset => Loss::Reset,
        };
        for completion in completions {
            if let Completion::Lost { loss, .. } = completion {
                *loss = reason.clone();
            }
        }
    }

    fn peer(&self) -> Peer {
        self.beside.as_ref().map_or(Peer::There, Beside::peer)
    }

    fn rearm(&mut self, completions: &mut Vec<Completion>) {
        if self.is_armed {
            return;
        }
        self.is_armed = true;
        match self.shared.queue.arm() {
            Ok(()) => self.drain(completions),
            Err(error) => self.lose_all(&Loss::Failed(error.to_string()), completions),
        }
    }

    fn lose(&mut self, number: usize, loss: Loss, completions: &mut Vec<Completion>) {
        let content = self.slots[number].clear();
        let lost = Completion::Lost {
            queue_pair: number,
            loss,
        };
        if content == Content::Living || content == Content::Coming && !self.limits.replaces {
            completions.push(lost);
        }
        if content != Content::Nothing && self.limits.replaces {
            self.replace(number);
        }
    }

    fn lose_all(&mut self, loss: &Loss, completions: &mut Vec<Completion>) {
        for number in 0..self.slots.len() {
            self.lose(number, loss.clone(), completions);
        }
    }

    /// The last message on each queue pair is an empty one: what was sent before has come before.
    fn say_farewell(&mut self) {
        let farewell = Message::new(&[]).expect("it has no byte");
        for slot in &mut self.slots {
            if let Some(queue_pair) = &mut slot.living {
                // One that refuses is lost, and will be told so.
                let _ = queue_pair.send(0, &farewell);
            }
        }
    }

    /// Begins the next life of a queue pair, and tells the peer.
    fn replace(&mut self, number: usize) {
        if let Err(error) = self.begin_life(number) {
            let words = format!("the queue pair cannot be replaced: {error}");
            self.fail(number, words);
        }
    }

    fn fail(&mut self, queue_pair: usize, words: String) {
        self.failures.push(Failure {
            queue_pair,
            life: self.slots[queue_pair].life,
            loss: Loss::Failed(words),
        });
    }

    /// Tells what failed, unless another life has begun since.
    fn tell_failures(&mut self, completions: &mut Vec<Completion>) {
        for failure in std::mem::take(&mut self.failures) {
            let Failure {
                queue_pair, loss, ..
            } = failure;
            let slot = &mut self.slots[queue_pair];
            if slot.life != failure.life {
                continue;
            }
            if slot.living.is_some() {
                self.lose(queue_pair, loss, completions);
            } else {
                slot.clear();
                completions.push(Completion::Lost { queue_pair, loss });
            }
        }
    }

    fn begin_life(&mut self, number: usize) -> io::Result<()> {
        let life = self.slots[number].next_life();
        let life = life.ok_or_else(|| io::Error::other("nothing got through several times"))?;
        let coming = self.queue_pair(number, life)?;
        let step = Step::Replaced(coming.record());
        self.slots[number].coming = Some(coming);
        self.tell(number, step)
    }

    fn tell(&self, number: usize, step: Step) -> io::Result<()> {
        let beside = self.beside.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        beside.tell(Notice {
            queue_pair: u8::try_from(number).map_err(io::Error::other)?,
            life: self.slots[number].life,
            step,
        })
    }

    /// The peer replaces a queue pair, and this end does the same.
    fn hear(&mut self, notice: Notice, completions: &mut Vec<Completion>) {
        let number = usize::from(notice.queue_pair);
        if number >= self.slots.len() || !self.limits.replaces {
            return;
        }
        let life = self.slots[number].life;
        if Some(notice.life) == life.checked_add(1) {
            // The peer has noticed first, or has begun once more.
            if self.slots[number].clear() == Content::Living {
                completions.push(Completion::Lost {
                    queue_pair: number,
                    loss: Loss::Reset,
                });
            }
            self.replace(number);
        }
        if notice.life != self.slots[number].life {
            return;
        }
        let heard = match notice.step {
            Step::Replaced(record) => self.join(number, record),
            Step::Connected => {
                if let Some(coming) = &mut self.slots[number].coming {
                    coming.peer_is_connected = true;
                }
                Ok(())
            }
        };
        if let Err(error) = heard {
            return self.lose(number, Loss::Failed(error.to_string()), completions);
        }
        if self.slots[number].revive() {
            completions.push(Completion::Restored { queue_pair: number });
        }
    }

    /// Connects a queue pair that replaces another to that of the peer.
    fn join(&mut self, number: usize, peer: QueuePairRecord) -> io::Result<()> {
        let slot = &mut self.slots[number];
        let (Some(coming), Some(port)) = (&mut slot.coming, &self.peer_port) else {
            return Ok(());
        };
        if coming.is_connected {
            return Ok(());
        }
        self.path.connect(coming, port, peer)?;
        coming.is_connected = true;
        self.tell(number, Step::Connected)
    }
}

impl Fabric for VerbsEndpoint {
    fn record(&self) -> FabricRecord {
        let coming = self.slots.iter().filter_map(|slot| slot.coming.as_ref());
        FabricRecord {
            port: self.path.port,
            queue_pairs: coming.map(Coming::record).collect(),
        }
    }

    fn connect(&mut self, peer: &FabricRecord, beside: OwnedFd) -> io::Result<()> {
        if peer.queue_pairs.len() != self.slots.len() {
            return Err(io::Error::other(
                "the other end has another number of queue pairs",
            ));
        }
        for (slot, other) in self.slots.iter_mut().zip(&peer.queue_pairs) {
            let Some(coming) = slot.coming.take() else {
                continue;
            };
            self.path.connect(&coming, &peer.port, *other)?;
            slot.living = Some(coming.queue_pair);
        }
        self.limits.reads = usize::from(self.path.reads_with(&peer.port));
        self.peer_port = Some(peer.port);
        self.beside = Some(Beside::new(beside, &self.watch, CONNECTION)?);
        Ok(())
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
        vec![
            Detail::text("provider", "verbs"),
            Detail::text("device", format!("{}/{}", port.device, port.number)),
            Detail::text("protocol", port.protocol.name()),
            Detail::setting("gid", u64::from(self.place.gid_index)),
            Detail::setting("mtu-bytes", mtu_bytes(self.path.port.mtu)),
            Detail::holding("pinned-bytes", pinned_bytes as u64),
        ]
    }

    fn register(&mut self, memory: &Arc<Memory>, access: Access) -> io::Result<Region> {
        let registration = Registration::new(&self.shared.domain, memory, access)
            .map_err(|error| locked(error, memory.length()))?;
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
        let is_there = match self.peer() {
            Peer::There => true,
            Peer::Closed => self.is_iwarp(),
            Peer::Reset => false,
        };
        let Some(queue_pair) = self.slots[number].living.as_mut().filter(|_| is_there) else {
            return Err(PostError::Lost);
        };
        if queue_pair.is_full() {
            return Err(PostError::Full);
        }
        let id = request.id;
        let posted = match &request.work {
            Work::Write { region, span, to } => {
                queue_pair.write(id, registered(&self.regions, *region), *span, *to)
            }
            Work::Read { region, span, from } => {
                queue_pair.read(id, registered(&self.regions, *region), *span, *from)
            }
            Work::Send(message) => queue_pair.send(id, message),
        };
        posted.map_err(|error| {
            let words = format!("{}: {error}", self.place.port.device);
            self.fail(number, words);
            PostError::Lost
        })
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) {
        self.drain(completions);
        self.look(completions);
        self.rearm(completions);
        self.follow_peer(completions);
        self.tell_failures(completions);
        self.blame_peer(completions);
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.watch.as_fd()
    }

    fn close(&mut self, queue_pair: usize) -> bool {
        let Some(slot) = self.slots.get_mut(queue_pair) else {
            return false;
        };
        let was_living = slot.living.take().is_some();
        if was_living && self.limits.replaces {
            self.replace(queue_pair);
        }
        was_living
    }

    fn end(&mut self) {
        if self.is_iwarp() {
            self.say_farewell();
        } else if let Some(beside) = &mut self.beside {
            beside.close();
        }
        self.has_ended = true;
        self.limits.replaces = false;
        self.regions.clear();
    }

    fn abort(&mut self) {
        if let Some(beside) = &mut self.beside {
            beside.reset();
        }
        self.limits.replaces = false;
        for slot in &mut self.slots {
            slot.clear();
        }
    }
}

/// Watches the queue and the device.
fn watch(queue: &CompletionQueue, device: &OpenDevice) -> io::Result<OwnedFd> {
    let watch = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let name = epoll::EventData::new_u64;
    epoll::add(
        &watch,
        queue.descriptor(),
        name(QUEUE),
        epoll::EventFlags::IN,
    )?;
    epoll::add(
        &watch,
        device.descriptor(),
        name(DEVICE),
        epoll::EventFlags::IN,
    )?;
    Ok(watch)
}

fn registered(regions: &[Option<Registration>], region: usize) -> &Registration {
    regions[region].as_ref().expect("a region of ours")
}

/// Says what is meant by the error of a registration.
fn locked(error: io::Error, bytes: usize) -> io::Error {
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
