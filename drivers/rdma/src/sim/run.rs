//! Channels over a simulated fabric, driven from event to event.

#[cfg(test)]
mod disk;

use std::io;
use std::num::NonZeroU64;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

#[cfg(test)]
pub(crate) use self::disk::Disk;
use super::endpoint::{SharedFabric, SimEndpoint};
use super::random::Random;
use super::settings::FabricSettings;
use super::supply::{RingSupply, Supplies};
use crate::engine::{
    Exchange, Fault, Reader, ReaderSettings, Receiver, Ring, Sender, SenderSettings,
};
use crate::handshake::{self, Mode, USUAL_INLINE_BYTES};
use crate::memory::{Buffer, Memory};
use crate::open::shape::piece_bytes;
use crate::pacing::{Pacers, Path};
use crate::provider::{Endpoint, Limits, RemoteRing, keys_of};

/// Some channels, their fabric, and the time.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) fabric: SharedFabric,
    pub(crate) channels: Vec<[RunEnd; 2]>,
    pub(crate) now: Duration,
    sleep: Sleep,
}

/// The properties of a channel.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunSettings {
    pub(crate) ring_bytes: NonZeroU64,
    pub(crate) message_bytes: u64,
    pub(crate) queue_pairs: usize,
    /// When a queue pair without completions is given up.
    pub(crate) stall: Option<Duration>,
    pub(crate) mode: Mode,
}

/// One end of a channel and its user.
#[derive(Debug)]
pub(crate) struct RunEnd {
    pub(crate) exchange: Exchange,
    pub(crate) endpoint: SimEndpoint,
    /// With content: the memory to send from, and the memory to receive into.
    memories: Option<[Arc<Memory>; 2]>,
    /// The length of the stream that it sends.
    pub(crate) length: u64,
    pub(crate) sent: u64,
    pub(crate) received: u64,
    /// How much of it the user has so far.
    pub(crate) there: u64,
    /// The time in which the user does not read.
    pub(crate) idle: Range<Duration>,
    /// For a user that reads and writes random amounts.
    random: Option<Random>,
    /// For one whose bytes a disk moves.
    #[cfg(test)]
    disk: Option<Disk>,
    next_at: Option<Duration>,
}

/// The pause of a user that reads and writes random amounts.
const PAUSE: Duration = Duration::from_micros(200);

impl Run {
    pub(crate) fn new(settings: FabricSettings) -> Self {
        let sleep = Sleep {
            late: settings.wakes_late.clone(),
            random: Random::new(!settings.seed),
        };
        Self {
            fabric: SharedFabric::new(settings),
            channels: Vec::new(),
            now: Duration::ZERO,
            sleep,
        }
    }

    /// Opens a channel; each end has its path to the other. With `memories`, outgoing and incoming
    /// of each end, it has content.
    ///
    /// # Errors
    ///
    /// When the process has no descriptor left.
    pub(crate) fn open(
        &mut self,
        settings: RunSettings,
        paths: [Arc<Path>; 2],
        memories: [Option<[Arc<Memory>; 2]>; 2],
    ) -> io::Result<()> {
        self.open_over(settings, paths.map(|path| vec![path]), memories)
    }

    /// The same over several rails; each end has a path for each of them.
    ///
    /// # Errors
    ///
    /// When the process has no descriptor left.
    pub(crate) fn open_over(
        &mut self,
        settings: RunSettings,
        paths: [Vec<Arc<Path>>; 2],
        memories: [Option<[Arc<Memory>; 2]>; 2],
    ) -> io::Result<()> {
        let mut endpoints = self.fabric.connect(settings.queue_pairs)?;
        let length = settings.ring_bytes.get();
        let mut exposed = Vec::new();
        for (endpoint, memories) in endpoints.iter_mut().zip(&memories) {
            let [source, sink] = settings.mode.access();
            let [source, sink] = if let Some([outgoing, incoming]) = memories {
                [
                    endpoint.register(outgoing, source)?,
                    endpoint.register(incoming, sink)?,
                ]
            } else {
                [source, sink].map(|access| endpoint.register_addresses(length, access))
            };
            let exposes = match settings.mode {
                Mode::Put => sink,
                Mode::Get => source,
            };
            let keys = keys_of(endpoint, exposes);
            let rails = keys.as_slice().len();
            let ring = RemoteRing::over(rails, exposes.address, keys.as_slice());
            exposed.push(ring.expect("a fabric has few rails"));
        }
        let ring = Ring::new(settings.ring_bytes);
        let mut ends = Vec::new();
        let parts = endpoints.into_iter().zip(paths).zip(memories);
        for (((endpoint, paths), memories), remote) in parts.zip(exposed.into_iter().rev()) {
            let pacer = Pacers::new(&paths, settings.queue_pairs);
            let mut sender = settings.sender(ring, remote, endpoint.limits());
            if memories.is_some() {
                sender.inline_bytes = u64::from(USUAL_INLINE_BYTES);
            }
            let (inline_bytes, immediate) = (sender.inline_bytes, sender.immediate);
            let sender = Sender::new(sender, pacer);
            let mut receiver = Receiver::new(ring, settings.pieces()).in_region(INCOMING);
            if immediate && settings.mode == Mode::Put {
                receiver.take_immediates();
            }
            receiver.take_inline(inline_bytes);
            let mut exchange = Exchange::new(sender, receiver, settings.queue_pairs);
            if let Some([_, incoming]) = &memories {
                exchange = exchange.carry(Arc::clone(incoming));
            }
            if settings.mode == Mode::Get {
                let settings = settings.reader(ring, remote, &endpoint);
                exchange = exchange.fetch(Reader::new(settings, Pacers::new(&paths, 0)));
            }
            ends.push(RunEnd {
                exchange,
                endpoint,
                memories,
                length: 0,
                there: u64::MAX,
                sent: 0,
                received: 0,
                idle: Duration::ZERO..Duration::ZERO,
                random: None,
                #[cfg(test)]
                disk: None,
                next_at: Some(self.now),
            });
        }
        if let Ok(ends) = ends.try_into() {
            self.channels.push(ends);
        }
        Ok(())
    }

    /// The rings of a channel may change.
    pub(crate) fn let_rings_change(&mut self, channel: usize, supplies: [Supplies; 2]) {
        let links = [0, 1].map(|host| self.fabric.delay(host));
        for (end, supplies) in self.channels[channel].iter_mut().zip(supplies) {
            let has_content = end.memories.is_some();
            let first = [OUTGOING, INCOMING];
            let supply = RingSupply::new(supplies, &end.endpoint, first, has_content);
            let round_trip = links[0] + links[1];
            end.exchange.let_rings_change(Box::new(supply), round_trip);
        }
    }

    /// Runs all due ends, and advances to the next event. Returns `false` if there is none before
    /// `until`.
    ///
    /// # Errors
    ///
    /// When an end violates the protocol.
    pub(crate) fn step(&mut self, until: Duration) -> Result<bool, Fault> {
        let now = self.now;
        let mut next_at = None;
        for end in self.channels.iter_mut().flatten() {
            if end.next_at.is_some_and(|at| at <= now) || self.sleep.is_woken(end) {
                end.work(now, &mut self.sleep)?;
            }
            next_at = earlier(next_at, end.next_at);
        }
        next_at = earlier(next_at, self.fabric.next_at());
        let Some(at) = next_at.filter(|&at| at <= until) else {
            self.now = until.max(now);
            self.fabric.run_until(self.now);
            return Ok(false);
        };
        self.now = at.max(now);
        self.fabric.run_until(self.now);
        Ok(true)
    }

    /// Runs until a moment, or until there are no more events.
    ///
    /// # Errors
    ///
    /// See [`Run::step`].
    #[cfg(test)]
    pub(crate) fn run_until(&mut self, until: Duration) -> Result<(), Fault> {
        while self.step(until)? {}
        Ok(())
    }
}

impl RunSettings {
    pub(super) fn pieces(self) -> usize {
        pieces(self.ring_bytes)
    }

    pub(super) fn sender(self, ring: Ring, remote: RemoteRing, limits: Limits) -> SenderSettings {
        SenderSettings {
            ring,
            region: OUTGOING,
            remote,
            queue_pairs: self.queue_pairs,
            depth: limits.depth,
            message_bytes: self.message_bytes,
            piece_bytes: piece_bytes(ring, self.message_bytes, self.queue_pairs),
            max_pieces: self.pieces(),
            is_fetched: self.mode == Mode::Get,
            inline_bytes: 0,
            immediate: limits.immediate && ring.fits_immediates(),
            completes_early: false,
            stall: self.stall,
        }
    }

    fn reader(self, ring: Ring, remote: RemoteRing, endpoint: &SimEndpoint) -> ReaderSettings {
        ReaderSettings {
            ring,
            remote,
            queue_pairs: self.queue_pairs,
            depth: endpoint.limits().reads,
            message_bytes: self.message_bytes,
        }
    }
}

/// Pieces that may be in flight in a ring.
pub(crate) fn pieces(ring_bytes: NonZeroU64) -> usize {
    usize::from(handshake::pieces(ring_bytes.get()))
}

/// How a thread sleeps.
#[derive(Debug)]
struct Sleep {
    late: Option<Range<Duration>>,
    random: Random,
}

impl Sleep {
    /// When a thread is awake that sleeps from `now` on and polls in the last `spin_time` before `at`.
    fn until(&mut self, at: Duration, spin_time: Duration, now: Duration) -> Duration {
        let Some(late) = &self.late else {
            return at;
        };
        if at <= now + spin_time {
            return at;
        }
        let late = late.start + (late.end - late.start).mul_f64(self.random.share());
        at.max(at - spin_time + late)
    }

    /// Whether an event wakes the thread of an end.
    fn is_woken(&self, end: &RunEnd) -> bool {
        match self.late {
            Some(_) => end.endpoint.has_events(end.exchange.awaits_completions()),
            None => end.endpoint.has_completions(),
        }
    }
}

/// Regions are numbered as they are registered.
const OUTGOING: usize = 0;
const INCOMING: usize = 1;

impl RunEnd {
    /// The user sends a stream of this many bytes, and ends it.
    pub(crate) fn send(&mut self, length: u64, random: Option<Random>) {
        self.length = length;
        self.random = random;
    }

    /// A disk moves the bytes of both streams at this end.
    #[cfg(test)]
    pub(crate) fn use_disk(&mut self, disk: Disk) {
        self.disk = Some(disk);
    }

    /// The user has so much of its stream from `now` on.
    #[cfg(test)]
    pub(crate) fn have(&mut self, there: u64, now: Duration) {
        self.there = there;
        self.next_at = Some(now);
    }

    /// Whether the end of this end's stream has arrived, and all of the peer's stream was read.
    #[cfg(test)]
    pub(crate) fn is_done(&self) -> bool {
        self.sent == self.length
            && self.exchange.sender.is_posted()
            && self.exchange.sender.is_idle()
            && self.exchange.receiver.is_finished()
    }

    fn work(&mut self, now: Duration, sleep: &mut Sleep) -> Result<(), Fault> {
        self.advance(now)?;
        loop {
            let moved = self.move_bytes(now);
            self.advance(now)?;
            let has_more = moved > 0 || self.exchange.has_more();
            if !has_more || self.random.is_some() {
                break;
            }
        }
        let could = self.exchange.receiver.ready().length > 0
            || self.sent < self.length.min(self.there) && self.exchange.sender.room().length > 0;
        let pause =
            ((could || self.exchange.has_more()) && self.random.is_some()).then_some(now + PAUSE);
        // A paced sender is called at that time, and not again now.
        let paced = self.exchange.next_at(now).filter(|&at| at > now);
        let spin_time = self.exchange.spin_time().unwrap_or_default();
        let paced = paced.map(|at| sleep.until(at, spin_time, now));
        let wakes = Some(self.idle.end).filter(|_| self.idle.contains(&now));
        #[cfg(test)]
        let wakes = earlier(wakes, self.disk.as_ref().and_then(Disk::next_at));
        self.next_at = earlier(earlier(pause, paced), wakes);
        Ok(())
    }

    /// The user takes what has arrived, and gives what there is room for. Returns how many bytes that were.
    fn move_bytes(&mut self, now: Duration) -> u64 {
        #[cfg(test)]
        if let Some(mut disk) = self.disk.take() {
            let moved = disk.work(self, now);
            self.disk = Some(disk);
            return moved;
        }
        self.take(now) + self.give()
    }

    fn advance(&mut self, now: Duration) -> Result<(), Fault> {
        self.exchange.advance(&mut self.endpoint, now)?;
        if let (Some(ring), Some([outgoing, _])) =
            (self.exchange.take_outgoing(), &mut self.memories)
        {
            *outgoing = ring;
        }
        Ok(())
    }

    fn take(&mut self, now: Duration) -> u64 {
        let mut taken = 0;
        while !self.idle.contains(&now) {
            let ready = self.exchange.receiver.ready();
            let ready = ready.first(random_part(&mut self.random, ready.length));
            if ready.length == 0 {
                return taken;
            }
            if let Some(incoming) = self.exchange.incoming() {
                let mut bytes = vec![0; ready.length];
                incoming.copy_out(ready.offset, &mut bytes);
                let from = self.received;
                assert!(bytes == content(from, ready.length), "from byte {from} on");
                // The sender may overwrite consumed bytes at any time.
                incoming.copy_in(ready.offset, &vec![0xee; ready.length]);
            }
            self.exchange.receiver.consume(ready.length);
            self.received += ready.length as u64;
            taken += ready.length as u64;
            if self.random.is_some() {
                return taken;
            }
        }
        taken
    }

    fn give(&mut self) -> u64 {
        let mut given = 0;
        let there = self.length.min(self.there);
        while self.sent < there {
            let room = self.exchange.sender.room();
            let most = usize::try_from(there - self.sent).unwrap_or(usize::MAX);
            let room = room.first(most);
            let room = room.first(random_part(&mut self.random, room.length));
            if room.length == 0 {
                // A full ring is sent without waiting for more.
                self.exchange.sender.flush();
                return given;
            }
            if let Some([outgoing, _]) = &self.memories {
                outgoing.copy_in(room.offset, &content(self.sent, room.length));
            }
            self.exchange.sender.fill(room.length);
            self.sent += room.length as u64;
            given += room.length as u64;
            if self.random.is_some() {
                break;
            }
        }
        if self.sent == self.length {
            self.exchange.sender.finish();
        } else if self.sent >= there {
            self.exchange.sender.flush();
        }
        given
    }
}

/// A random part of `length`, or all of it.
fn random_part(random: &mut Option<Random>, length: usize) -> usize {
    let Some(random) = random else {
        return length;
    };
    let share = [1, length / 7, length / 2, length];
    let share = share[random.index(4)];
    share.clamp(usize::from(length > 0), length)
}

/// The bytes of a stream from `start` on; no two parts of it are equal.
fn content(start: u64, length: usize) -> Vec<u8> {
    let byte = |place: u64| (place.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
    (start..).take(length).map(byte).collect()
}

fn earlier(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
