//! The provider `verbs`: RDMA adapters, and the kernel's software ones, through libibverbs.
//!
//! The libraries are opened at first use, so the program neither needs them to be built nor to start. A channel has a
//! protection domain of its own, so that what a peer was told of one is worth nothing on another; a device that is
//! open costs little beside its ring. Completions are events: what is asked for anew is told once, so
//! [`Endpoint::poll`] takes what is there, asks to be told, and takes what came in between.
//!
//! The device works while nobody polls. The data connection stays open beside the queue pairs, and tells how the peer
//! went.

mod beside;
mod bindings;
mod fabric;
mod inspect;
mod objects;
mod place;
mod ports;
mod queue_pair;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use gridhaul_stack::Detail;
use rustix::event::{Timespec, epoll};

use self::beside::{Beside, Peer};
use self::bindings::{EVENT_DEVICE_FATAL, STATUS_SUCCESS, WorkCompletion};
use self::fabric::{MAX_READS, Path};
pub(crate) use self::inspect::inspect;
use self::inspect::mtu_bytes;
use self::objects::{CompletionQueue, Depths, Domain, OpenDevice, Registration};
pub use self::place::Place;
pub(crate) use self::place::{VerbsError, Wishes};
use self::queue_pair::{Name, QueuePair, Shared, Subject, slot_bytes};
use crate::handshake::{FabricRecord, PortRecord, QueuePairRecord, Way};
use crate::memory::Memory;
use crate::provider::{
    Access, Completion, Endpoint, Fabric, Limits, Loss, PostError, Region, Request, Wanted, Work,
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
    queue_pairs: Vec<Option<QueuePair>>,
    /// Each has its place as its name.
    regions: Vec<Option<Registration>>,
    shared: Shared,
    device: Arc<OpenDevice>,
    place: Place,
    path: Path,
    /// Where the packets of each queue pair begin to count.
    first_packets: Vec<u32>,
    limits: Limits,
    beside: Option<Beside>,
    watch: OwnedFd,
    /// What the peer says does not count any more.
    has_ended: bool,
    /// The next completion makes an event.
    is_armed: bool,
    /// Queue pairs that refused a request, and why.
    refused: Vec<(usize, Loss)>,
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
            is_ethernet: place.way() != Way::InfiniBand,
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
            queue_pairs: Vec::new(),
            regions: Vec::new(),
            watch: watch(&shared.queue, &device).map_err(at("its descriptors"))?,
            shared,
            device,
            place: place.clone(),
            path,
            first_packets: Vec::new(),
            limits: Limits {
                queue_pairs,
                depth: depths.sends,
                reads: usize::from(path.reads),
                message_bytes: port.max_message_bytes.min(MAX_TRANSFER_BYTES) as usize,
                over_tcp: false,
                needs_polling: false,
                replaces: false,
            },
            beside: None,
            has_ended: false,
            is_armed: false,
            refused: Vec::new(),
        };
        for number in 0..queue_pairs {
            endpoint
                .add_queue_pair(number)
                .map_err(at("a queue pair"))?;
        }
        Ok(endpoint)
    }

    fn add_queue_pair(&mut self, number: usize) -> io::Result<()> {
        let number = u8::try_from(number).map_err(io::Error::other)?;
        let queue_pair = QueuePair::new(&self.shared, number, 0)?;
        self.path.initialise(&queue_pair)?;
        self.queue_pairs.push(Some(queue_pair));
        // InfiniBand architecture: 24 bits.
        self.first_packets
            .push(u32::from_be_bytes(random_bytes()) >> 8);
        Ok(())
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
        let Some(Some(queue_pair)) = self.queue_pairs.get_mut(number) else {
            return;
        };
        if queue_pair.life() != name.life {
            return;
        }
        if completion.status != STATUS_SUCCESS {
            let words = self.device.status_words(completion.status);
            return self.lose(number, Loss::Failed(words), completions);
        }
        match name.subject {
            Subject::Request => {
                completions.extend(queue_pair.complete().map(|id| Completion::Done {
                    queue_pair: number,
                    id,
                }))
            }
            Subject::Message(slot) => match queue_pair.take_message(slot, completion.length) {
                Ok(Some(_)) if self.has_ended => {}
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
                    if let Some(beside) = &mut self.beside {
                        beside.look();
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
                self.lose_all(&loss, completions);
            }
        }
    }

    /// Gives up what the peer has no use for any more. What it was sent before may still be acknowledged, and is waited
    /// for; and what was acknowledged is told before, so that whoever sent it has succeeded.
    fn follow_peer(&mut self, completions: &mut Vec<Completion>) {
        match self.peer() {
            Peer::There => return,
            Peer::Closed => {}
            Peer::Reset => return self.lose_all(&Loss::Reset, completions),
        }
        // What came before the end is there.
        self.drain(completions);
        if !completions.is_empty() {
            return self.watch_connection(completions);
        }
        for number in 0..self.queue_pairs.len() {
            let is_done = |queue_pair: &QueuePair| queue_pair.pending() == 0;
            if self.queue_pairs[number].as_ref().is_some_and(is_done) {
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
        // A peer that is gone acknowledges nothing: how it went counts.
        let loss = match self.peer() {
            Peer::There => loss,
            Peer::Closed => Loss::Closed,
            Peer::Reset => Loss::Reset,
        };
        if self.queue_pairs[number].take().is_some() {
            completions.push(Completion::Lost {
                queue_pair: number,
                loss,
            });
        }
    }

    fn lose_all(&mut self, loss: &Loss, completions: &mut Vec<Completion>) {
        for number in 0..self.queue_pairs.len() {
            self.lose(number, loss.clone(), completions);
        }
    }
}

impl Fabric for VerbsEndpoint {
    fn record(&self) -> FabricRecord {
        let pairs = self.queue_pairs.iter().flatten().zip(&self.first_packets);
        let queue_pairs = pairs.map(|(queue_pair, &first_packet)| QueuePairRecord {
            number: queue_pair.number(),
            first_packet,
        });
        FabricRecord {
            port: self.path.port,
            queue_pairs: queue_pairs.collect(),
        }
    }

    fn connect(&mut self, peer: &FabricRecord, beside: OwnedFd) -> io::Result<()> {
        if peer.queue_pairs.len() != self.queue_pairs.len() {
            return Err(io::Error::other(
                "the other end has another number of queue pairs",
            ));
        }
        let pairs = self.queue_pairs.iter().flatten();
        for ((queue_pair, &first), other) in pairs.zip(&self.first_packets).zip(&peer.queue_pairs) {
            self.path.connect(queue_pair, first, &peer.port, *other)?;
        }
        self.limits.reads = usize::from(self.path.reads_with(&peer.port));
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
        vec![
            Detail::text("provider", "verbs"),
            Detail::text("device", format!("{}/{}", port.device, port.number)),
            Detail::text("protocol", port.protocol.name()),
            Detail::setting("gid", u64::from(self.place.gid_index)),
            Detail::setting("mtu-bytes", mtu_bytes(self.path.port.mtu)),
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
        let is_there = self.peer() == Peer::There;
        let Some(queue_pair) = self.queue_pairs[number].as_mut().filter(|_| is_there) else {
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
            let loss = Loss::Failed(format!("{}: {error}", self.place.port.device));
            self.refused.push((number, loss));
            PostError::Lost
        })
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) {
        self.drain(completions);
        self.look(completions);
        self.rearm(completions);
        self.follow_peer(completions);
        for (number, loss) in std::mem::take(&mut self.refused) {
            self.lose(number, loss, completions);
        }
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.watch.as_fd()
    }

    fn close(&mut self, queue_pair: usize) -> bool {
        let queue_pair = self.queue_pairs.get_mut(queue_pair);
        queue_pair.is_some_and(|queue_pair| queue_pair.take().is_some())
    }

    fn end(&mut self) {
        if let Some(beside) = &mut self.beside {
            beside.close();
        }
        self.has_ended = true;
        self.regions.clear();
    }

    fn abort(&mut self) {
        if let Some(beside) = &mut self.beside {
            beside.reset();
        }
        self.queue_pairs.fill_with(|| None);
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
