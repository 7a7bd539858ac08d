//! The progress of a file.

use std::time::{Duration, Instant};

use gridhaul_protocol::ranges::RangeSet;

use super::bars::FileBar;
use super::{Event, Report};
use crate::transfer::{MOST_RANGES, Observer};

/// How often progress is told.
const INTERVAL: Duration = Duration::from_secs(1);

/// The progress of a file.
pub(in crate::program) struct Watch<'a> {
    report: &'a Report,
    bar: Option<FileBar<'a>>,
    source: &'a str,
    destination: &'a str,
    told: Instant,
    moved: u64,
    stored: RangeSet,
    tell_stored: Option<TellStored<'a>>,
    told_stored: Instant,
    tell_connected: Option<Box<dyn Fn() + Send + 'a>>,
}

/// Receives all ranges that the destination has stored, several times a second.
pub(in crate::program) type TellStored<'a> = Box<dyn Fn(&RangeSet) + Send + 'a>;

/// How often stored ranges are told.
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
            stored: RangeSet::new(),
            tell_stored: None,
            told_stored: now,
            tell_connected: None,
        }
    }

    /// Has stored ranges told.
    pub(in crate::program) fn tell_stored(&mut self, tell: TellStored<'a>) {
        self.tell_stored = Some(tell);
    }

    /// Stores no further ranges in the journal.
    pub(in crate::program) fn tell_nothing(&mut self) {
        self.tell_stored = None;
    }

    /// Has the first connection of a server told.
    pub(in crate::program) fn tell_connected(&mut self, tell: Box<dyn Fn() + Send + 'a>) {
        self.tell_connected = Some(tell);
    }

    /// Whether bytes of the file have moved.
    pub(in crate::program) fn has_moved(&self) -> bool {
        self.moved > 0
    }

    /// What the destination has stored.
    pub(in crate::program) fn stored(&self) -> &RangeSet {
        &self.stored
    }
}

impl Observer for Watch<'_> {
    fn moved(&mut self, bytes: u64) {
        self.moved = self.moved.max(bytes);
        if let Some(bar) = &mut self.bar {
            bar.moved(self.moved);
            self.report.show();
        }
        if self.told.elapsed() < INTERVAL {
            return;
        }
        self.told = Instant::now();
        self.report.json(&Event::Progress {
            source: self.source,
            destination: self.destination,
            bytes,
        });
    }

    fn connected(&mut self) {
        if let Some(tell) = self.tell_connected.take() {
            tell();
        }
    }

    fn stored(&mut self, ranges: &RangeSet) {
        if self.stored.len() + ranges.len() <= MOST_RANGES {
            self.stored.extend_from(ranges);
        }
        if let Some(tell) = &self.tell_stored
            && self.told_stored.elapsed() >= STORED_INTERVAL
        {
            self.told_stored = Instant::now();
            tell(&self.stored);
        }
    }
}
