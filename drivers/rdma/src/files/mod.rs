//! Moves files between a disk and the rings with several requests in flight: with `direct=1`, and with `direct=auto`, the default, past
//! the page cache where that pays, and through it where calls wait for the disk.
//!
//! ```text
//!   send:     file -> requests -> outgoing ring      channel::streams::reading
//!   receive:  file <- requests <- incoming ring      channel::streams::writing
//!            plan: the way, and what carries out the requests
//!            waits: whether calls wait for the disk
//!            disk_range: the range and its requests
//!                cut: which request is next, past the page cache where possible
//!                flights: requests in the order of the file
//! ```
//!
//! A request past the page cache moves whole blocks, and its offset in the ring is congruent to its offset in the file: the
//! sender pads the stream before the content of a file. Everything else goes through the page cache, with requests in flight as
//! well: partial blocks, and files that cannot be opened with `O_DIRECT`.

mod cut;
mod disk_range;
mod flights;
mod plan;
mod waits;

use std::borrow::Cow;
use std::io;
use std::time::Duration;

use gridhaul_direct::{Call, Circumstances, DirectUse, Engine, EngineChoice, Residence, Trial};
use gridhaul_stack::{Detail, FileRange};

pub(crate) use self::disk_range::DiskRange;
pub(crate) use self::flights::Failure;
use self::plan::EngineKind;
pub(crate) use self::plan::{Alignment, LEAST_RING_BYTES, Plan};
use self::waits::{CallTimer, Waits};

/// The content of a file begins at an offset of the ring that is congruent to its offset in the file, modulo this many bytes: a
/// page of most machines, and at least a block of most disks.
pub(crate) const ALIGNMENT: u64 = 4096;

/// Shorter ranges are moved with one call, which costs less.
pub(crate) const LEAST_BYTES: u64 = 64 << 10;

/// Moves the files of one channel.
#[derive(Debug)]
pub(crate) struct DiskFiles {
    usage: Option<DirectUse>,
    engine: Option<Engine>,
    /// The processor time of helper threads for the last range.
    helper_time: Duration,
    /// Whether calls wait for the disk, with `direct=auto`.
    waits: Waits,
    /// Where the files of the channel are, with `direct=auto`.
    residence: Residence,
    last: Last,
    /// The measurement of the last range, with `direct=auto`.
    trial: Option<Trial>,
    /// Bytes of all ranges so far.
    moved: u64,
    /// The most requests that were in flight at a time.
    #[cfg(test)]
    most_in_flight: usize,
}

/// How the last range was moved.
#[derive(Debug)]
enum Last {
    None,
    Direct,
    /// Through the page cache, for this reason.
    Cached(Cow<'static, str>),
}

impl DiskFiles {
    pub(crate) fn new(usage: Option<DirectUse>) -> Self {
        Self {
            usage,
            engine: None,
            helper_time: Duration::ZERO,
            waits: Waits::default(),
            residence: Residence::default(),
            last: Last::None,
            trial: None,
            moved: 0,
            #[cfg(test)]
            most_in_flight: 0,
        }
    }

    /// The part of a range after its first `done` bytes that is moved in one way. It has no memory.
    pub(crate) fn piece<'a>(&self, range: &FileRange<'a>, done: u64) -> FileRange<'a> {
        let left = range.length - done;
        FileRange {
            file: range.file,
            direct: range.direct,
            offset: range.offset + done,
            length: self.usage.map_or(left, |usage| usage.piece_bytes(left)),
            scratch: &mut [],
            moved: range.moved,
            tap: range.tap,
            sparse: range.sparse,
        }
    }

    /// How to move a range between its file and a ring of this length, for a channel over such a `connection`; `None` if one call at
    /// a time does. [`DiskFiles::end`] ends the range.
    pub(crate) fn choose<'a>(
        &mut self,
        range: &FileRange<'a>,
        call: Call,
        connection: &'static str,
        ring_bytes: u64,
        alignment: Alignment,
    ) -> Option<Plan<'a>> {
        let usage = self.usage?;
        let (plan, reason) = Plan::new(range, call, ring_bytes, alignment)?;
        self.trial = None;
        self.last = reason.map_or(Last::Direct, |reason| Last::Cached(reason.into()));
        if usage != DirectUse::Measured {
            return Some(plan);
        }
        let circumstances = Circumstances {
            connection,
            call,
            request_bytes: plan.request_bytes(),
        };
        if plan.is_direct() && self.goes_direct(range, circumstances) {
            return Some(plan);
        }
        let plan = plan.through_cache(range.length)?;
        if !self.waits.expects(call, range.length) {
            return None;
        }
        if let Last::Cached(reason) = &mut self.last {
            reason.to_mut().push_str("; calls wait for the disk");
        }
        Some(plan)
    }

    /// Whether a range that can go past the page cache does, as measured.
    fn goes_direct(&mut self, range: &FileRange<'_>, circumstances: Circumstances) -> bool {
        if let Some(reason) = self.residence.reason_for_cache(range, circumstances.call) {
            self.last = Last::Cached(reason.into());
            return false;
        }
        let trial = Trial::begin(circumstances, range, self.moved);
        let is_direct = trial.is_direct();
        if !is_direct {
            self.last = Last::Cached(trial.reason().into());
        }
        self.trial = Some(trial);
        is_direct
    }

    /// Times a call that moves bytes of a file while the thread waits. `None` if that makes no difference.
    pub(crate) fn time_call(&self) -> Option<CallTimer> {
        (self.usage == Some(DirectUse::Measured)).then(CallTimer::start)
    }

    /// Notes such a call. Returns whether it waited for the disk, so that the rest of the range is better moved with requests in flight.
    pub(crate) fn note_call(&mut self, call: Call, timer: Option<CallTimer>) -> bool {
        let has_waited = timer.is_some_and(|timer| timer.has_slept());
        if has_waited {
            self.waits.note(call);
        }
        has_waited
    }

    /// As if calls had waited.
    #[cfg(test)]
    pub(crate) fn expect_waits(&mut self) {
        for call in [Call::Read, Call::Write] {
            self.waits.note(call);
        }
    }

    /// Whether calls are expected to wait.
    #[cfg(test)]
    pub(crate) fn expects_waits(&self, call: Call) -> bool {
        self.waits.has_noted(call)
    }

    /// The most requests that were in flight at a time.
    #[cfg(test)]
    pub(crate) fn most_in_flight(&self) -> usize {
        self.most_in_flight
    }

    /// So many bytes of the last range were moved.
    pub(crate) fn end(&mut self, bytes: u64) {
        self.moved += bytes;
        let helpers = std::mem::take(&mut self.helper_time);
        if let Some(trial) = &mut self.trial {
            trial.end(bytes, matches!(self.last, Last::Direct), helpers);
        }
    }

    /// The engine for a range, to be put back after use.
    pub(crate) fn take_engine(&mut self, plan: &Plan<'_>) -> Engine {
        let choice = self.usage.map_or(EngineChoice::Threads, DirectUse::engine);
        match plan.engine_kind() {
            EngineKind::Any => self.engine.take().unwrap_or_else(|| Engine::open(choice)),
            EngineKind::Threads => Engine::open(EngineChoice::Threads),
        }
    }

    pub(crate) fn put_back(&mut self, mut engine: Engine, kind: EngineKind) {
        self.helper_time += engine.take_helper_time();
        match kind {
            EngineKind::Any => self.engine = Some(engine),
            // It holds nothing between two ranges.
            EngineKind::Threads => drop(engine),
        }
        self.release_rings();
    }

    /// Gives up the rings that the streams have left. While requests are in flight, nothing is given up.
    pub(crate) fn release_rings(&mut self) {
        if let Some(engine) = &mut self.engine {
            engine.release();
        }
    }

    /// Notes how a range was moved that could have gone past the page cache.
    pub(crate) fn note_way(&mut self, disk: &DiskRange<'_>) {
        let flights = disk.flights();
        #[cfg(test)]
        {
            self.most_in_flight = self.most_in_flight.max(flights.most());
        }
        if let Some(errno) = flights.refused() {
            if let Some(trial) = &self.trial {
                trial.refuse(errno);
            }
            let error = io::Error::from(errno);
            self.last = Last::Cached(format!("direct I/O: {error}").into());
        } else if !flights.has_direct() && matches!(self.last, Last::Direct) {
            self.last = Last::Cached("its place in the ring does not suit the disk".into());
        }
    }

    /// No helper thread could be started.
    pub(crate) fn note_no_thread(&mut self, error: &io::Error) {
        self.last = Last::Cached(format!("direct I/O: no thread is left: {error}").into());
    }

    /// The measurements behind the way of the last range, for the log.
    pub(crate) fn measurements(&self) -> Option<String> {
        self.trial.as_ref().map(Trial::describe)
    }

    /// How the last range was moved, for the log.
    pub(crate) fn detail(&self) -> Option<Detail> {
        let engine = self.engine.as_ref().map_or("", Engine::way);
        let text = match &self.last {
            Last::None => return None,
            Last::Direct => match self.engine.as_ref().and_then(Engine::without_ring) {
                Some(error) => format!("{engine}: io_uring: {error}").into(),
                None => Cow::Borrowed(engine),
            },
            Last::Cached(reason) => format!("page cache: {reason}").into(),
        };
        Some(Detail::text("files", text))
    }
}
