//! Moves files between a disk and the rings with several requests in flight (`direct=1`, and `direct=auto` where it costs less).
//!
//! ```text
//!   send:     file -> requests -> outgoing ring      channel::streams::reading
//!   receive:  file <- requests <- incoming ring      channel::streams::writing
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

use std::borrow::Cow;
use std::io;
use std::os::fd::BorrowedFd;

use gridhaul_direct::{
    Call, Circumstances, DirectUse, Engine, EngineChoice, Files, MAX_REQUESTS, Trial, block_bytes,
};
use gridhaul_stack::{Detail, FileRange};

use self::cut::Cutter;
pub(crate) use self::disk_range::DiskRange;
pub(crate) use self::flights::Failure;

/// The content of a file begins at an offset of the ring that is congruent to its offset in the file, modulo this many bytes: a
/// page of most machines, and at least a block of most disks.
pub(crate) const ALIGNMENT: u64 = 4096;

/// Shorter ranges are moved with one call, which costs less.
pub(crate) const LEAST_BYTES: u64 = 64 << 10;

/// The longest request. Disks serve longer ones no faster.
const LONGEST_REQUEST: u64 = 1 << 20;

/// The least ring: it has several requests of [`LEAST_BYTES`].
const LEAST_RING_BYTES: u64 = 256 << 10;

/// A ring has room for this many requests.
const PART_OF_RING: u64 = 16;

/// Moves the files of one channel.
#[derive(Debug)]
pub(crate) struct DiskFiles {
    usage: Option<DirectUse>,
    engine: Option<Engine>,
    last: Last,
    /// The measurement of the last range, with `direct=auto`.
    trial: Option<Trial>,
    /// Bytes of all ranges so far.
    moved: u64,
}

/// How the last range was moved.
#[derive(Debug)]
enum Last {
    None,
    Direct,
    /// Through the page cache, for this reason.
    Cached(Cow<'static, str>),
}

/// How a range is moved.
#[derive(Debug)]
pub(crate) struct Plan<'a> {
    pub(crate) files: Files<'a>,
    cutter: Cutter,
    /// Requests in flight.
    pub(crate) requests: usize,
}

impl DiskFiles {
    pub(crate) fn new(usage: Option<DirectUse>) -> Self {
        Self {
            usage,
            engine: None,
            last: Last::None,
            trial: None,
            moved: 0,
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

    /// As [`DiskFiles::plan`], but `None` also if one call at a time costs less over such a `connection`. [`DiskFiles::end`] ends the
    /// range.
    pub(crate) fn choose<'a>(
        &mut self,
        range: &FileRange<'a>,
        call: Call,
        connection: &'static str,
        ring_bytes: u64,
        alignment: Alignment,
    ) -> Option<Plan<'a>> {
        self.trial = None;
        let plan = self.plan(range, ring_bytes, alignment)?;
        if self.usage != Some(DirectUse::Measured) {
            return Some(plan);
        }
        if plan.cutter.block.is_none() || !self.has_ring() {
            return None;
        }
        let circumstances = Circumstances {
            connection,
            call,
            request_bytes: plan.cutter.request_bytes,
        };
        let trial = Trial::begin(circumstances, range, self.moved);
        let is_direct = trial.is_direct();
        if !is_direct {
            self.last = Last::Cached("as measured".into());
        }
        self.trial = Some(trial);
        is_direct.then_some(plan)
    }

    /// So many bytes of the last range were moved.
    pub(crate) fn end(&mut self, bytes: u64) {
        self.moved += bytes;
        if let Some(trial) = &mut self.trial {
            trial.end(bytes, matches!(self.last, Last::Direct));
        }
    }

    /// Whether there is io_uring.
    fn has_ring(&mut self) -> bool {
        let engine = self.take_engine();
        if let Some(error) = engine.without_ring() {
            self.last = Last::Cached(format!("io_uring: {error}").into());
        }
        let has_ring = engine.without_ring().is_none();
        self.put_back(engine);
        has_ring
    }

    /// How to move a range between its file and a ring of this length; `None` if one call at a time does.
    fn plan<'a>(
        &mut self,
        range: &FileRange<'a>,
        ring_bytes: u64,
        alignment: Alignment,
    ) -> Option<Plan<'a>> {
        self.usage?;
        if range.length < LEAST_BYTES || ring_bytes < LEAST_RING_BYTES {
            return None;
        }
        let part = (ring_bytes / PART_OF_RING).min(LONGEST_REQUEST);
        let request_bytes = part - part % ALIGNMENT;
        let direct = range
            .direct
            .filter(|_| ring_bytes.is_multiple_of(ALIGNMENT));
        let block = match (direct, alignment) {
            (None, _) => Err("the file could not be opened past the page cache"),
            (_, Alignment::None) => Err("the rings are not aligned"),
            (Some(file), Alignment::Blocks) => block_of(file, request_bytes),
        };
        self.last = match block {
            Ok(_) => Last::Direct,
            Err(reason) => Last::Cached(reason.into()),
        };
        Some(Plan {
            files: Files {
                direct: direct.unwrap_or(range.file),
                cached: range.file,
            },
            cutter: Cutter {
                block: block.ok(),
                request_bytes,
            },
            requests: usize::try_from(ring_bytes / request_bytes)
                .map_or(MAX_REQUESTS, |requests| requests.min(MAX_REQUESTS)),
        })
    }

    /// The engine, to be put back after use.
    pub(crate) fn take_engine(&mut self) -> Engine {
        let choice = self.usage.map_or(EngineChoice::Threads, DirectUse::engine);
        self.engine.take().unwrap_or_else(|| Engine::open(choice))
    }

    pub(crate) fn put_back(&mut self, engine: Engine) {
        self.engine = Some(engine);
    }

    /// Notes how a range was moved that could have gone past the page cache.
    pub(crate) fn note_way(&mut self, disk: &DiskRange<'_>) {
        let flights = disk.flights();
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

/// Whether the content of files is where direct I/O needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Alignment {
    None,
    Blocks,
}

/// The block of a file for requests of this length.
fn block_of(file: BorrowedFd<'_>, request_bytes: u64) -> Result<u64, &'static str> {
    let block = block_bytes(file).ok_or("the file system has no direct I/O for this file")?;
    let block = block as u64;
    if request_bytes.is_multiple_of(block) {
        Ok(block)
    } else {
        Err("its blocks are longer than the requests")
    }
}
