//! `--parallel auto`: the connections of large files, by the rates of earlier ones on the same way.
//!
//! A number holds for the files that begin while it is measured. A measurement begins when no file with another number is under way,
//! and counts the bytes of all files of the way, because files that are copied at a time share the path. It ends in the middle of a
//! file if that is large; the next file gets the next number.

mod law;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gridhaul_protocol::ranges::RangeSet;

use self::law::Law;
use super::super::output::locked;
use crate::location::Server;
use crate::transfer::Observer;

/// What a new connection sends at first is not measured: TCP finds its rate.
const WARM_UP: Duration = Duration::from_millis(500);

/// Between two files, a longer pause is not part of a measurement.
const PAUSE: Duration = Duration::from_secs(1);

/// The time of a measurement.
const WINDOW: Duration = Duration::from_secs(2);

/// Where files go from and to; `None` is this machine.
pub(super) type Way = (Option<Server>, Option<Server>);

/// The numbers of all ways of a copy.
#[derive(Debug, Default)]
pub(super) struct Streams(Mutex<HashMap<Way, Arc<Mutex<Path>>>>);

impl Streams {
    /// The number now.
    pub(super) fn now(&self, way: &Way) -> u8 {
        let path = self.path(way);
        let path = locked(&path);
        path.law.streams()
    }

    /// A large file begins.
    pub(super) fn begin(&self, way: &Way) -> Flight {
        let path = self.path(way);
        let (streams, epoch) = locked(&path).begin(Instant::now());
        Flight {
            path,
            streams,
            epoch,
            moved: 0,
        }
    }

    fn path(&self, way: &Way) -> Arc<Mutex<Path>> {
        let mut paths = locked(&self.0);
        Arc::clone(paths.entry(way.clone()).or_default())
    }
}

/// What is known of a way.
#[derive(Debug)]
struct Path {
    law: Law,
    /// Counts the numbers that the law has chosen.
    epoch: u64,
    /// Files under way with the number of this epoch, and with earlier ones.
    current: usize,
    earlier: usize,
    /// Since when no file is under way.
    idle: Option<Instant>,
    /// Since when only files of this epoch move bytes.
    since: Option<Instant>,
    /// When the measurement began, and the bytes since then.
    measured: Option<(Instant, u64)>,
}

impl Default for Path {
    fn default() -> Self {
        Self {
            law: Law::new(),
            epoch: 0,
            current: 0,
            earlier: 0,
            idle: None,
            since: None,
            measured: None,
        }
    }
}

impl Path {
    fn begin(&mut self, now: Instant) -> (u8, u64) {
        if let Some(idle) = self.idle.take()
            && now.saturating_duration_since(idle) > PAUSE
        {
            (self.since, self.measured) = (None, None);
        }
        self.current += 1;
        (self.law.streams(), self.epoch)
    }

    fn end(&mut self, epoch: u64, now: Instant) {
        match epoch == self.epoch {
            true => self.current = self.current.saturating_sub(1),
            false => self.earlier = self.earlier.saturating_sub(1),
        }
        if self.current + self.earlier == 0 {
            self.idle = Some(now);
        }
    }

    /// Bytes of a file of this epoch have moved.
    fn moved(&mut self, epoch: u64, bytes: u64, now: Instant) {
        if epoch != self.epoch || self.earlier > 0 {
            return;
        }
        let since = *self.since.get_or_insert(now);
        let Some((began, all)) = &mut self.measured else {
            if now.saturating_duration_since(since) >= WARM_UP {
                self.measured = Some((now, 0));
            }
            return;
        };
        *all = all.saturating_add(bytes);
        let took = now.saturating_duration_since(*began);
        if took >= WINDOW {
            let rate = rate(*all, took);
            self.decide(rate);
        }
    }

    fn decide(&mut self, rate: f64) {
        let before = self.law.streams();
        self.law.measured(rate);
        self.measured = None;
        if self.law.streams() != before {
            self.epoch += 1;
            self.earlier += std::mem::take(&mut self.current);
            self.since = None;
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "rates need no more digits")]
fn rate(bytes: u64, took: Duration) -> f64 {
    bytes as f64 / took.as_secs_f64()
}

/// A large file under way.
#[derive(Debug)]
pub(super) struct Flight {
    path: Arc<Mutex<Path>>,
    streams: u8,
    epoch: u64,
    moved: u64,
}

impl Flight {
    /// The connections of the file.
    pub(super) fn streams(&self) -> u8 {
        self.streams
    }

    fn note(&mut self, moved: u64) {
        let more = moved.saturating_sub(self.moved);
        self.moved += more;
        locked(&self.path).moved(self.epoch, more, Instant::now());
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        locked(&self.path).end(self.epoch, Instant::now());
    }
}

/// Tells the bytes of a file to its way, too.
pub(super) struct Metered<'a> {
    pub(super) flight: Option<Flight>,
    pub(super) observer: &'a mut dyn Observer,
}

impl Observer for Metered<'_> {
    fn moved(&mut self, bytes: u64) {
        if let Some(flight) = &mut self.flight {
            flight.note(bytes);
        }
        self.observer.moved(bytes);
    }

    fn channels(&mut self, bytes: &[u64]) {
        self.observer.channels(bytes);
    }

    fn stripes(&mut self, bytes: &[u64]) {
        self.observer.stripes(bytes);
    }

    fn connected(&mut self) {
        self.observer.connected();
    }

    fn receives(&mut self) {
        self.observer.receives();
    }

    fn stored(&mut self, ranges: &RangeSet) {
        self.observer.stored(ranges);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Moves bytes of a file with this epoch for some seconds.
    fn run(path: &mut Path, epoch: u64, now: &mut Instant, seconds: u32) {
        for _ in 0..seconds * 10 {
            *now += Duration::from_millis(100);
            path.moved(epoch, 100_000, *now);
        }
    }

    #[test]
    fn a_measurement_waits_for_files_with_other_numbers() {
        let (mut path, mut now) = (Path::default(), Instant::now());
        let ((one, first), (_, same)) = (path.begin(now), path.begin(now));
        assert_eq!((one, first), (1, same));
        run(&mut path, first, &mut now, 3);
        // The files of before are still under way.
        let (two, second) = path.begin(now);
        assert_eq!((two, path.earlier), (2, 2));
        run(&mut path, second, &mut now, 10);
        assert_eq!(path.law.streams(), 2);
        path.end(first, now);
        path.end(first, now);
        run(&mut path, second, &mut now, 3);
        // Twice as many have brought nothing, once.
        run(&mut path, second, &mut now, 3);
        assert_eq!((path.law.streams(), path.earlier), (1, 1));
        path.end(second, now);
        assert_eq!((path.current, path.earlier), (0, 0));
    }

    #[test]
    fn short_files_are_measured_together_and_pauses_are_not() {
        let (mut path, mut now) = (Path::default(), Instant::now());
        for _ in 0..5 {
            let (_, epoch) = path.begin(now);
            run(&mut path, epoch, &mut now, 1);
            path.end(epoch, now);
        }
        assert!(path.epoch > 0);
        let (_, epoch) = path.begin(now);
        run(&mut path, epoch, &mut now, 1);
        path.end(epoch, now);
        assert!(path.measured.is_some());
        now += Duration::from_secs(5);
        path.begin(now);
        assert!(path.measured.is_none());
    }
}
