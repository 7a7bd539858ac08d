//! How two methods compare.

use super::cost::Tally;

/// Copying is chosen only if its cost is below this part of the other method's, since copies also take caches and memory
/// bandwidth from other threads.
const CLEARLY_CHEAPER: f64 = 0.9;

/// The cheaper method is chosen only if it takes at most this many times as long.
const MUCH_SLOWER: f64 = 1.5;

/// Where both count, a method that takes more than this many times as long is not chosen.
const SLOWER: f64 = 1.1;

/// Where time counts, the other method is chosen only if it takes at most this part of the time.
const CLEARLY_FASTER: f64 = 0.95;

/// A method of moving a range of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Through the page cache and memory: `read` and `write`.
    Copy,
    /// Without that copy: `sendfile`, `splice`, or direct I/O.
    Bypass,
}

/// Which method is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Goal {
    /// The one with less processor time, unless it is much slower. Both methods take turns in a trial, and the fastest range of
    /// each, which waited least for others, is its speed.
    Processor,
    /// The one with less processor time, unless it is slower. Measured in the same way.
    ProcessorAndTime,
    /// The faster one, if there is a clear difference. Each method is timed in one run, so that what is buffered elsewhere does
    /// not hide the speed of the receiver.
    Time,
}

/// What is measured, and which method is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// Which method is better.
    pub goal: Goal,
    /// The bytes that each method moves before the methods are compared.
    pub trial_bytes: u64,
    /// The shortest ranges in bytes that are measured; with shorter ones the time is mostly waiting.
    pub least_bytes: u64,
    /// The method of ranges that are moved before there is a measurement.
    pub usual: Method,
}

impl Rule {
    /// The method of the next range in a trial, of which so much was measured.
    pub(super) fn next_in_trial(self, copy: &Tally, bypass: &Tally) -> Method {
        let copy_is_next = match self.goal {
            Goal::Time => copy.bytes < self.trial_bytes,
            Goal::Processor | Goal::ProcessorAndTime => copy.bytes < bypass.bytes,
        };
        match copy_is_next {
            true => Method::Copy,
            false => Method::Bypass,
        }
    }

    /// The seconds per gigabyte that are compared.
    pub(super) fn elapsed(self, tally: &Tally) -> f64 {
        match self.goal {
            Goal::Time => tally.elapsed(),
            Goal::Processor | Goal::ProcessorAndTime => tally.fastest(),
        }
    }

    pub(super) fn better(self, copy: &Tally, bypass: &Tally) -> Method {
        let is_cheaper = copy.cpu() < bypass.cpu() * CLEARLY_CHEAPER;
        let [copy, bypass] = [copy, bypass].map(|tally| self.elapsed(tally));
        let tolerated = match self.goal {
            Goal::Time => 1.0 / CLEARLY_FASTER,
            Goal::Processor => MUCH_SLOWER,
            Goal::ProcessorAndTime => SLOWER,
        };
        let is_fast_enough = copy <= bypass * tolerated;
        if is_cheaper && is_fast_enough || bypass > copy * tolerated {
            return Method::Copy;
        }
        Method::Bypass
    }
}
