//! `direct=auto`: past the page cache or through it, by measurement.
//!
//! The two ways that are compared are those of `direct=1` and of the page cache. What the kernel does on its own threads
//! is in the elapsed time, but not in the processor time: to write the page cache to the disk later, and to serve requests that a
//! file system does not take without blocking.

use std::sync::Arc;
use std::time::Duration;

use gridhaul_stack::FileRange;
use gridhaul_stack::measured::{Choice, Choices, Goal, Method, Rule, Stopwatch};
use rustix::io::Errno;

use crate::cached::Identity;
use crate::request::Call;

/// The way is chosen again for each part of a range of this length, in bytes. At the end of each, the disk is idle for a moment.
pub(crate) const PIECE_BYTES: u64 = 16 << 20;

/// A transfer counts as long once a channel has moved this many bytes: a trial moves as many in the worse way.
const LONG_BYTES: u64 = 4 * PIECE_BYTES;

const RULE: Rule = Rule {
    goal: Goal::ProcessorAndTime,
    // Several pieces, of which one may not have to wait for the peer.
    trial_bytes: 4 * PIECE_BYTES,
    least_bytes: 1 << 20,
    // Short transfers are often of files that are used again.
    usual: Method::Copy,
};

/// What a measurement is valid for, except for the file system: what decides the costs of both ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Circumstances {
    /// The driver and the kind of its connection, whose costs are in both measurements.
    pub connection: &'static str,
    /// The direction.
    pub call: Call,
    /// The length in bytes of the requests past the page cache. Lengths of the same power of two share a measurement.
    pub request_bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Route {
    connection: &'static str,
    call: Call,
    /// The logarithm of the length of requests.
    request_class: u32,
    /// The number of the file system.
    file_system: Option<u64>,
}

impl Route {
    fn new(circumstances: Circumstances, file_system: Option<u64>) -> Self {
        let Circumstances {
            connection,
            call,
            request_bytes,
        } = circumstances;
        Self {
            connection,
            call,
            request_class: request_bytes.max(1).ilog2(),
            file_system,
        }
    }
}

/// All measurements of this process.
static CHOICES: Choices<Route> = Choices::new();

/// A range whose way was chosen by measurement. It may be measured itself.
#[derive(Debug)]
pub struct Trial {
    choice: Arc<Choice>,
    method: Method,
    stopwatch: Option<Stopwatch>,
}

impl Trial {
    /// Chooses the way of a range from (`Read`) or to (`Write`) a file, for a channel that has moved `moved` bytes before.
    pub fn begin(circumstances: Circumstances, range: &FileRange<'_>, moved: u64) -> Self {
        let file_system = Identity::of(range.file).map(|identity| identity.device);
        let route = Route::new(circumstances, file_system);
        Self::of(CHOICES.get(route, RULE), range.length, moved)
    }

    fn of(choice: Arc<Choice>, bytes: u64, moved: u64) -> Self {
        let (method, is_measured) = choice.choose(bytes, moved >= LONG_BYTES);
        Self {
            choice,
            method,
            stopwatch: is_measured.then(Stopwatch::start),
        }
    }

    /// Whether the range goes past the page cache.
    pub fn is_direct(&self) -> bool {
        self.method == Method::Bypass
    }

    /// So many bytes of the range were moved, and went past the page cache or not. A range that did not go past it as intended is no
    /// measurement of that. A range of which nothing was moved is no measurement at all. `helpers` is the processor time of threads that
    /// helped the caller's.
    pub fn end(&mut self, bytes: u64, went_direct: bool, helpers: Duration) {
        let stopwatch = self.stopwatch.take().filter(|_| bytes > 0);
        let Some(stopwatch) = stopwatch else {
            return;
        };
        match went_direct == self.is_direct() {
            true => {
                let cost = stopwatch.stop(bytes).with_helpers(helpers);
                self.choice.note(self.method, cost);
            }
            false => self.choice.miss(),
        }
    }

    /// A request past the page cache failed. If the file system has no direct I/O for such files, it is not tried again soon.
    pub fn refuse(&self, errno: Errno) {
        if matches!(errno, Errno::INVAL | Errno::OPNOTSUPP) {
            self.choice.refuse(errno);
        }
    }

    /// Why a range goes through the page cache, for the log.
    pub fn reason(&self) -> &'static str {
        match self.choice.is_decided() {
            true => "as measured",
            false => "not measured yet",
        }
    }

    /// The measurements, for the log.
    pub fn describe(&self) -> String {
        self.choice.describe("O_DIRECT", "page cache")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice() -> Arc<Choice> {
        Arc::new(Choice::new(RULE))
    }

    #[test]
    fn short_transfers_use_the_page_cache_and_are_not_measured() {
        let choice = choice();
        for _ in 0..1000 {
            let mut trial = Trial::of(Arc::clone(&choice), 1 << 20, LONG_BYTES - 1);
            assert!(!trial.is_direct());
            trial.end(1 << 20, false, Duration::ZERO);
            assert_eq!(trial.reason(), "not measured yet");
        }
        assert_eq!(
            Trial::of(choice, 1, 0).describe(),
            "O_DIRECT and page cache are being measured"
        );
    }

    #[test]
    fn a_long_transfer_tries_both_ways_and_then_keeps_one() {
        let choice = choice();
        let mut counts = [0; 2];
        for _ in 0..8 {
            let mut trial = Trial::of(Arc::clone(&choice), PIECE_BYTES, LONG_BYTES);
            let is_direct = trial.is_direct();
            counts[usize::from(is_direct)] += 1;
            trial.end(PIECE_BYTES, is_direct, Duration::ZERO);
        }
        assert_eq!(counts, [4, 4]);
        let trial = Trial::of(choice, PIECE_BYTES, LONG_BYTES);
        assert!(
            trial
                .describe()
                .starts_with("CPU seconds per GB: O_DIRECT ")
        );
        assert!(trial.stopwatch.is_none());
        assert_eq!(trial.reason(), "as measured");
    }

    /// Without it threads would seem to move bytes for nothing.
    #[test]
    fn the_time_of_helpers_counts() {
        let choice = choice();
        for _ in 0..8 {
            let mut trial = Trial::of(Arc::clone(&choice), PIECE_BYTES, LONG_BYTES);
            let is_direct = trial.is_direct();
            let helpers = if is_direct { 1000 } else { 0 };
            trial.end(PIECE_BYTES, is_direct, Duration::from_secs(helpers));
        }
        let words = Trial::of(choice, PIECE_BYTES, LONG_BYTES).describe();
        let of_helpers = "CPU seconds per GB: O_DIRECT 59604.";
        assert!(words.starts_with(of_helpers), "{words}");
    }

    /// The bytes of a peer may be where direct I/O cannot use them, at each of its ranges.
    #[test]
    fn a_trial_whose_ranges_never_go_past_the_page_cache_ends() {
        let choice = choice();
        let mut measured = 0;
        for _ in 0..100 {
            let mut trial = Trial::of(Arc::clone(&choice), PIECE_BYTES, LONG_BYTES);
            measured += usize::from(trial.stopwatch.is_some());
            trial.end(PIECE_BYTES, false, Duration::ZERO);
        }
        assert!(measured < 20, "{measured} of 100");
        let trial = Trial::of(choice, PIECE_BYTES, LONG_BYTES);
        assert!(!trial.is_direct());
        let words = trial.describe();
        assert!(words.starts_with("O_DIRECT was not possible"), "{words}");
    }

    /// A stream that moves to another ring at the first byte of a range.
    #[test]
    fn a_range_of_which_nothing_was_moved_is_no_measurement() {
        let choice = choice();
        for _ in 0..100 {
            let mut trial = Trial::of(Arc::clone(&choice), PIECE_BYTES, LONG_BYTES);
            trial.end(0, false, Duration::ZERO);
        }
        let words = Trial::of(choice, PIECE_BYTES, LONG_BYTES).describe();
        assert_eq!(words, "O_DIRECT and page cache are being measured");
    }

    #[test]
    fn a_measurement_is_valid_where_all_that_decides_it_is_the_same() {
        let circumstances = Circumstances {
            connection: "one",
            call: Call::Read,
            request_bytes: 1 << 20,
        };
        let route = Route::new(circumstances, Some(1));
        let request_bytes = (1 << 20) + 4096;
        let similar = Circumstances {
            request_bytes,
            ..circumstances
        };
        assert_eq!(Route::new(similar, Some(1)), route);
        let others = [
            Circumstances {
                connection: "another",
                ..circumstances
            },
            Circumstances {
                call: Call::Write,
                ..circumstances
            },
            Circumstances {
                request_bytes: 64 << 10,
                ..circumstances
            },
            // There is no shorter one, but no length may panic.
            Circumstances {
                request_bytes: 0,
                ..circumstances
            },
        ];
        for other in others {
            assert_ne!(Route::new(other, Some(1)), route, "{other:?}");
        }
        assert_ne!(Route::new(circumstances, Some(2)), route);
    }

    #[test]
    fn a_file_system_without_direct_io_is_not_tried_again() {
        let choice = choice();
        let trial = Trial::of(Arc::clone(&choice), PIECE_BYTES, LONG_BYTES);
        // A lack of memory passes.
        trial.refuse(Errno::AGAIN);
        assert!(trial.describe().ends_with("are being measured"));
        trial.refuse(Errno::INVAL);
        for _ in 0..10 {
            let trial = Trial::of(Arc::clone(&choice), PIECE_BYTES, LONG_BYTES);
            assert!(!trial.is_direct() && trial.stopwatch.is_none());
        }
    }
}
