//! The progress of a file.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use gridhaul_protocol::command::TransferMode;
use gridhaul_protocol::ranges::RangeSet;

use super::Report;
use super::bars::FileBar;
use super::event::Event;
use super::part_bars::Parts;
use crate::transfer::{MOST_RANGES, Observer};

/// How often progress is told.
const INTERVAL: Duration = Duration::from_secs(1);

/// The parts that an event has at most: a peer chooses how many there are.
const MOST_PARTS: usize = 64;

/// The progress of a file.
pub(in crate::program) struct Watch<'a> {
    report: &'a Report,
    bar: Option<FileBar<'a>>,
    source: &'a str,
    destination: &'a str,
    told: Instant,
    moved: u64,
    /// The channels or stripes, if they are to be shown.
    parts: Option<(Parts, Vec<u64>)>,
    /// A server has begun to receive the file.
    is_received: bool,
    stored: RangeSet,
    /// What it had before.
    present: RangeSet,
    record: Option<Box<dyn Record + 'a>>,
    told_stored: Instant,
    tell_connected: Option<Box<dyn Fn() + Send + 'a>>,
    has_begun: Option<Arc<AtomicBool>>,
}

/// Records what the destination has of a file.
pub(in crate::program) trait Record: Send {
    /// An attempt in this mode begins. The destination has these ranges.
    fn begins(&mut self, mode: TransferMode, present: &RangeSet);

    /// It has all of these ranges now.
    fn stored(&mut self, all: &RangeSet);
}

/// How often stored ranges are recorded.
const STORED_INTERVAL: Duration = Duration::from_millis(200);

impl<'a> Watch<'a> {
    pub(super) fn new(
        report: &'a Report,
        bar: Option<FileBar<'a>>,
        source: &'a str,
        destination: &'a str,
    ) -> Self {
        let now = Instant::now();
        Self {
            report,
            bar,
            source,
            destination,
            told: now,
            moved: 0,
            parts: None,
            is_received: false,
            stored: RangeSet::new(),
            present: RangeSet::new(),
            record: None,
            told_stored: now,
            tell_connected: None,
            has_begun: None,
        }
    }

    /// Has stored ranges recorded.
    pub(in crate::program) fn records(&mut self, record: Box<dyn Record + 'a>) {
        self.record = Some(record);
    }

    /// Records no further ranges, and that nothing is there.
    pub(in crate::program) fn records_nothing(&mut self) {
        if let Some(mut record) = self.record.take() {
            record.begins(TransferMode::Extended, &RangeSet::new());
        }
    }

    /// An attempt in this mode begins. The destination has these ranges.
    pub(in crate::program) fn begins(&mut self, mode: TransferMode, present: &RangeSet) {
        (self.stored, self.present) = (RangeSet::new(), present.clone());
        if let Some(record) = &mut self.record {
            record.begins(mode, present);
        }
    }

    /// Tells how an attempt goes, if the user wants more lines.
    pub(in crate::program) fn says(&self, how: impl FnOnce() -> String) {
        let (source, destination) = (self.source, self.destination);
        let words = || format!("{source} -> {destination}: {}", how());
        self.report.says(words);
    }

    /// Has it noted when bytes of the file may have moved.
    pub(in crate::program) fn notes_begin(&mut self, has_begun: Arc<AtomicBool>) {
        self.has_begun = Some(has_begun);
    }

    fn note_begin(&self) {
        if let Some(has_begun) = &self.has_begun {
            has_begun.store(true, Ordering::Relaxed);
        }
    }

    /// Has the first connection of a server told.
    pub(in crate::program) fn tell_connected(&mut self, tell: Box<dyn Fn() + Send + 'a>) {
        self.tell_connected = Some(tell);
    }

    /// Whether bytes of the file have moved, as far as this machine and the servers tell.
    pub(in crate::program) fn has_moved(&self) -> bool {
        self.moved > 0 || !self.stored.is_empty()
    }

    /// Whether bytes of the file have moved, or may have: a server says only from time to time what it has received.
    pub(in crate::program) fn may_have_moved(&self) -> bool {
        self.has_moved() || self.is_received
    }

    fn note_parts(&mut self, parts: Parts, bytes: &[u64]) {
        if !self.report.has_parts {
            return;
        }
        if let Some(bar) = &mut self.bar {
            bar.show_parts(parts, bytes);
        }
        let first = bytes.iter().take(MOST_PARTS).copied();
        self.parts = Some((parts, first.collect()));
    }

    /// What the destination has stored.
    pub(in crate::program) fn stored(&self) -> &RangeSet {
        &self.stored
    }
}

impl Observer for Watch<'_> {
    fn moved(&mut self, bytes: u64) {
        self.moved = self.moved.max(bytes);
        if bytes > 0 {
            self.note_begin();
        }
        if let Some(bar) = &mut self.bar {
            bar.moved(self.moved);
            self.report.show();
        }
        if self.told.elapsed() < INTERVAL {
            return;
        }
        self.told = Instant::now();
        let parts_of = |wanted: Parts| match &self.parts {
            Some((parts, bytes)) if *parts == wanted => Some(bytes.as_slice()),
            _ => None,
        };
        self.report.json(&Event::Progress {
            source: self.source,
            destination: self.destination,
            bytes,
            channels: parts_of(Parts::Channels),
            stripes: parts_of(Parts::Stripes),
        });
    }

    fn channels(&mut self, bytes: &[u64]) {
        self.note_parts(Parts::Channels, bytes);
    }

    fn stripes(&mut self, bytes: &[u64]) {
        self.note_parts(Parts::Stripes, bytes);
    }

    fn connected(&mut self) {
        if let Some(tell) = self.tell_connected.take() {
            tell();
        }
    }

    fn receives(&mut self) {
        self.is_received = true;
        self.note_begin();
    }

    fn stored(&mut self, ranges: &RangeSet) {
        if !ranges.is_empty() {
            self.note_begin();
        }
        if self.stored.len() + ranges.len() <= MOST_RANGES {
            self.stored.extend_from(ranges);
        }
        if let Some(record) = &mut self.record
            && self.told_stored.elapsed() >= STORED_INTERVAL
        {
            self.told_stored = Instant::now();
            let mut all = self.present.clone();
            all.extend_from(&self.stored);
            record.stored(&all);
        }
    }
}
