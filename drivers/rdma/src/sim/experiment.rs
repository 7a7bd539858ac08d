//! Experiments whose results are recorded: the speed of channels on simulated paths.
//!
//! Data has no content here and rings are addresses only. The tests of this module show that bytes
//! arrive as they were sent.

use std::io;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use super::run::{Run, RunSettings};
use super::settings::FabricSettings;
use crate::handshake::Mode;
use crate::pacing::{Burst, Path, Rate};

/// Channels from one host to another, each with an endless stream to send.
#[derive(Debug, Clone)]
pub struct Experiment {
    /// The fabric.
    pub fabric: FabricSettings,
    /// The number of channels.
    pub channels: usize,
    /// The length of each direction's ring in bytes.
    pub ring_bytes: NonZeroU64,
    /// The largest message, in bytes.
    pub message_bytes: u64,
    /// The number of queue pairs of a channel.
    pub queue_pairs: usize,
    /// The pace.
    pub pace: Pace,
    /// A queue pair is given up after this time without a completion.
    pub stall: Option<Duration>,
    /// The simulated time.
    pub time: Duration,
    /// Results are reported for each interval of this length.
    pub interval: Duration,
}

/// How fast messages are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// Without pacing.
    Unpaced,
    /// With the options `rate` and `burst`.
    Paced {
        /// In bytes per second.
        rate: u64,
        /// In bytes; the driver's default if none is given.
        burst: Option<u64>,
    },
    /// With `rate=auto`.
    Auto,
}

/// The results.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The intervals in order.
    pub intervals: Vec<Interval>,
    /// The bytes that each channel delivered.
    pub channels: Vec<u64>,
}

/// The results of an interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// The delivered bytes per second of all channels.
    pub rate: f64,
    /// Messages that lost packets on the way.
    pub dropped: u64,
    /// Queue pairs that were given up because no request completed.
    pub stalls: u64,
    /// The pace at the end of the interval, in bytes per second.
    pub pace: Option<u64>,
}

/// Why an experiment failed.
#[derive(Debug, thiserror::Error)]
pub enum ExperimentError {
    /// The process has too few descriptors.
    #[error("a channel cannot be opened: {0}")]
    Open(#[from] io::Error),
    /// A fault of the engine.
    #[error("one end violated the protocol: {0}")]
    Fault(String),
    /// The simulated machines have too little memory.
    #[error("there is no memory for a channel: {0}")]
    Memory(String),
}

impl Experiment {
    /// Runs the experiment.
    ///
    /// # Errors
    ///
    /// When the process has too few descriptors, or the engine has a fault.
    pub fn run(&self) -> Result<Outcome, ExperimentError> {
        let path = self.path();
        path.expect(self.fabric.links.iter().map(|link| link.delay).sum());
        let mut run = self.open(&path)?;
        Outcome::of(&mut run, &path, self.time, self.interval, || ())
    }

    fn path(&self) -> Arc<Path> {
        match self.pace {
            Pace::Unpaced => Path::new(Rate::Any, self.message_bytes),
            Pace::Paced { rate, burst } => {
                let rate = Rate::Fixed(rate);
                let usual = || Burst::usual(self.message_bytes, rate);
                Path::new(rate, burst.map_or_else(usual, Burst::from))
            }
            Pace::Auto => {
                let port = Some(self.fabric.links[0].rate);
                Path::new(Rate::Auto { port }, self.message_bytes)
            }
        }
    }

    fn open(&self, path: &Arc<Path>) -> io::Result<Run> {
        let mut run = Run::new(self.fabric.clone());
        let settings = RunSettings {
            ring_bytes: self.ring_bytes,
            message_bytes: self.message_bytes,
            queue_pairs: self.queue_pairs,
            mode: Mode::Put,
            stall: self.stall,
        };
        for _ in 0..self.channels {
            let back = Path::new(Rate::Any, self.message_bytes);
            run.open(settings, [Arc::clone(path), back], [None, None])?;
        }
        for [sender, _] in &mut run.channels {
            sender.send(u64::MAX, None);
        }
        Ok(run)
    }
}

impl Outcome {
    /// Runs channels for a time, with results for each interval. `watch` is called after each event.
    pub(super) fn of(
        run: &mut Run,
        path: &Path,
        time: Duration,
        interval: Duration,
        mut watch: impl FnMut(),
    ) -> Result<Self, ExperimentError> {
        let mut intervals = Vec::new();
        let mut before = Totals::default();
        let mut end = Duration::ZERO;
        while end < time {
            end = (end + interval).min(time);
            let began = run.now;
            while run
                .step(end)
                .map_err(|fault| ExperimentError::Fault(fault.to_string()))?
            {
                watch();
            }
            let after = Totals::of(run);
            intervals.push(Interval {
                rate: (after.bytes - before.bytes) as f64 / (end - began).as_secs_f64(),
                dropped: after.dropped - before.dropped,
                stalls: after.stalls - before.stalls,
                pace: path.rate(),
            });
            before = after;
        }
        let delivered = run.channels.iter().map(|[_, receiver]| receiver.received);
        Ok(Self {
            intervals,
            channels: delivered.collect(),
        })
    }

    /// The delivered bytes per second from the interval `from` on.
    pub fn rate_from(&self, from: usize) -> f64 {
        let intervals = &self.intervals[from.min(self.intervals.len())..];
        let sum: f64 = intervals.iter().map(|interval| interval.rate).sum();
        sum / (intervals.len().max(1) as f64)
    }

    /// The number of intervals at the start that have less than this share of `rate`.
    pub fn below(&self, share: f64, rate: u64) -> usize {
        let enough = |interval: &Interval| interval.rate >= share * rate as f64;
        self.intervals
            .iter()
            .rposition(|interval| !enough(interval))
            .map_or(0, |last| last + 1)
    }

    /// The bytes of the slowest channel as a share of those of the quickest.
    pub fn fairness(&self) -> f64 {
        let slowest = self.channels.iter().min().copied().unwrap_or(0);
        let quickest = self.channels.iter().max().copied().unwrap_or(0);
        slowest as f64 / quickest.max(1) as f64
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Totals {
    bytes: u64,
    dropped: u64,
    stalls: u64,
}

impl Totals {
    fn of(run: &Run) -> Self {
        let ends = || run.channels.iter();
        Self {
            bytes: ends().map(|[_, receiver]| receiver.received).sum(),
            dropped: run.fabric.dropped(0),
            stalls: ends()
                .map(|[sender, _]| sender.exchange.meter().stalls())
                .sum(),
        }
    }
}
